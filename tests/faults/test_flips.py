"""Truncation at every byte, and every single bit flipped: of an index and of a data file.

There is no padding whose change goes unnoticed: the unused bytes of the footer have to be
zero, every block has a checksum, and every byte of the data file belongs to a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError
from ckpttool.limits import Limits
from ckpttool.ops.verification.bundle import BundleReport, Level, check_bundle
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from ckpttool.storage import open_directory
from tests.faults.small import write_small

LIMITS = Limits()


def flips(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Every (byte, bit, data with that bit flipped)."""
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            yield at, bit, bytes(changed)


def check(folder: Path, level: Level = "deep") -> BundleReport | CkpttoolError:
    """The report of `verify`, or the error it raises; nothing else may come out."""
    with open_directory(str(folder)) as directory:
        try:
            return check_bundle(directory, "m", level=level, jobs=1, limits=LIMITS, progress=None)
        except CkpttoolError as error:
            return error


def notices(answer: BundleReport | CkpttoolError) -> bool:
    """Whether an answer says that something is wrong."""
    return isinstance(answer, CkpttoolError) or answer.damaged


def read_everything(folder: Path) -> None:
    """List and read the checkpoint; only errors of ours may come out."""
    try:
        with open_source(str(folder / "m"), LIMITS) as source:
            for variable in source.variables():
                try:
                    if variable.shape is None:
                        continue
                    everything = Selection.whole(variable.shape)
                    if variable.dtype == "string":
                        source.strings(variable, everything)
                    else:
                        for _ in source.chunks(variable, everything):
                            pass
                except CkpttoolError:
                    pass
    except CkpttoolError:
        pass


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_small(tmp_path)
    answer = check(tmp_path)
    assert isinstance(answer, BundleReport)
    assert (answer.damaged, answer.findings, answer.not_checked) == (False, (), ())
    return tmp_path


@pytest.mark.parametrize("level", ["quick", "deep"])
def test_every_flip_of_an_index_is_found(small: Path, level: Level) -> None:
    index = small / "m.index"
    whole = index.read_bytes()
    unnoticed = []
    for at, bit, changed in flips(whole):
        index.write_bytes(changed)
        if not notices(check(small, level)):
            unnoticed.append((at - len(whole), bit))
    assert unnoticed == []


def test_no_flip_of_an_index_breaks_a_reader(small: Path) -> None:
    index = small / "m.index"
    for _, _, changed in flips(index.read_bytes()):
        index.write_bytes(changed)
        read_everything(small)


def test_every_flip_of_a_data_file_is_found_and_by_one_variable(small: Path) -> None:
    shard = small / "m.data-00000-of-00001"
    wrong = []
    for at, bit, changed in flips(shard.read_bytes()):
        shard.write_bytes(changed)
        answer = check(small)
        assert isinstance(answer, BundleReport)
        if len({finding.object for finding in answer.findings}) != 1 or not answer.damaged:
            wrong.append((at, bit, answer.findings))
    assert wrong == []


def test_every_truncation_of_an_index_is_found(small: Path) -> None:
    index = small / "m.index"
    whole = index.read_bytes()
    for size in range(len(whole)):
        index.write_bytes(whole[:size])
        assert notices(check(small, "quick")), size
        read_everything(small)


def test_every_truncation_of_a_data_file_is_found_without_reading_it(small: Path) -> None:
    shard = small / "m.data-00000-of-00001"
    whole = shard.read_bytes()
    for size in range(len(whole)):
        shard.write_bytes(whole[:size])
        assert notices(check(small, "quick")), size
        read_everything(small)


@pytest.mark.parametrize("name", ["m.index", "m.data-00000-of-00001"])
def test_bytes_put_in_or_taken_out_are_found(small: Path, name: str) -> None:
    path = small / name
    whole = path.read_bytes()
    for at in range(len(whole)):
        for changed in (whole[:at] + b"\r" + whole[at:], whole[:at] + whole[at + 1 :]):
            path.write_bytes(changed)
            answer = check(small)
            # A byte between two blocks does not harm anything, and is told as a warning.
            assert isinstance(answer, CkpttoolError) or answer.findings, (at, len(changed))


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=9)), min_size=1, max_size=6
    ),
    reframe=st.booleans(),
)
def test_random_damage_gives_an_answer(
    small: Path, changes: list[tuple[int, bytes]], reframe: bool
) -> None:
    """Also where the checksums of the blocks were made to fit, so that parsers see it."""
    index = small / "m.index"
    write_small(small)
    data = bytearray(index.read_bytes())
    footer = len(data) - 48
    for place, patch in changes:
        at = place % footer
        data[at : at + len(patch)] = patch[: footer - at]
    index.write_bytes(refit(bytes(data), index.read_bytes()) if reframe else bytes(data))
    check(small)
    read_everything(small)


def refit(damaged: bytes, whole: bytes) -> bytes:
    """Give each block of a damaged index the checksum of what is in it now."""
    from ckpttool.formats.sstable import Table
    from tests.support.handmade import masked_crc
    from tests.support.memory_file import MemoryFile

    table = Table(MemoryFile(whole), LIMITS)
    out = bytearray(damaged)
    for handle in table._handles:
        end = handle.offset + handle.size + 1
        out[end : end + 4] = masked_crc(bytes(out[handle.offset : end])).to_bytes(4, "little")
    return bytes(out)
