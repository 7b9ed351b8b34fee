"""V1 checkpoints by hand: any message, any table, for what no TensorFlow writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ckpttool.formats.crc32c import crc, mask
from ckpttool.formats.ordered_code import encode_slice_key
from ckpttool.formats.sstable import MAGIC
from ckpttool.formats.table_writer import TableWriter
from ckpttool.formats.wire import encode_field, encode_varint

__all__ = [
    "FULL",
    "block",
    "dims",
    "entry",
    "header",
    "meta",
    "number",
    "packed",
    "table",
    "table_of_blocks",
    "v1_file",
]

#: A dimension of which everything is in a slice, as TensorFlow spells it.
FULL = (0, -1)

Spec = Sequence[tuple[int, int]]


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return encode_varint(field << 3) + encode_varint(value % 2**64)


def packed(field: int, values: Iterable[int]) -> bytes:
    """A packed field of varints."""
    return encode_field(field, b"".join(encode_varint(value % 2**64) for value in values))


def dims(spec: Spec) -> bytes:
    """A TensorSliceProto."""
    return b"".join(
        encode_field(
            1, (number(1, start) if start else b"") + (number(2, length) if length >= 0 else b"")
        )
        for start, length in spec
    )


def meta(name: bytes, dtype: int, shape: Sequence[int], slices: Sequence[Spec]) -> bytes:
    """A SavedSliceMeta."""
    sizes = b"".join(encode_field(2, number(1, size)) for size in shape)
    places = b"".join(encode_field(4, dims(spec)) for spec in slices)
    return encode_field(1, name) + encode_field(2, sizes) + number(3, dtype) + places


def entry(name: bytes, spec: Spec, tensor: bytes) -> tuple[bytes, bytes]:
    """A data entry: its key and its message, with ``tensor`` as the TensorProto."""
    saved = encode_field(1, name) + encode_field(2, dims(spec)) + encode_field(3, tensor)
    return encode_slice_key(name, spec), encode_field(2, saved)


def header(metas: Iterable[bytes], versions: bytes) -> bytes:
    """The message of the empty key."""
    tensors = b"".join(encode_field(1, one) for one in metas)
    return encode_field(1, tensors + encode_field(2, versions))


def table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A table of these entries, in the order of their keys."""
    written = bytearray()
    writer = TableWriter(written.extend)
    for key, value in sorted(entries):
        writer.add(key, value)
    writer.finish()
    return bytes(written)


def v1_file(
    metas: Iterable[bytes],
    entries: Iterable[tuple[bytes, bytes]],
    path: Path | None = None,
    *,
    versions: bytes = b"\x08\x01",
) -> bytes:
    """A file of a V1 checkpoint; written where a path is given."""
    data = table([(b"", header(metas, versions)), *entries])
    if path is not None:
        path.write_bytes(data)
    return data


def block(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The bytes of a block without prefix compression: one restart point."""
    rows = b"".join(
        b"\0" + encode_varint(len(key)) + encode_varint(len(value)) + key + value
        for key, value in entries
    )
    return rows + bytes(4) + (1).to_bytes(4, "little")


def table_of_blocks(blocks: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """A table of given blocks: contents as stored, last key, compression type."""
    data = bytearray()

    def put(contents: bytes, kind: int) -> bytes:
        handle = encode_varint(len(data)) + encode_varint(len(contents))
        data.extend(contents + bytes((kind,)))
        data.extend(mask(crc(contents + bytes((kind,)))).to_bytes(4, "little"))
        return handle

    index = [(last, put(contents, kind)) for contents, last, kind in blocks]
    metaindex = put(bytes(4) + (1).to_bytes(4, "little"), 0)
    footer = metaindex + put(block(index), 0)
    return bytes(data) + footer.ljust(40, b"\0") + MAGIC
