"""Keys of the parts of a partitioned variable: TensorFlow's order-preserving encoding.

A part is stored under ``0, name, rank, start and length of every dimension``, each coded
so that the bytes sort as the values do (tensorflow/core/util/saved_tensor_slice_util.cc,
tensorflow/core/lib/strings/ordered_code.cc):

- a string has 00 and FF escaped as ``00 FF`` and ``FF 00``, and ends with ``00 01``;
- an unsigned number is its big-endian bytes behind their count;
- a signed number of n bytes is n ones, a zero and 7n - 1 bits; of a negative number the
  complement is coded so, and then every bit is inverted.

The code is of the *spelling* of a slice: a whole dimension may be written as its length
or as a missing one, and the two give different keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ckpttool.errors import CorruptError

__all__ = ["FULL", "decode_slice_key", "encode_slice_key"]

#: The length that stands for a missing one: all of the dimension.
FULL = -1

_END = b"\x00\x01"
_SPECIAL = re.compile(rb"[\x00\xff]")
_MAX_SIGNED_BYTES = 10


def encode_slice_key(name: bytes, slices: Iterable[tuple[int, int]]) -> bytes:
    """The key of the part of variable ``name`` that spans ``(start, length)`` a dimension.

    A length is ``FULL`` exactly where the index leaves it out.
    """
    parts = list(slices)
    coded = [_opening(name, len(parts))]
    for start, length in parts:
        coded.append(_signed(start))
        coded.append(_signed(length))
    return b"".join(coded)


@lru_cache(maxsize=1)
def _opening(name: bytes, rank: int) -> bytes:
    """What all parts of a variable begin with; they are asked for one after the other."""
    escaped = b"\xff\x00".join(piece.replace(b"\x00", b"\x00\xff") for piece in name.split(b"\xff"))
    return b"".join((_unsigned(0), escaped, _END, _unsigned(rank)))


def decode_slice_key(key: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The name and the ``(start, length)`` of every dimension that ``key`` encodes.

    Raises:
        CorruptError: id ``slice-key-malformed``: it is no such key.
    """
    zero, pos = _read_unsigned(key, 0)
    if zero:
        raise _broken(key, f"it starts with the number {zero}, not 0")
    name, pos = _read_string(key, pos)
    rank, pos = _read_unsigned(key, pos)
    if rank > len(key):
        raise _broken(key, f"it claims {rank} dimensions in {len(key)} bytes")
    slices = []
    for _ in range(rank):
        start, pos = _read_signed(key, pos)
        length, pos = _read_signed(key, pos)
        slices.append((start, length))
    if pos != len(key):
        raise _broken(key, f"{len(key) - pos} bytes follow its last dimension")
    return name, slices


def _unsigned(value: int) -> bytes:
    size = (value.bit_length() + 7) // 8
    return bytes((size,)) + value.to_bytes(size, "big")


def _signed(value: int) -> bytes:
    if 0 <= value < 0x40:
        return bytes((0x80 | value,))
    if 0x40 <= value < 0x2000:
        return (0xC000 | value).to_bytes(2, "big")
    magnitude = value if value >= 0 else ~value
    size = magnitude.bit_length() // 7 + 1
    code = ((1 << size) - 1) << (7 * size) | magnitude
    if value < 0:
        code ^= (1 << 8 * size) - 1
    return code.to_bytes(size, "big")


def _read_unsigned(key: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(key):
        raise _broken(key, "it ends before a number")
    stop = pos + 1 + key[pos]
    if key[pos] > 8 or stop > len(key):
        raise _broken(key, f"the number at byte {pos} claims {key[pos]} bytes")
    return int.from_bytes(key[pos + 1 : stop], "big"), stop


def _read_string(key: bytes, pos: int) -> tuple[bytes, int]:
    pieces = []
    while special := _SPECIAL.search(key, pos):
        at = special.start()
        pieces.append(key[pos:at])
        pair, pos = key[at : at + 2], at + 2
        if pair == _END:
            return b"".join(pieces), pos
        if pair not in {b"\x00\xff", b"\xff\x00"}:
            raise _broken(key, f"byte {at} of its name starts no escape")
        pieces.append(pair[:1])
    raise _broken(key, "its name has no end")


def _read_signed(key: bytes, pos: int) -> tuple[int, int]:
    # The ones in front count the bytes; ten bytes are coded with ten ones, in two of them.
    head = int.from_bytes(key[pos : pos + 2].ljust(2, b"\x00"), "big")
    negative = head < 0x8000
    size = 16 - (head if negative else head ^ 0xFFFF).bit_length()
    stop = pos + size
    if size > _MAX_SIGNED_BYTES or stop > len(key):
        raise _broken(key, f"the signed number at byte {pos} claims {size} bytes")
    code = int.from_bytes(key[pos:stop], "big")
    if negative:
        code ^= (1 << 8 * size) - 1
    magnitude = code & ((1 << (7 * size)) - 1)
    return (~magnitude if negative else magnitude), stop


def _broken(key: bytes, why: str) -> CorruptError:
    return CorruptError(
        f"{key[:64]!r} is no key of a variable's part", why=why, id="slice-key-malformed"
    )
