"""The pure parts of `verify`: ranges, windows, the bounded report."""

from __future__ import annotations

import ast
import random

from ckpttool.errors import IncompleteError
from ckpttool.ops.explain import explain
from ckpttool.ops.verification.checksums import WINDOW, Mismatch, Unit, units
from ckpttool.ops.verification.extents import Extents
from ckpttool.ops.verification.pieces import PIECE, Joiner, Piece, cut, sum_piece
from ckpttool.ops.verification.report import KEPT_PER_ID, Report
from tests.support import handmade
from tests.support.command import ROOT
from tests.support.memory_file import MemoryFile


def extents_of(*ranges: tuple[int, int]) -> Extents:
    extents = Extents()
    for ordinal, (offset, size) in enumerate(ranges):
        extents.add(ordinal, offset, size, 0)
    return extents


def test_layout_of_dense_ranges_in_any_order() -> None:
    extents = extents_of((8, 4), (0, 8), (12, 0), (500, 0))
    layout = extents.layout()
    assert list(extents.order()) == [1, 0, 2, 3]
    assert (layout.aliased, layout.overlapping, layout.gaps, extents.end) == (0, 0, 0, 12)


def test_layout_names_the_first_aliased_and_the_first_overlapping_pair() -> None:
    layout = extents_of((0, 8), (0, 8), (4, 8), (12, 4)).layout()
    assert (layout.aliased, layout.first_aliased, layout.aliased_bytes) == (1, (0, 1), 8)
    assert (layout.overlapping, layout.first_overlapping) == (1, (0, 2))


def test_layout_counts_gaps_and_ignores_empty_ranges() -> None:
    layout = extents_of((4, 4), (100, 0), (16, 4)).layout()
    assert (layout.gaps, layout.unclaimed) == (2, 4 + 8)


def test_a_range_inside_a_longer_one_is_an_overlap_whatever_follows() -> None:
    layout = extents_of((0, 100), (10, 5), (50, 5)).layout()
    assert (layout.overlapping, layout.first_overlapping, layout.gaps) == (2, (0, 1), 0)


def test_units_cover_every_range_once_and_stay_small() -> None:
    rng = random.Random(7)
    ranges, at = [], 0
    for _ in range(5000):
        at += rng.choice((0, 0, 0, 3, 10_000))
        size = rng.choice((0, 1, 100, 4096, 300_000))
        ranges.append((at, size))
        at += size
    rng.shuffle(ranges)
    extents = extents_of(*ranges)
    seen: list[int] = []
    for unit in units(extents, at):
        seen += unit.positions
        assert len(unit.positions) == 1 or unit.end - unit.start <= WINDOW
        for position in unit.positions:
            offset, size = ranges[position]
            assert unit.start <= offset
            assert offset + size <= unit.end
    assert sorted(seen) == list(range(len(ranges)))


def test_units_do_not_read_across_wide_gaps() -> None:
    assert len(list(units(extents_of((0, 10), (100_000, 10)), 200_000))) == 2


def test_units_leave_out_what_ends_past_the_file_and_read_an_alias_once() -> None:
    size = 3 * WINDOW
    extents = extents_of((0, size), (0, size), (size, 10), (size, 11), (9 * size, 0))
    found = [unit.positions for unit in units(extents, size + 10)]
    assert found == [[0, 1], [2], [4]]


def test_sorting_by_stretches_is_sorting() -> None:
    rng = random.Random(5)
    for largest in (1, 63, 64, 10**6, 2**62):
        ranges = [(rng.randint(0, largest), 1) for _ in range(300)]
        extents = extents_of(*ranges)
        assert [ranges[at] for at in extents.order()] == sorted(ranges)


def test_a_report_stays_bounded_and_counts_what_it_leaves_out() -> None:
    report = Report()
    for number in range(KEPT_PER_ID + 5):
        report.add("size-mismatch", "error", str(number), "")
        report.skip(str(number), "", 1, 10)
    assert len(report.findings) == KEPT_PER_ID + 1
    assert "5 more" in report.findings[-1].message
    assert len(report.not_checked) == KEPT_PER_ID
    assert sum(skipped.variables for skipped in report.not_checked) == KEPT_PER_ID + 5


def test_a_report_puts_errors_first_and_only_they_are_damage() -> None:
    report = Report()
    report.add("unclaimed-bytes", "note", "a", "")
    report.add("shard-extra", "warning", "b", "")
    before = report.damaged
    report.add_error(IncompleteError("c is short", why="3 of 4 bytes", id="short-read"), "c")
    assert (before, report.damaged) == (False, True)
    assert [found.severity for found in report.findings] == ["error", "warning", "note"]
    assert report.findings[0].message == "it is short: 3 of 4 bytes"


def test_a_large_range_is_cut_and_its_sums_are_joined_in_any_order() -> None:
    data = random.Random(1).randbytes(2 * PIECE + 12_345)
    file = MemoryFile(data)
    extents = Extents()
    good = handmade.masked_crc(data)
    for ordinal, checksum in enumerate((good, 7, good)):
        extents.add(ordinal, 0, len(data), checksum)
    pieces = list(cut(units(extents, len(data)), extents))
    assert [type(piece) for piece in pieces] == [Piece] * 3
    assert sum(piece.nbytes for piece in pieces) == 3 * len(data)
    joiner = Joiner(extents)
    found: list[Mismatch] = []
    for piece in reversed(pieces):
        assert isinstance(piece, Piece)
        assert found == []
        found = joiner.add(sum_piece(file, piece))
    assert found == [Mismatch(1, good)]


def test_a_piece_that_cannot_be_read_speaks_for_the_whole_range() -> None:
    extents = Extents()
    extents.add(0, 0, 3 * PIECE, 0)
    joiner = Joiner(extents)
    file = MemoryFile(bytes(PIECE))
    results = [joiner.add(sum_piece(file, piece)) for piece in pieces_of(extents)]
    assert results[:2] == [[], []]
    (mismatch,) = results[2]
    assert isinstance(mismatch.outcome, IncompleteError)


def test_strings_are_not_cut() -> None:
    extents = Extents()
    extents.add_opaque(0, 0, 3 * PIECE, 0, 7, 1)
    assert [type(item) for item in cut(units(extents, 3 * PIECE), extents)] == [Unit]


def pieces_of(extents: Extents) -> list[Piece]:
    return [item for item in cut(units(extents, extents.end), extents) if isinstance(item, Piece)]


def test_every_finding_has_an_explanation_that_says_exit_code_1() -> None:
    """A finding's id is a word with hyphens as the first argument of ``add…``."""
    known = {entry.id: entry.exit_codes for entry in explain().entries}
    used = set()
    for path in (ROOT / "ckpttool" / "ops" / "verification").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in {"add", "add_unnamed"} and len(node.args) == 4:
                for leaf in ast.walk(node.args[0]):
                    if isinstance(leaf, ast.Constant):
                        used.add(str(leaf.value))
    assert len(used) > 20
    assert {id for id in used if 1 not in known.get(id, ())} == set()
