"""The index writer against TensorFlow's: the same entries give the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CorruptError
from ckpttool.formats import bundle_writer
from ckpttool.formats.bundle import BundleIndex, Entry, SliceSpec
from ckpttool.formats.bundle_writer import encode_entry, encode_header, patch_entry, patch_header
from ckpttool.formats.ordered_code import FULL
from ckpttool.formats.sstable import Table
from ckpttool.formats.table_writer import TableWriter
from ckpttool.limits import Limits
from ckpttool.storage import open_directory
from tests.support.tf_write import write_name_based, write_sharded, write_slices


def read_items(path: Path) -> list[tuple[bytes, bytes]]:
    with open_directory(str(path.parent)) as directory:
        file = directory.open(path.name)
        items = [item for block in Table(file, Limits()).blocks() for item in block]
        file.close()
    return items


def read_entries(path: Path) -> list[Entry]:
    with open_directory(str(path.parent)) as directory:
        file = directory.open(path.name)
        entries = list(BundleIndex(file, Limits()).entries())
        file.close()
    return entries


def write_table(items: list[tuple[bytes, bytes]]) -> bytes:
    pieces: list[bytes] = []
    writer = TableWriter(pieces.append)
    for key, value in items:
        writer.add(key, value)
    size = writer.finish()
    table = b"".join(pieces)
    assert size == len(table)
    return table


def encoded_anew(entry: Entry) -> bytes:
    return encode_entry(
        entry.dtype,
        entry.shape,
        shard=entry.shard,
        offset=entry.offset,
        size=entry.size,
        crc32c=entry.crc32c,
        slices=entry.slices,
    )


@pytest.fixture(scope="module")
def tensorflow_indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Index files of TensorFlow's own, of every layout that it can write."""
    tf = pytest.importorskip("tensorflow")
    folder = tmp_path_factory.mktemp("written")
    every_dtype = {
        dtype.name: tf.cast(tf.zeros([3, 2]), dtype)
        for dtype in (
            tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64,
            tf.uint8, tf.uint16, tf.uint32, tf.uint64, tf.bool, tf.complex64, tf.complex128,
        )
    }  # fmt: skip
    shapes = {f"s{n}": tf.zeros([n] * n) for n in range(4)} | {
        "empty": tf.zeros([3, 0]),
        "text": tf.constant([b"", b"x" * 200]),
        "no text": tf.zeros([0], tf.string),
    }
    wave = {f"layer_{n:06d}/{'kernel' if n % 3 else 'a' * (n % 300)}": n for n in range(20_000)}
    wide = {f"{'k' * 600_000}{n}": n for n in range(3)} | {"a": 1, "z": 2}
    write_name_based(folder / "dtypes", every_dtype)
    write_name_based(folder / "shapes", shapes)
    write_name_based(folder / "blocks", wave)
    write_name_based(folder / "wide", wide)
    write_name_based(folder / "odd", {b"\xff\xff": 1, b"\x00": 2, b"\x00a": 3, b"\xff": 4})
    write_sharded(folder / "sharded", [{"a": 1, "c": [1.0, 2.0]}, {"b": [3]}, {"d": "x"}])
    rows = tf.reshape(tf.range(12.0), [6, 2])
    parts = [
        ((0, 0), (2, 2), rows[:2]),
        ((2, 0), (4, 1), rows[2:, :1]),
        ((2, 1), (4, 1), rows[2:, 1:]),
    ]
    write_slices(folder / "slices", "emb", [6, 2], parts, {"bias": rows})
    return {path.stem: path for path in folder.glob("*.index")}


NAMES = ["dtypes", "shapes", "blocks", "wide", "odd", "sharded", "slices"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_items_give_the_same_table(tensorflow_indexes, name):
    path = tensorflow_indexes[name]
    assert write_table(read_items(path)) == path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_entries_give_the_same_messages(tensorflow_indexes, name):
    for entry in read_entries(tensorflow_indexes[name]):
        assert encoded_anew(entry) == entry.raw, entry
        again = patch_entry(entry.raw, shard=entry.shard, offset=entry.offset)
        assert again == entry.raw, entry


@pytest.mark.parametrize("name", NAMES)
def test_the_same_header(tensorflow_indexes, name):
    key, raw = read_items(tensorflow_indexes[name])[0]
    shards = 3 if name == "sharded" else 1
    assert key == b""
    assert encode_header(shards) == raw
    assert patch_header(raw, shards) == raw
    assert patch_header(raw, 7) == encode_header(7)


def test_blocks_really_are_several(tensorflow_indexes):
    with open_directory(str(tensorflow_indexes["blocks"].parent)) as directory:
        assert Table(directory.open("blocks.index"), Limits()).block_count > 3


def test_patching_keeps_fields_it_does_not_know():
    known = encode_entry(1, (2,), shard=3, offset=40, size=8, crc32c=5)
    unknown = b"\xf8\x07\x01" + b"\xfa\x07\x02hi" + b"\xfd\x07abcd" + b"\xf9\x07abcdefgh"
    patched = patch_entry(known + unknown, shard=0, offset=7, size=8, crc32c=6)
    assert patched == encode_entry(1, (2,), offset=7, size=8, crc32c=6) + unknown


def test_a_part_may_be_spelled_either_way():
    spec = SliceSpec((0, 3, 0), (FULL, 4, 0))
    raw = encode_entry(1, (9, 9, 9), slices=[spec])
    with_zero_length = b"\x0a\x02\x10\x00"
    assert raw.endswith(with_zero_length)
    assert b"\x0a\x00" in raw  # the whole dimension is an empty message


def test_keys_have_to_rise():
    writer = TableWriter(lambda _: None)
    writer.add(b"b", b"")
    for key in (b"b", b"a", b""):
        with pytest.raises(ValueError, match="does not sort"):
            writer.add(key, b"")


def test_a_table_of_nothing_is_a_table(tmp_path):
    (tmp_path / "t").write_bytes(write_table([]))
    assert read_items(tmp_path / "t") == []


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=300), max_size=60))
def test_what_is_written_is_read_back(tmp_path_factory, entries):
    path = tmp_path_factory.mktemp("t") / "t"
    items = sorted(entries.items())
    path.write_bytes(write_table(items))
    assert read_items(path) == items


@given(
    raw=st.one_of(
        st.binary(max_size=40),
        st.builds(
            encode_entry,
            st.integers(0, 200),
            st.lists(st.integers(0, 2**40), max_size=12).map(tuple),
            shard=st.integers(0, 99_999),
            offset=st.integers(0, 2**50),
            size=st.integers(0, 2**50),
            crc32c=st.none() | st.integers(0, 2**32 - 1),
        ),
    ),
    extra=st.binary(max_size=12),
    place=st.tuples(st.integers(0, 99_999), st.integers(0, 2**40)),
    size=st.none() | st.integers(0, 2**40),
    crc32c=st.none() | st.integers(1, 2**32 - 1),
)
def test_the_quick_way_to_patch_gives_the_same(raw, extra, place, size, crc32c):
    """An entry as TensorFlow spells it is cut at two places; any other is taken apart."""
    shard, offset = place

    def outcome() -> bytes | str:
        try:
            return patch_entry(raw + extra, shard=shard, offset=offset, size=size, crc32c=crc32c)
        except CorruptError as error:
            return str(error)

    quick = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle_writer, "_PLACE", re.compile(b"(?!)"))
        assert outcome() == quick
