"""Every finding of `verify`, each on a checkpoint that was made to have it and no other."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import pytest

from ckpttool.errors import ForeignFormatError, LimitError, UnsupportedError
from ckpttool.limits import Limits
from ckpttool.model import Finding
from ckpttool.ops.verification.bundle import BundleReport, Level, check_bundle
from ckpttool.storage import open_directory
from tests.support import handmade
from tests.support.handmade import EntryFields, entry, slice_key, write_bundle

FLOAT, STRING, VARIANT = 1, 7, 21
EIGHT = bytes(range(8))


def check(
    folder: Path, level: Level = "deep", jobs: int = 1, limits: Limits | None = None
) -> BundleReport:
    with open_directory(str(folder)) as directory:
        return check_bundle(
            directory, "m", level=level, jobs=jobs, limits=limits or Limits(), progress=None
        )


def found(report: BundleReport) -> list[tuple[str, str]]:
    return [(finding.severity, finding.id) for finding in report.findings]


def only(report: BundleReport) -> Finding:
    assert len(report.findings) == 1, report.findings
    return report.findings[0]


def two(**changes: EntryFields) -> dict[bytes, EntryFields | bytes]:
    """Two variables of two floats each, lying one after the other."""
    entries: dict[bytes, EntryFields] = {
        b"a": {"shape": (2,), "size": 8},
        b"b": {"shape": (2,), "offset": 8, "size": 8},
    }
    for name, fields in changes.items():
        entries[name.encode()] = {**entries[name.encode()], **fields}
    return dict(entries)


def variant_payload(values: list[bytes]) -> tuple[bytes, int]:
    """Stored bytes and masked crc of variants: length, bytes, running checksum."""
    stored = covered = b""
    for value in values:
        covered += len(value).to_bytes(8, "little") + value
        checksum = handmade.masked_crc(covered).to_bytes(4, "little")
        covered += checksum
        stored += handmade.varint(len(value)) + value + checksum
    return stored, handmade.masked_crc(covered)


# Healthy ----------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_whole_checkpoint_is_healthy_and_every_byte_was_read(tmp_path: Path, jobs: int) -> None:
    strings, crc = handmade.string_payload([b"x" * 200, b"", b"yz"])
    variants, variants_crc = variant_payload([b"one", b"x" * 300])
    big = os.urandom(3_000_001)
    data = EIGHT + strings + variants + big
    write_bundle(
        tmp_path,
        "m",
        {
            b"big": {"dtype": 4, "shape": (len(big),), "offset": len(data) - len(big),
                     "size": len(big)},
            b"empty": {"shape": (0, 4)},
            b"f": {"shape": (2,), "size": 8},
            b"s": {"dtype": STRING, "shape": (3,), "offset": 8, "size": len(strings), "crc": crc},
            b"v": {
                "dtype": VARIANT,
                "shape": (2,),
                "offset": 8 + len(strings),
                "size": len(variants),
                "crc": variants_crc,
            },
        },
        [data],
    )  # fmt: skip
    report = check(tmp_path, jobs=jobs)
    assert not report.damaged
    assert (report.findings, report.not_checked) == ((), ())
    assert (report.variables, report.nbytes) == (5, len(data))


def test_quick_reads_no_data_and_says_so(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(a={"crc": 1}), [EIGHT * 2])
    report = check(tmp_path, "quick")
    assert not report.damaged
    assert (report.findings, report.variables, report.nbytes) == ((), 2, 0)
    assert "were not read" in report.not_checked[0].why
    assert (report.not_checked[0].variables, report.not_checked[0].nbytes) == (2, 16)


def test_a_big_endian_checkpoint_is_checked_in_its_own_byte_order(tmp_path: Path) -> None:
    lengths = (3).to_bytes(4, "big") + (0).to_bytes(4, "big")
    checksum = handmade.masked_crc(lengths).to_bytes(4, "big")
    stored = b"\3\0" + checksum + b"abc"
    crc = handmade.masked_crc(lengths + checksum + b"abc")
    write_bundle(
        tmp_path,
        "m",
        {b"s": {"dtype": STRING, "shape": (2,), "size": len(stored), "crc": crc}},
        [stored],
        head=handmade.header(1, big_endian=True),
    )
    assert check(tmp_path).findings == ()


def test_many_small_variables_in_any_order(tmp_path: Path) -> None:
    count = 20_000
    data = os.urandom(4 * count)
    entries: dict[bytes, EntryFields | bytes] = {
        b"%06d" % (number * 7919 % count): {"shape": (), "offset": 4 * number, "size": 4}
        for number in range(count)
    }
    write_bundle(tmp_path, "m", entries, [data])
    report = check(tmp_path, jobs=2)
    assert (report.findings, report.variables, report.nbytes) == ((), count, len(data))


# The data ---------------------------------------------------------------------------


def test_checksum_mismatch_names_variable_shard_offset_and_both_checksums(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(b={"crc": 0x1234}), [EIGHT * 2])
    report = check(tmp_path)
    finding = only(report)
    assert (finding.id, finding.severity, finding.object) == ("checksum-mismatch", "error", "b")
    for part in ("offset 8", "m.data-00000-of-00001", "00001234",
                 f"{handmade.masked_crc(EIGHT):08x}"):  # fmt: skip
        assert part in finding.message
    assert report.damaged
    assert report.variables == 2, "it was compared, and differs"


def test_each_of_many_bad_variables_is_found(tmp_path: Path) -> None:
    entries: dict[bytes, EntryFields | bytes] = {
        b"%03d" % number: {"shape": (), "offset": 4 * number, "size": 4} for number in range(100)
    }
    prefix = write_bundle(tmp_path, "m", entries, [bytes(400)])
    shard = Path(f"{prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    for number in (0, 17, 99):
        data[4 * number + 3] ^= 0x80
    shard.write_bytes(data)
    assert [finding.object for finding in check(tmp_path, jobs=2).findings] == ["000", "017", "099"]


def test_an_empty_variable_has_the_checksum_of_nothing(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {b"e": {"shape": (0,), "crc": 77}}, [b""])
    assert only(check(tmp_path)).id == "checksum-mismatch"


def test_checksum_missing_is_a_warning_until_the_bytes_are_read(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(a={"crc": None}), [EIGHT * 2])
    assert found(check(tmp_path, "quick")) == [("warning", "checksum-missing")]
    finding = only(check(tmp_path))
    assert (finding.severity, finding.id) == ("error", "checksum-missing")
    assert f"{handmade.masked_crc(EIGHT):08x}" in finding.message


@pytest.mark.parametrize(
    ("change", "id"),
    [
        (lambda stored: stored[:1] + b"\x09" + stored[2:], "strings-malformed"),
        (lambda stored: stored[:2] + bytes(4) + stored[6:], "strings-checksum"),
        (lambda stored: stored[:-1] + b"!", "checksum-mismatch"),
    ],
)
def test_strings(tmp_path: Path, change: object, id: str) -> None:
    stored, crc = handmade.string_payload([b"abc", b"de"])
    assert callable(change)
    write_bundle(
        tmp_path,
        "m",
        {b"s": {"dtype": STRING, "shape": (2,), "size": len(stored), "crc": crc}},
        [change(stored)],
    )
    assert found(check(tmp_path)) == [("error", id)]


@pytest.mark.parametrize(("position", "id"), [(0, "variants-malformed"), (2, "variants-checksum")])
def test_variants(tmp_path: Path, position: int, id: str) -> None:
    stored, crc = variant_payload([b"abcdef", b"g"])
    broken = bytearray(stored)
    broken[position] ^= 0x40
    write_bundle(
        tmp_path,
        "m",
        {b"v": {"dtype": VARIANT, "shape": (2,), "size": len(stored), "crc": crc}},
        [bytes(broken)],
    )
    assert found(check(tmp_path)) == [("error", id)]


def test_variants_of_the_other_byte_order_cannot_be_checked(tmp_path: Path) -> None:
    stored, crc = variant_payload([b"abcdef"])
    write_bundle(
        tmp_path,
        "m",
        {b"v": {"dtype": VARIANT, "shape": (1,), "size": len(stored), "crc": crc}},
        [stored],
        head=handmade.header(1, big_endian=True),
    )
    report = check(tmp_path)
    assert found(report) == [("warning", "variants-big-endian")]
    assert (report.variables, report.nbytes, len(report.not_checked)) == (0, 0, 1)


# Entries ----------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["quick", "deep"])
def test_unknown_dtype_is_a_finding_and_its_bytes_are_checked_all_the_same(
    tmp_path: Path, level: Level
) -> None:
    write_bundle(tmp_path, "m", two(a={"dtype": 9999}), [EIGHT * 2])
    report = check(tmp_path, level)
    finding = only(report)
    assert (finding.id, finding.object) == ("unknown-dtype", "a")
    assert "9999" in finding.message
    assert report.nbytes == (16 if level == "deep" else 0)


def test_an_unknown_dtype_without_elements_is_found_too(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {b"a": {"dtype": 77, "shape": (0,)}}, [b""])
    assert only(check(tmp_path)).id == "unknown-dtype"


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": (3,), "size": 8},
        {"dtype": STRING, "shape": (5,), "size": 8},
        {"dtype": VARIANT, "shape": (2,), "size": 8},
        {"dtype": STRING, "shape": (0,), "size": 0},
    ],
)
def test_size_mismatch(tmp_path: Path, fields: EntryFields) -> None:
    write_bundle(tmp_path, "m", {b"a": fields}, [bytes(fields["size"])])
    assert found(check(tmp_path, "quick")) == [("error", "size-mismatch")]


def test_shape_unknown(tmp_path: Path) -> None:
    unknown = {"shape": None, "size": 8, "extra": b"\x12\x02\x18\x01"}
    write_bundle(tmp_path, "m", {b"a": unknown}, [EIGHT])  # type: ignore[dict-item]
    assert only(check(tmp_path)).id == "shape-unknown"


def test_a_string_of_unknown_shape_cannot_be_checked(tmp_path: Path) -> None:
    raw = entry(STRING, None, size=8, crc=5, extra=b"\x12\x02\x18\x01")
    write_bundle(tmp_path, "m", {b"a": raw}, [EIGHT])
    report = check(tmp_path)
    assert ("error", "shape-unknown") in found(report)
    assert (report.variables, report.nbytes) == (0, 0)
    assert report.not_checked[0].object == "a"


def test_one_malformed_entry_does_not_hide_the_others(tmp_path: Path) -> None:
    entries = {**two(b={"crc": 5}), b"aa": b"\xff", b"c": entry(shape=(-5,))}
    write_bundle(tmp_path, "m", entries, [EIGHT * 2])
    report = check(tmp_path)
    assert sorted(found(report)) == [
        ("error", "checksum-mismatch"),
        ("error", "entry-malformed"),
        ("error", "negative-dimension"),
    ]
    assert report.not_checked


def test_no_variables(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {}, [b""])
    assert found(check(tmp_path)) == [("warning", "no-variables")]


# Data files -------------------------------------------------------------------------


def sharded(folder: Path) -> list[Path]:
    """Two variables in each of three shards; the paths of the shards."""
    entries: dict[bytes, EntryFields | bytes] = {
        b"%d%d" % (shard, place): {"shape": (2,), "shard": shard, "offset": 8 * place, "size": 8}
        for shard in range(3)
        for place in range(2)
    }
    prefix = write_bundle(folder, "m", entries, [EIGHT * 2] * 3)
    return [Path(f"{prefix}.data-{shard:05d}-of-00003") for shard in range(3)]


@pytest.mark.parametrize("level", ["quick", "deep"])
def test_shard_missing(tmp_path: Path, level: Level) -> None:
    shards = sharded(tmp_path)
    shards[1].unlink()
    report = check(tmp_path, level)
    finding = only(report)
    assert (finding.id, finding.severity, finding.object) == (
        "shard-missing", "error", str(shards[1]),
    )  # fmt: skip
    assert "2 entries, 16 bytes" in finding.message
    skipped = report.not_checked[0]
    assert (skipped.object, skipped.variables, skipped.nbytes) == (str(shards[1]), 2, 16)
    assert report.variables == 4


@pytest.mark.parametrize("level", ["quick", "deep"])
def test_shard_short_and_every_variable_past_its_end(tmp_path: Path, level: Level) -> None:
    shards = sharded(tmp_path)
    os.truncate(shards[2], 12)
    report = check(tmp_path, level)
    assert found(report) == [("error", "shard-short"), ("error", "past-end")]
    assert report.findings[1].object == "21"
    assert "offset 8" in report.findings[1].message
    assert report.nbytes == (5 * 8 if level == "deep" else 0)
    assert report.variables == 5


def test_shard_empty(tmp_path: Path) -> None:
    shards = sharded(tmp_path)
    os.truncate(shards[0], 0)
    assert found(check(tmp_path)) == [("error", "shard-empty")] + [("error", "past-end")] * 2


def test_shard_extra_and_mixed_counts(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "m.data-00003-of-00003").write_bytes(b"")
    (tmp_path / "m.data-00000-of-00002").write_bytes(b"")
    (tmp_path / "m.data-0-of-1").write_bytes(b"")
    (tmp_path / "other.data-00000-of-00001").write_bytes(b"")
    report = check(tmp_path)
    assert found(report) == [("warning", "shard-extra"), ("warning", "shard-count-mixed")]
    assert not report.damaged


def test_shard_out_of_range(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(b={"shard": 1, "offset": 0}), [EIGHT])
    report = check(tmp_path)
    finding = only(report)
    assert (finding.id, finding.object) == ("shard-out-of-range", "b")
    assert (report.variables, report.nbytes) == (1, 8)


def test_a_shard_that_no_variable_needs_may_be_missing(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(), [EIGHT * 2, b""])
    (tmp_path / "m.data-00001-of-00002").unlink()
    assert found(check(tmp_path)) == [("warning", "shard-missing-unused")]


def test_a_huge_number_of_shards_costs_nothing(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(), [EIGHT * 2], head=handmade.header(2**31 - 1))
    report = check(tmp_path)
    assert ("error", "shard-missing") in found(report)
    assert len(report.findings) == 3


def test_git_lfs_pointer_in_the_place_of_a_shard(tmp_path: Path) -> None:
    shards = sharded(tmp_path)
    shards[1].write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 16\n"
    )
    finding = only(check(tmp_path))
    assert (finding.id, finding.object) == ("git-lfs-pointer", str(shards[1]))
    assert "16 bytes" in finding.message


@pytest.mark.parametrize(
    ("make", "id"),
    [
        (lambda path: path.symlink_to("m.data-00000-of-00003"), "unsafe-link"),
        (lambda path: path.symlink_to("m.data-00001-of-00003"), "unsafe-link"),
        (os.mkfifo, "unsafe-file"),
        (lambda path: path.mkdir(), "unsafe-file"),
    ],
)
def test_what_is_no_regular_file_is_neither_followed_nor_waited_for(
    tmp_path: Path, make: object, id: str
) -> None:
    shards = sharded(tmp_path)
    shards[1].unlink()
    assert callable(make)
    make(shards[1])
    report = check(tmp_path)
    finding = only(report)
    assert (finding.id, finding.object) == (id, str(shards[1]))
    # What a link leads to may be whole.
    assert finding.severity == ("warning" if id == "unsafe-link" else "error")
    assert report.damaged == (finding.severity == "error")
    assert [item.object for item in report.not_checked] == [str(shards[1])]
    assert (report.variables, report.nbytes) == (4, 32)


def test_leftovers_of_an_interrupted_save(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "m.data-00000-of-00003.tempstate5599").write_bytes(b"")
    (tmp_path / "m_temp").mkdir()
    (tmp_path / "m_temp_08f0e1").mkdir()
    (tmp_path / "m2_temp").mkdir()
    (tmp_path / "m_temperature").mkdir()
    report = check(tmp_path)
    assert found(report) == [("note", "save-leftover")] * 3


# How ranges lie ---------------------------------------------------------------------


def test_aliased_variables_are_a_note_and_overlapping_ones_a_warning(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(b={"offset": 0}), [EIGHT])
    report = check(tmp_path)
    assert found(report) == [("note", "extent-aliased")]
    assert not report.damaged
    write_bundle(tmp_path, "m", two(b={"offset": 4}), [EIGHT + bytes(4)])
    assert found(check(tmp_path)) == [("warning", "extent-overlap")]


def test_unclaimed_and_trailing_bytes_are_notes(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(b={"offset": 12}), [EIGHT * 3])
    report = check(tmp_path)
    assert found(report) == [("note", "unclaimed-bytes"), ("note", "trailing-bytes")]
    assert "4 bytes in 1 places" in report.findings[0].message
    assert "4 bytes follow" in report.findings[1].message


def test_overlaps_do_not_have_a_file_read_without_end(tmp_path: Path) -> None:
    data = bytes(2**20)
    entries: dict[bytes, EntryFields | bytes] = {
        b"%d" % number: {"dtype": 4, "shape": (len(data) - number,), "offset": number,
                         "size": len(data) - number, "crc": 1}
        for number in range(40)
    }  # fmt: skip
    write_bundle(tmp_path, "m", entries, [data])
    report = check(tmp_path)
    assert ("error", "extent-flood") in found(report)
    assert (report.variables, report.nbytes) == (0, 0)


# Partitioned variables ----------------------------------------------------------------

ROWS: list[handmade.Slice] = [[(0, 2), (0, None)], [(2, 2), (0, None)]]


def partitioned(
    folder: Path, parts: dict[int, EntryFields] | None = None, owner: EntryFields | None = None
) -> None:
    """``p`` of shape [4, 2] in two parts of two rows, with changes to parts or owner."""
    whole: EntryFields = {"shape": (4, 2), "slices": ROWS, "shard": 9}
    entries: dict[bytes, EntryFields | bytes] = {b"p": {**whole, **(owner or {})}}
    for number, dims in enumerate(ROWS):
        fields: EntryFields = {"shape": (2, 2), "offset": 16 * number, "size": 16}
        entries[slice_key(b"p", dims)] = {**fields, **(parts or {}).get(number, {})}
    write_bundle(folder, "m", entries, [EIGHT * 4])


def test_a_partitioned_variable_counts_as_one(tmp_path: Path) -> None:
    partitioned(tmp_path)
    report = check(tmp_path)
    assert (report.findings, report.variables, report.nbytes) == ((), 1, 32)


def test_a_bad_part_is_named_by_its_variable(tmp_path: Path) -> None:
    partitioned(tmp_path, {1: {"crc": 3}})
    report = check(tmp_path)
    finding = only(report)
    assert (finding.id, finding.object) == ("checksum-mismatch", "p[2:4, :]")
    assert "offset 16" in finding.message


def test_slice_missing(tmp_path: Path) -> None:
    partitioned(tmp_path, owner={"slices": [ROWS[0], [(2, 2), (0, 2)]]})
    report = check(tmp_path, "quick")
    assert found(report) == [("error", "slice-missing"), ("warning", "slice-orphan")]
    assert [finding.object for finding in report.findings] == ["p", "p[2:4, :]"]


@pytest.mark.parametrize(
    ("owner", "id"),
    [
        ({"shape": (3, 2)}, "slice-shape"),
        ({"shape": (4,)}, "slice-shape"),
        ({"shape": (5, 2)}, "slice-gap"),
        ({"slices": [*ROWS, [(1, 2), (0, None)]]}, "slice-overlap"),
        ({"slices": [*ROWS, [(0, 2**62), (0, 2**62)]]}, "slice-shape"),
        ({"slices": [*ROWS, [(-1, 2), (0, None)]]}, "slice-shape"),
        ({"dtype": 3}, "slice-mismatch"),
        ({"dtype": 3333}, "unknown-dtype"),
    ],
)
def test_slices_that_do_not_fit(tmp_path: Path, owner: EntryFields, id: str) -> None:
    partitioned(tmp_path, owner=owner)
    report = check(tmp_path)
    assert report.damaged
    assert id in {finding.id for finding in report.findings}
    assert all(finding.object.startswith("p") for finding in report.findings)
    assert report.nbytes == 32, "the parts themselves are checked all the same"


@pytest.mark.parametrize(
    ("shape", "spelled", "damaged"),
    [
        ((4,), [(0, None)], True),
        ((4, 2), [(0, None), (0, None)], True),
        ((), [], True),
        ((0,), [(0, None)], True),
        # These have a length, so TensorFlow finds the entries of the slices.
        ((4,), [(0, 4)], False),
        ((4, 2), [(0, 4), (0, None)], False),
    ],
)
def test_a_slice_that_is_spelled_as_the_whole_variable(
    tmp_path: Path, shape: tuple[int, ...], spelled: handmade.Slice, damaged: bool
) -> None:
    part: EntryFields = {"shape": shape, "size": 4 * prod(shape)}
    entries: dict[bytes, EntryFields | bytes] = {
        b"v": {"shape": shape, "slices": [spelled]},
        slice_key(b"v", spelled): part,
    }
    write_bundle(tmp_path, "m", entries, [bytes(4 * prod(shape))])
    report = check(tmp_path)
    assert found(report) == ([("error", "slice-whole")] if damaged else [])
    assert (report.damaged, report.variables) == (damaged, 1)
    assert found(check(tmp_path, "quick")) == found(report)


def test_slice_mismatch_of_a_part(tmp_path: Path) -> None:
    partitioned(tmp_path, {0: {"shape": (4,)}})
    assert found(check(tmp_path)) == [("error", "slice-mismatch")]


def test_a_variable_whose_name_begins_with_nul_is_no_part(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {b"\0odd": {"shape": (2,), "size": 8}}, [EIGHT])
    report = check(tmp_path)
    assert (report.findings, report.variables) == ((), 1)


# The index ----------------------------------------------------------------------------


def many(folder: Path) -> Path:
    """Ninety variables in an index of several blocks."""
    entries: dict[bytes, EntryFields | bytes] = {
        b"%03d" % number: {"shape": (2,), "offset": 8 * number, "size": 8} for number in range(90)
    }
    write_bundle(folder, "m", entries, [EIGHT * 90], block_size=256)
    return folder / "m.index"


@pytest.mark.parametrize(("at", "header_lost"), [(10, True), (700, False)])
def test_one_bad_block_does_not_hide_the_others(tmp_path: Path, at: int, header_lost: bool) -> None:
    index = many(tmp_path)
    data = bytearray(index.read_bytes())
    data[at] ^= 1
    index.write_bytes(data)
    report = check(tmp_path)
    finding = only(report)
    assert (finding.id, finding.object) == ("block-checksum", str(index))
    assert ("block 1 " in finding.message) == header_lost
    assert 70 < report.variables < 90
    assert report.nbytes == 8 * report.variables
    assert report.not_checked[0].object == str(index)


def test_index_missing(tmp_path: Path) -> None:
    many(tmp_path).unlink()
    report = check(tmp_path)
    assert found(report) == [("error", "index-missing")]
    assert report.not_checked[0].nbytes == 720


def test_footer_padding(tmp_path: Path) -> None:
    index = many(tmp_path)
    data = bytearray(index.read_bytes())
    data[-10] = 1
    index.write_bytes(data)
    assert found(check(tmp_path)) == [("error", "footer-padding")]


def test_what_is_no_index_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.index").write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(ForeignFormatError):
        check(tmp_path)


def test_what_cannot_be_judged_is_an_error(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", two(), [EIGHT * 2], head=handmade.header(1, min_consumer=2))
    with pytest.raises(UnsupportedError):
        check(tmp_path)
    write_bundle(tmp_path, "m", two(), [EIGHT * 2])
    with pytest.raises(LimitError):
        check(tmp_path, limits=Limits(entries=1))
    with pytest.raises(LimitError):
        check(sharded(tmp_path)[0].parent, limits=Limits(shards=2))


# The object graph -----------------------------------------------------------------------

GRAPH = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def with_graph(folder: Path, graph: bytes, *names: bytes) -> None:
    stored, crc = handmade.string_payload([graph])
    entries: dict[bytes, EntryFields | bytes] = {
        GRAPH: {"dtype": STRING, "size": len(stored), "crc": crc}
    }
    data = stored
    for name in names:
        entries[name] = {"shape": (2,), "offset": len(data), "size": 8}
        data += EIGHT
    write_bundle(folder, "m", entries, [data])


def node(*keys: bytes, children: tuple[int, ...] = ()) -> bytes:
    message = handmade._message
    edges = (message(1, handmade._field(1, 0, handmade.varint(child))) for child in children)
    attributes = (message(2, message(1, b"VARIABLE_VALUE") + message(3, key)) for key in keys)
    return message(1, b"".join([*edges, *attributes]))


def test_an_object_graph_that_fits(tmp_path: Path) -> None:
    with_graph(tmp_path, node(children=(1,)) + node(b"a", b"b", children=(0,)), b"a", b"b")
    assert check(tmp_path).findings == ()


def test_keys_of_the_object_graph_and_of_the_index(tmp_path: Path) -> None:
    with_graph(tmp_path, node(b"a", b"gone"), b"a", b"strange")
    report = check(tmp_path, "quick")
    assert found(report) == [
        ("error", "object-graph-key-missing"),
        ("note", "object-graph-key-unknown"),
    ]
    assert report.findings[0].object == "gone"
    assert "strange" in report.findings[1].message


@pytest.mark.parametrize("graph", [b"\xff", node(children=(7,)), b"\x0a\x7f"])
def test_a_malformed_object_graph(tmp_path: Path, graph: bytes) -> None:
    with_graph(tmp_path, graph, b"a")
    assert found(check(tmp_path)) == [("error", "object-graph-malformed")]


def test_an_object_graph_that_is_no_string(tmp_path: Path) -> None:
    write_bundle(tmp_path, "m", {GRAPH: {"shape": (2,), "size": 8}}, [EIGHT])
    assert found(check(tmp_path)) == [("error", "object-graph-malformed")]


def test_an_object_graph_with_a_wrong_checksum_is_told_once(tmp_path: Path) -> None:
    stored, _ = handmade.string_payload([node(b"a")])
    entries: dict[bytes, EntryFields | bytes] = {
        GRAPH: {"dtype": STRING, "size": len(stored), "crc": 5}
    }
    write_bundle(tmp_path, "m", entries, [stored])
    report = check(tmp_path)
    assert found(report) == [("error", "checksum-mismatch")]
    assert [skipped.object for skipped in report.not_checked] == [GRAPH.decode()]


@pytest.mark.parametrize(
    ("limits", "id"),
    [
        (Limits(object_graph_bytes=10), "limit-object-graph-bytes"),
        (Limits(object_graph_nodes=1), "object-graph-too-large"),
    ],
)
def test_an_object_graph_over_a_limit_does_not_hide_the_rest(
    tmp_path: Path, limits: Limits, id: str
) -> None:
    with_graph(tmp_path, node(b"a") * 3, b"a")
    report = check(tmp_path, limits=limits)
    assert found(report) == [("warning", id)]
    assert (report.variables, len(report.not_checked)) == (2, 1)
