"""Bundles that TensorFlow wrote: every entry, payload and key as it has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpttool.formats import crc32c
from ckpttool.formats.bundle import BundleIndex, Entry
from ckpttool.formats.dtypes import BY_NUMBER, STRING, VARIANT, numpy_dtype
from ckpttool.formats.ordered_code import decode_slice_key
from ckpttool.formats.tensor_bytes import read_strings, string_checksum, variant_checksum
from ckpttool.limits import Limits
from ckpttool.model import numel
from ckpttool.storage import open_directory
from ckpttool.storage.local_files import LocalFile
from tests.support import tf_write

tf = pytest.importorskip("tensorflow")

STORED = [dtype for dtype in BY_NUMBER.values() if dtype.size]
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
NAMES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.text("ab/_", min_size=1, max_size=30).map(str.encode),
    st.sampled_from([b"k" * 300, "é".encode(), b"\x00\x01", b"\xff", b"tab\t"]),
)
NUMBERS = st.sampled_from([dtype.number for dtype in STORED])
TENSORS = st.tuples(NUMBERS, SHAPES, st.binary(max_size=4))
STRINGS = st.one_of(st.binary(max_size=4), st.binary(min_size=120, max_size=200))
CUTS = st.lists(st.integers(1, 70), min_size=1, max_size=3)
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Written:
    """A bundle on disk: its entries by key, and the bytes that they name."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self.directory = open_directory(str(directory))
        self.prefix = prefix
        self.index = BundleIndex(self.directory.open(f"{prefix}.index"), Limits())
        self.entries = {entry.key: entry for entry in self.index.entries()}

    def shard(self, entry: Entry) -> LocalFile:
        shards = self.index.header.num_shards
        return self.directory.open(f"{self.prefix}.data-{entry.shard:05d}-of-{shards:05d}")

    def data(self, entry: Entry) -> bytes:
        return self.shard(entry).pread(entry.offset, entry.size)


def elements(number: int, shape: tuple[int, ...], seed: bytes) -> bytes:
    """Bytes of a tensor: any, but only bits that an element of the type may have."""
    dtype = BY_NUMBER[number]
    size = dtype.size * numel(shape)
    data = (seed or b"\x01") * (size + 1)
    low = {"bool": 1, "int2": 3, "uint2": 3, "int4": 15, "uint4": 15, "float4_e2m1fn": 15}
    return bytes(byte & low.get(dtype.name, 255) for byte in data[:size])


def tensor(number: int, shape: tuple[int, ...], data: bytes) -> Any:
    """A tensor of these very bytes; TensorFlow casts to few of the newer types."""
    proto = tf.make_tensor_proto(0, tf.uint8, shape)
    proto.ClearField("int_val")
    proto.dtype = number
    proto.tensor_content = data
    return tf.io.parse_tensor(proto.SerializeToString(), number)


@QUICK
@given(st.dictionaries(NAMES, TENSORS, min_size=1, max_size=12))
def test_random_bundles(
    tmp_path: Path, tensors: dict[bytes, tuple[int, tuple[int, ...], bytes]]
) -> None:
    payloads = {key: elements(*spec) for key, spec in tensors.items()}
    made = {key: tensor(*tensors[key][:2], payloads[key]) for key in tensors}
    tf_write.write_name_based(tmp_path / "m", made)
    found = Written(tmp_path, "m")
    assert (found.index.header.num_shards, found.index.header.big_endian) == (1, False)
    assert list(found.entries) == sorted(tensors)
    for key, (number, shape, _) in tensors.items():
        entry = found.entries[key]
        assert (entry.dtype, entry.shape, entry.slices) == (number, shape, ())
        assert found.data(entry) == payloads[key]
        assert entry.crc32c == crc32c.mask(crc32c.crc(payloads[key]))
        assert found.index.get(key) == entry


def test_every_dtype_that_tensorflow_stores(tmp_path: Path) -> None:
    for dtype in STORED:
        data = elements(dtype.number, (2, 3), b"\x05\x9a\x41")
        written = tensor(dtype.number, (2, 3), data)
        tf_write.write_name_based(tmp_path / dtype.name, {"w": written})
        found = Written(tmp_path, dtype.name)
        entry = found.entries[b"w"]
        assert (entry.dtype, entry.shape, entry.size) == (dtype.number, (2, 3), len(data))
        assert found.data(entry) == data
        if not dtype.name.startswith(("int2", "int4")):  # the sign is in other bits there
            read = written.numpy()
            assert read.dtype.itemsize == dtype.size
            assert read.tobytes() == data
            assert numpy_dtype(dtype.name) == read.dtype


@QUICK
@given(st.lists(STRINGS, max_size=9))
def test_strings(tmp_path: Path, values: list[bytes]) -> None:
    tf_write.write_name_based(tmp_path / "m", {"s": tf.constant(values, tf.string)})
    found = Written(tmp_path, "m")
    entry = found.entries[b"s"]
    assert entry.dtype == STRING
    place = (found.shard(entry), entry.offset, entry.size, len(values))
    assert read_strings(*place) == (values, entry.crc32c)
    assert string_checksum(*place) == entry.crc32c


def test_variants(tmp_path: Path) -> None:
    lists = [
        tf.raw_ops.TensorListReserve(element_shape=[2], num_elements=n, element_dtype=1)
        for n in (1, 3)
    ]
    tf_write.write_name_based(tmp_path / "m", {"v": tf.stack(lists)})
    found = Written(tmp_path, "m")
    entry = found.entries[b"v"]
    assert (entry.dtype, entry.shape) == (VARIANT, (2,))
    assert variant_checksum(found.shard(entry), entry.offset, entry.size, 2) == entry.crc32c


@st.composite
def grids(draw: st.DrawFn) -> tuple[bytes, tuple[int, ...], list[tuple[tuple[int, int], ...]]]:
    """A name, a shape, and parts that cover it: a grid."""
    name = draw(st.sampled_from([b"w", b"a/b", b"\x00x", b"\xffy\x00", b"n" * 70]))
    cuts = draw(st.lists(CUTS, min_size=1, max_size=3))
    shape = tuple(map(sum, cuts))
    parts: list[tuple[tuple[int, int], ...]] = [()]
    for axis in cuts:
        starts = [sum(axis[:number]) for number in range(len(axis))]
        parts = [
            (*part, (start, length))
            for part in parts
            for start, length in zip(starts, axis, strict=True)
        ]
    return name, shape, draw(st.permutations(parts))


@QUICK
@given(grids())
def test_parts_of_partitioned_variables(
    tmp_path: Path, grid: tuple[bytes, tuple[int, ...], list[tuple[tuple[int, int], ...]]]
) -> None:
    name, shape, parts = grid
    spec = " ".join(map(str, shape))
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "m"),
        tensor_names=tf.constant([name] * len(parts)),
        shape_and_slices=tf.constant(
            [f"{spec} " + ":".join(f"{start},{length}" for start, length in part) for part in parts]
        ),
        tensors=[
            tf.fill([length for _, length in part], tf.constant(number, tf.uint8))
            for number, part in enumerate(parts)
        ],
    )
    found = Written(tmp_path, "m")
    owner = found.entries[name]
    assert owner.shape == shape
    if len(parts) == 1:
        assert owner.slices == ()  # all of it in one part is no partition
        return
    assert len(found.entries) == len(parts) + 1
    for number, (part, stored) in enumerate(zip(parts, owner.slices, strict=True)):
        lengths = tuple(length for _, length in part)
        assert stored.start == tuple(start for start, _ in part)
        assert stored.extent(shape) == lengths
        key = stored.key(name)
        assert decode_slice_key(key) == (name, list(zip(stored.start, stored.length, strict=True)))
        entry = found.entries[key]
        assert entry.shape == lengths
        assert found.data(entry) == bytes([number]) * numel(lengths)


def test_several_shards_with_a_merge(tmp_path: Path) -> None:
    shards = [
        {f"v{number}/{shard}": tf.fill([4], shard) for number in range(3)} for shard in range(4)
    ]
    tf_write.write_sharded(tmp_path / "m", shards)
    found = Written(tmp_path, "m")
    assert found.index.header.num_shards == 4
    for key, entry in found.entries.items():
        assert entry.shard == int(key[-1:])
        assert found.data(entry) == entry.shard.to_bytes(4, "little") * 4


def test_an_index_of_many_blocks(tmp_path: Path) -> None:
    names = [f"encoder/layer_{number:05d}/kernel" for number in range(12_000)]
    tf_write.write_name_based(tmp_path / "m", dict.fromkeys(names, tf.zeros([2])))
    found = Written(tmp_path, "m")
    assert found.index.table.block_count > 1
    assert found.index.table.padding_clean
    assert [key.decode() for key in found.entries] == names
    assert all(found.index.get(name.encode()) is not None for name in names[::997])
