"""A bounded reader of the protobuf wire format: varints and fields, nothing of any message.

Every read stays inside ``[pos, end)`` and every malformation is a ``CorruptError`` with
the byte it was met at; the caller knows which object the bytes belong to and says so
(``CorruptError`` carries the reason in ``why``). Groups are refused: no message of
TensorFlow's has ever had one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckpttool.errors import CorruptError

__all__ = [
    "FIXED32",
    "FIXED64",
    "LENGTH",
    "VARINT",
    "Field",
    "encode_field",
    "encode_varint",
    "fields",
    "malformed",
    "raw_fields",
    "read_varint",
    "signed32",
    "signed64",
]

#: Wire types.
VARINT = 0
FIXED64 = 1
LENGTH = 2
FIXED32 = 5

#: Number, wire type, and an int or (LENGTH) the ``(start, end)`` of the bytes.
Field = tuple[int, int, "int | tuple[int, int]"]

_MAX_VARINT = 2**64
_MAX_TAG = 2**32


def malformed(why: str) -> CorruptError:
    """The error of bytes that are no protobuf message; the caller names the object."""
    return CorruptError("a protobuf message is malformed", why=why, id="message-malformed")


def read_varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """The unsigned 64-bit varint at ``pos``, and the position after it.

    Raises:
        CorruptError: it runs past ``end``, or has more than 64 bits.
    """
    start = pos
    result = 0
    shift = 0
    while pos < end:
        byte = data[pos]
        pos += 1
        if byte < 0x80:
            result |= byte << shift
            if result >= _MAX_VARINT:
                break
            return result, pos
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            break
    else:
        raise malformed(f"the number at byte {start} runs past the end at byte {end}")
    raise malformed(f"the number at byte {start} has more than 64 bits")


def encode_varint(value: int) -> bytes:
    """The shortest varint of a number in ``[0, 2**64)``."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 0x10000000:
        return bytes(
            (value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21)
        )
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_field(number: int, contents: bytes) -> bytes:
    """A length-delimited field: a string, bytes or a message."""
    return encode_varint(number << 3 | LENGTH) + encode_varint(len(contents)) + contents


def signed64(value: int) -> int:
    """A varint read as ``int64``."""
    return value - _MAX_VARINT if value >= 2**63 else value


def signed32(value: int) -> int:
    """A varint read as ``int32`` or an enum: protobuf keeps the low 32 bits."""
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def fields(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of the message in ``data[start:end]``, in the order they are stored.

    Raises:
        CorruptError: an overrun, a varint of more than 64 bits, field number 0, or a
            wire type that does not exist; possibly after some fields were given.
    """
    if end is None:
        end = len(data)
    pos = start
    while pos < end:
        tag_at = pos
        tag = data[pos]
        if tag < 0x80:
            pos += 1
        else:
            tag, pos = read_varint(data, pos, end)
        number, wire_type = tag >> 3, tag & 7
        if not number or tag >= _MAX_TAG:
            raise malformed(f"field number {number} at byte {tag_at} does not exist")
        if wire_type == VARINT:
            value, pos = read_varint(data, pos, end)
            yield number, wire_type, value
            continue
        if wire_type == LENGTH:
            size, pos = read_varint(data, pos, end)
        elif wire_type == FIXED32:
            size = 4
        elif wire_type == FIXED64:
            size = 8
        else:
            raise malformed(f"field {number} at byte {tag_at} has wire type {wire_type}")
        stop = pos + size
        if stop > end:
            raise malformed(
                f"field {number} at byte {tag_at} claims {size} bytes, and {end - pos} are left"
            )
        if wire_type == LENGTH:
            yield number, wire_type, (pos, stop)
        else:
            yield number, wire_type, int.from_bytes(data[pos:stop], "little")
        pos = stop


def raw_fields(
    data: bytes, start: int = 0, end: int | None = None
) -> Iterator[tuple[int, int | tuple[int, int], bytes]]:
    """As ``fields``: number, value, and the bytes of the whole field as they are stored.

    For whoever changes a message and has to keep the rest of it to the byte.
    """
    if end is None:
        end = len(data)
    pos = start
    for number, wire_type, value in fields(data, start, end):
        if isinstance(value, tuple):
            stop = value[1]
        else:
            _, stop = read_varint(data, pos, end)  # the tag
            if wire_type == VARINT:
                _, stop = read_varint(data, stop, end)
            else:
                stop += 4 if wire_type == FIXED32 else 8
        yield number, value, data[pos:stop]
        pos = stop
