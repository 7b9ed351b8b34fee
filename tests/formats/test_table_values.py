"""Values of tables that are larger than one wants to hold."""

from __future__ import annotations

import random

import cramjam
import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.formats.table_values import TableValues
from ckpttool.formats.wire import encode_varint
from ckpttool.limits import Limits
from tests.support.memory_file import MemoryFile
from tests.support.v1_files import block, table, table_of_blocks

LARGE = random.Random(1).randbytes(3 * 2**20)


def values(data: bytes, limits: Limits | None = None) -> tuple[TableValues, MemoryFile]:
    file = MemoryFile(data, "file")
    return TableValues(file, limits or Limits()), file


def failure(found: TableValues, key: bytes, *, check: bool = True) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        found.find(key, check=check)
    return caught.value


def test_small_and_large_values_as_they_are_written() -> None:
    """TensorFlow gives a large entry a block of its own."""
    stored = {b"": b"meta", b"a": b"1", b"b": LARGE, b"c": b"2"}
    found, _ = values(table(stored.items()))
    for key, value in stored.items():
        place = found.find(key, check=True)
        assert place is not None
        assert place.read() == value
        assert place.size == len(value)
        assert (place.source.file is not None) == (key == b"b")
    for key in (b"0", b"aa", b"bb", b"d"):
        assert found.find(key, check=True) is None


def test_a_large_value_behind_small_ones() -> None:
    """Writers of 2016 began no new block for it; to list what there is reads the small ones."""
    entries = [(b"", b"meta"), (b"a", b"1"), (b"b", LARGE), (b"c", b"2")]
    found, file = values(table_of_blocks([(block(entries), b"c", 0)]))
    before = file.reads
    place = found.find(b"", check=False)
    assert place is not None
    assert place.read() == b"meta"
    assert file.reads - before < 5
    for key, value in entries:
        place = found.find(key, check=True)
        assert place is not None
        assert place.read() == value
    assert found.find(b"aa", check=True) is None
    assert found.find(b"bb", check=True) is None


def test_a_compressed_block_is_expanded() -> None:
    text = b"all work and no play " * 200_000
    entries = block([(b"", b"meta"), (b"a", text)])
    packed = bytes(cramjam.snappy.compress_raw(entries))
    incompressible = block([(b"b", LARGE)])
    stored = bytes(cramjam.snappy.compress_raw(incompressible))
    data = table_of_blocks([(packed, b"a", 1), (stored, b"b", 1)])
    found, _ = values(data)
    for key, value in ((b"", b"meta"), (b"a", text), (b"b", LARGE)):
        place = found.find(key, check=True)
        assert place is not None
        assert place.read() == value
    small, _ = values(data, Limits(v1_decoded_bytes=2**20, block_bytes=2**21))
    assert failure(small, b"b").id == "limit-block"


def test_damage_in_a_large_block_is_found_where_it_is_asked_for() -> None:
    data = bytearray(table([(b"", b""), (b"b", LARGE)]))
    data[2**20] ^= 1
    found, _ = values(bytes(data))
    assert found.find(b"b", check=False) is not None
    error = failure(found, b"b")
    assert (error.id, error.exit_code) == ("block-checksum", 20)
    assert failure(found, b"b").id == "block-checksum"


def test_a_large_block_is_summed_up_once() -> None:
    found, file = values(table([(b"", b""), (b"b", LARGE)]))
    assert found.find(b"b", check=True) is not None
    before = file.reads
    assert found.find(b"b", check=True) is not None
    assert file.reads - before < 5
    for handle in found.table.handles:
        assert sum(map(len, found.pieces(handle))) == handle.size + 1


@pytest.mark.parametrize(
    ("contents", "id"),
    [
        (block([(b"b", b""), (b"a", LARGE)]), "block-malformed"),  # out of order
        (b"\x05\x01\0" + LARGE, "block-malformed"),  # shares a key with nothing
        (b"\xff" * 12 + LARGE, "block-malformed"),
        (b"\0" + encode_varint(2**31) + b"\0" + LARGE, "limit-keys"),
        (b"\0\x01" + encode_varint(2**40) + b"b" + LARGE, "block-malformed"),
        (LARGE + b"\xff\xff\xff\x7f", "block-malformed"),  # restart points
        (b"".join(b"\x01\x01\0" + bytes((n,)) for n in range(200)) + LARGE, "block-malformed"),
    ],
)
def test_malformed_large_blocks(contents: bytes, id: str) -> None:
    found, _ = values(table_of_blocks([(contents + bytes(4) + b"\1\0\0\0", b"z", 0)]))
    error = failure(found, b"z")
    assert error.id == id
    assert "file" in error.what


def test_entries_of_a_large_block_are_bounded() -> None:
    entries = [(b"%06d" % n, b"") for n in range(2000)]
    data = table_of_blocks([(block([*entries, (b"b", LARGE)]), b"b", 0)])
    found, _ = values(data, Limits(entries=1000))
    assert failure(found, b"b").id == "limit-entries"
