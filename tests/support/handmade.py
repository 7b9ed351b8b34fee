r"""Builds table files and bundle indexes from raw pieces, right or wrong as asked.

Written apart from ckpttool's own code, so that a test never compares that code with
itself, and checks nothing: keys may be unsorted, sizes may lie, any byte may be wrong.

    table = build_table([(b"", header()), (b"w", entry(shape=(2,), size=8))])
    write_bundle(tmp_path, "m", {b"w": {"shape": (2,), "size": 8}}, [b"\0" * 8])
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import cramjam
import google_crc32c

__all__ = [
    "MAGIC",
    "EntryFields",
    "block",
    "build_table",
    "entry",
    "footer",
    "frame",
    "handle",
    "header",
    "masked_crc",
    "slice_key",
    "string_payload",
    "varint",
    "write_bundle",
]

MAGIC = 0xDB4775248B80FB57

#: One dimension of a slice: start and extent; an extent of None is not written ("all").
Dim = tuple[int, int | None]
Slice = Sequence[Dim]


class EntryFields(TypedDict, total=False):
    """The keyword arguments of `entry`, as `write_bundle` takes them."""

    dtype: int
    shape: Sequence[int] | None
    shard: int
    offset: int
    size: int
    crc: int | None
    slices: Sequence[Slice]
    extra: bytes


def varint(value: int) -> bytes:
    """A protobuf varint; a negative number becomes its 64-bit two's complement."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def masked_crc(data: bytes) -> int:
    """CRC32C as TensorFlow stores it: rotated right by 15, plus a constant."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _field(number: int, wire_type: int, payload: bytes) -> bytes:
    return varint(number << 3 | wire_type) + payload


def _int(number: int, value: int) -> bytes:
    return _field(number, 0, varint(value)) if value else b""


def _message(number: int, payload: bytes) -> bytes:
    return _field(number, 2, varint(len(payload)) + payload)


# Tables -----------------------------------------------------------------------------


def block(items: Iterable[tuple[bytes, bytes]], restart_interval: int = 16) -> bytes:
    """A block's contents: prefix-compressed entries, restart offsets, their count."""
    out = bytearray()
    restarts: list[int] = []
    last = b""
    for number, (key, value) in enumerate(items):
        shared = 0
        if number % restart_interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value))
        out += key[shared:] + value
        last = key
    offsets = restarts or [0]
    return bytes(out) + struct.pack(f"<{len(offsets) + 1}I", *offsets, len(offsets))


def frame(contents: bytes, *, kind: int = 0, crc: int | None = None) -> bytes:
    """A block as it lies in the file: contents, type byte (0 plain, 1 snappy), crc."""
    tail = bytes([kind])
    return contents + tail + struct.pack("<I", masked_crc(contents + tail) if crc is None else crc)


def handle(offset: int, size: int) -> bytes:
    """A block handle; ``size`` leaves out the five bytes of type and crc."""
    return varint(offset) + varint(size)


def footer(metaindex: bytes, index: bytes, magic: int = MAGIC) -> bytes:
    """The last 48 bytes: two handles, zeros, magic number."""
    return (metaindex + index).ljust(40, b"\0")[:40] + struct.pack("<Q", magic)


def build_table(
    items: Iterable[tuple[bytes, bytes]],
    *,
    block_size: int = 262144,
    restart_interval: int = 16,
    snappy: bool = False,
    footer_magic: int = MAGIC,
) -> bytes:
    """A table file of these entries, in the order given, sorted or not."""
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []

    def add(contents: bytes) -> bytes:
        stored = bytes(cramjam.snappy.compress_raw(contents)) if snappy else contents
        place = handle(len(out), len(stored))
        out.extend(frame(stored, kind=int(snappy)))
        return place

    pending: list[tuple[bytes, bytes]] = []
    pending_bytes = 0
    for key, value in items:
        pending.append((key, value))
        pending_bytes += len(key) + len(value) + 3
        if pending_bytes >= block_size:
            index.append((key, add(block(pending, restart_interval))))
            pending, pending_bytes = [], 0
    if pending:
        index.append((pending[-1][0], add(block(pending, restart_interval))))
    metaindex = add(block([]))
    index_handle = add(block(index, 1))
    return bytes(out) + footer(metaindex, index_handle, footer_magic)


# Bundles ----------------------------------------------------------------------------


def header(
    num_shards: int = 1,
    *,
    big_endian: bool = False,
    producer: int = 1,
    min_consumer: int = 0,
    bad_consumers: Sequence[int] = (),
    extra: bytes = b"",
) -> bytes:
    """BundleHeaderProto, the value of the empty key."""
    versions = _int(1, producer) + _int(2, min_consumer)
    versions += b"".join(_field(3, 0, varint(number)) for number in bad_consumers)
    return _int(1, num_shards) + _int(2, int(big_endian)) + _message(3, versions) + extra


def shape_proto(shape: Sequence[int]) -> bytes:
    """TensorShapeProto; sizes may be negative or absurd."""
    return b"".join(_message(2, _int(1, size)) for size in shape)


def slice_proto(dims: Slice) -> bytes:
    """TensorSliceProto; an extent of None is left out, which means the whole dimension."""
    return b"".join(
        _message(
            1,
            _int(1, start) + (b"" if extent is None else _field(2, 0, varint(extent))),
        )
        for start, extent in dims
    )


def entry(
    dtype: int = 1,
    shape: Sequence[int] | None = (),
    shard: int = 0,
    offset: int = 0,
    size: int = 0,
    crc: int | None = None,
    slices: Sequence[Slice] = (),
    extra: bytes = b"",
) -> bytes:
    """BundleEntryProto. A shape or crc of None is left out; ``extra`` is appended raw."""
    out = _int(1, dtype)
    if shape is not None:
        out += _message(2, shape_proto(shape))
    out += _int(3, shard) + _int(4, offset) + _int(5, size)
    if crc is not None:
        out += _field(6, 5, struct.pack("<I", crc))
    out += b"".join(_message(7, slice_proto(dims)) for dims in slices)
    return out + extra


def write_bundle(
    directory: str | Path,
    prefix: str,
    entries: Mapping[bytes, EntryFields | bytes],
    data: Sequence[bytes],
    *,
    head: bytes | None = None,
    block_size: int = 262144,
    restart_interval: int = 16,
    snappy: bool = False,
) -> Path:
    """Write ``PREFIX.index`` and one data file for each member of ``data``.

    Each entry is the arguments of `entry`, or raw bytes. Where ``crc`` is not given it
    is that of the bytes the entry claims (as far as they exist). ``head`` replaces the
    header. Entries are written in key order; use `build_table` for any other.

    Returns:
        The prefix, as a path.
    """
    items: list[tuple[bytes, bytes]] = [(b"", header(len(data)) if head is None else head)]
    for key in sorted(entries):
        fields = entries[key]
        if isinstance(fields, bytes):
            items.append((key, fields))
            continue
        full: EntryFields = {"crc": None, **fields}
        shard, start, size = full.get("shard", 0), full.get("offset", 0), full.get("size", 0)
        if "crc" not in fields and not full.get("slices") and 0 <= shard < len(data):
            full["crc"] = masked_crc(data[shard][start : start + size])
        items.append((key, entry(**full)))
    target = Path(directory, prefix)
    for number, contents in enumerate(data):
        name = f"{prefix}.data-{number:05d}-of-{len(data):05d}"
        Path(directory, name).write_bytes(contents)
    table = build_table(
        items, block_size=block_size, restart_interval=restart_interval, snappy=snappy
    )
    Path(directory, prefix + ".index").write_bytes(table)
    return target


# Keys and payloads ------------------------------------------------------------------


_ESCAPES = {0x00: b"\x00\xff", 0xFF: b"\xff\x00"}


def _ordered_number(value: int) -> bytes:
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _ordered_signed(value: int) -> bytes:
    """TensorFlow's OrderedCode: n leading ones for n bytes, all inverted below zero."""
    magnitude = ~value if value < 0 else value
    length = magnitude.bit_length() // 7 + 1  # n bytes carry 7n - 1 bits and a sign
    ones = ((1 << length) - 1) << 7 * length
    return ((value & (1 << 8 * length) - 1) ^ ones).to_bytes(length, "big")


def slice_key(name: bytes, dims: Slice) -> bytes:
    """The key under which one slice of a partitioned variable is stored."""
    out = _ordered_number(0)
    out += b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in name) + b"\x00\x01"
    out += _ordered_number(len(dims))
    for start, extent in dims:
        out += _ordered_signed(start) + _ordered_signed(-1 if extent is None else extent)
    return out


def string_payload(values: Sequence[bytes]) -> tuple[bytes, int]:
    """The stored bytes of a string variable, and its masked crc."""
    lengths = b"".join(struct.pack("<I", len(value)) for value in values)
    checksum = struct.pack("<I", masked_crc(lengths))
    joined = b"".join(values)
    stored = b"".join(varint(len(value)) for value in values) + checksum + joined
    return stored, masked_crc(lengths + checksum + joined)
