"""Encodes the entries of a V2 index as TensorFlow does, and patches stored ones.

The counterpart of ``bundle``. What a rewrite does not change is never encoded anew: an
entry's message is patched field by field, so fields that this version of ckpttool does
not know survive (TensorFlow itself drops them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from ckpttool.formats.bundle import SliceSpec
from ckpttool.formats.crc32c import extend, mask
from ckpttool.formats.ordered_code import FULL
from ckpttool.formats.wire import FIXED32, LENGTH, VARINT, encode_varint, fields

__all__ = [
    "encode_entry",
    "encode_header",
    "encode_string",
    "encode_strings",
    "patch_dtype",
    "patch_entry",
    "patch_header",
    "patch_shard",
]

_SHARD, _OFFSET, _SIZE, _CRC, _SLICES = 3, 4, 5, 6, 7
_WORD64 = 2**64 - 1

#: What follows dtype and shape in an entry that TensorFlow wrote: shard, offset, size and
#: checksum, each at most once and in this order; the last two are groups.
_PLACE = re.compile(
    rb"(?:\x18[\x80-\xff]{0,8}[\x00-\x7f])?(?:\x20[\x80-\xff]{0,8}[\x00-\x7f])?"
    rb"((?:\x28(?:[\x80-\xff]{0,8}[\x01-\x7f]|\x00))?)((?:\x35.{4})?)",
    re.DOTALL,
)


def encode_header(num_shards: int, *, big_endian: bool = False) -> bytes:
    """The message of the empty key, with TensorFlow's version of the format (producer 1)."""
    endianness = _number(2, 1) if big_endian else b""
    return _number(1, num_shards) + endianness + _message(3, _number(1, 1))


def encode_entry(
    dtype: int,
    shape: tuple[int, ...] | None,
    *,
    shard: int = 0,
    offset: int = 0,
    size: int = 0,
    crc32c: int | None = None,
    slices: Iterable[SliceSpec] = (),
) -> bytes:
    """A BundleEntryProto; ``crc32c`` is the masked checksum.

    Zeros are left out as proto3 does; the shape never is, not even a scalar's.
    """
    dims = b"\x18\x01" if shape is None else b"".join(_message(2, _number(1, n)) for n in shape)
    return b"".join(
        (
            _number(1, dtype),
            _message(2, dims),
            _number(_SHARD, shard),
            _number(_OFFSET, offset),
            _number(_SIZE, size),
            _crc(crc32c),
            *(_message(_SLICES, _slice(spec)) for spec in slices),
        )
    )


def patch_entry(
    raw: bytes, *, shard: int, offset: int, size: int | None = None, crc32c: int | None = None
) -> bytes:
    """A stored entry with another place, and another size or checksum where one is given.

    Everything else is kept to the byte, in its order. In an entry as TensorFlow writes it
    the result is what TensorFlow would have written.

    Raises:
        CorruptError: ``raw`` is no protobuf message.
    """
    plain = _plain(raw)
    if plain is not None:
        return b"".join(
            (
                raw[: plain.start()],
                _number(_SHARD, shard),
                _number(_OFFSET, offset),
                plain[1] if size is None else _number(_SIZE, size),
                plain[2] if crc32c is None else _crc(crc32c),
            )
        )
    changes = {_SHARD: _number(_SHARD, shard), _OFFSET: _number(_OFFSET, offset)}
    if size is not None:
        changes[_SIZE] = _number(_SIZE, size)
    if crc32c is not None:
        changes[_CRC] = _crc(crc32c)
    return _patched(raw, changes)


def patch_shard(raw: bytes, shard: int) -> bytes:
    """A stored entry with another shard; everything else is kept to the byte."""
    return _patched(raw, {_SHARD: _number(_SHARD, shard)})


def patch_dtype(raw: bytes, dtype: int) -> bytes:
    """A stored entry with another dtype; everything else is kept to the byte."""
    if _plain(raw) is not None:
        return _number(1, dtype) + raw[2:]
    return _patched(raw, {1: _number(1, dtype)})


def encode_string(value: bytes, *, big_endian: bool = False) -> tuple[bytes, int]:
    """The payload of a scalar string, and its masked checksum.

    The checksum is of the length as a word and what follows it, not of the stored bytes
    (tensor_bundle.cc: WriteStringTensor).
    """
    head, crc32c, _ = encode_strings((value,), big_endian=big_endian)
    return head + value, crc32c


def encode_strings(values: Sequence[bytes], *, big_endian: bool = False) -> tuple[bytes, int, int]:
    """What stands before strings in their payload; its masked checksum, and its size.

    Before them stand their lengths and a checksum of these; checksums are as of
    ``encode_string``.
    """
    order: Literal["little", "big"] = "big" if big_endian else "little"
    lengths = 0
    for value in values:
        lengths = extend(lengths, len(value).to_bytes(4 if len(value) < 2**32 else 8, order))
    stored = mask(lengths).to_bytes(4, order)
    head = b"".join(encode_varint(len(value)) for value in values) + stored
    total = extend(lengths, stored)
    for value in values:
        total = extend(total, value)
    return head, mask(total), len(head) + sum(map(len, values))


def patch_header(raw: bytes, num_shards: int) -> bytes:
    """A stored header with another number of shards; byte order and version are kept."""
    return _patched(raw, {1: _number(1, num_shards)})


def _plain(raw: bytes) -> re.Match[bytes] | None:
    """The place, size and checksum of an entry that is just as TensorFlow writes it.

    Behind a dtype and a shape of one byte each in their tag and length. Patching such an
    entry takes a tenth of the time, and there may be a million.
    """
    if len(raw) < 4 or raw[0] != 0x08 or raw[1] >= 0x80 or raw[2] != 0x12 or raw[3] >= 0x80:
        return None
    end = 4 + raw[3]
    return _PLACE.fullmatch(raw, end) if end <= len(raw) else None


def _patched(raw: bytes, changes: dict[int, bytes]) -> bytes:
    """``raw`` with the fields of ``changes`` replaced: at their place by number."""
    kept: list[tuple[int, bytes]] = []
    for number, wire_type, value in fields(raw):
        if number not in changes:
            kept.append((number, _field(raw, number, wire_type, value)))
    waiting = sorted(changes.items())
    result = bytearray()
    for number, field in kept:
        while waiting and waiting[0][0] < number:
            result += waiting.pop(0)[1]
        result += field
    return bytes(result) + b"".join(field for _, field in waiting)


def _field(raw: bytes, number: int, wire_type: int, value: int | tuple[int, int]) -> bytes:
    tag = encode_varint(number << 3 | wire_type)
    if not isinstance(value, int):
        start, end = value
        return tag + encode_varint(end - start) + raw[start:end]
    if wire_type == VARINT:
        return tag + encode_varint(value)
    return tag + value.to_bytes(4 if wire_type == FIXED32 else 8, "little")


def _number(number: int, value: int) -> bytes:
    if not value:
        return b""
    if 0 < value < 0x80:
        return bytes((number << 3 | VARINT, value))
    return bytes((number << 3 | VARINT,)) + encode_varint(value & _WORD64)


def _message(number: int, contents: bytes) -> bytes:
    return encode_varint(number << 3 | LENGTH) + encode_varint(len(contents)) + contents


def _crc(crc32c: int | None) -> bytes:
    if not crc32c:
        return b""
    return encode_varint(_CRC << 3 | FIXED32) + crc32c.to_bytes(4, "little")


def _slice(spec: SliceSpec) -> bytes:
    extents = []
    for start, length in zip(spec.start, spec.length, strict=True):
        # `length` is a oneof: set to 0 it is written, and only FULL leaves it out.
        written = b"" if length == FULL else b"\x10" + encode_varint(length & _WORD64)
        extents.append(_message(1, _number(1, start) + written))
    return b"".join(extents)
