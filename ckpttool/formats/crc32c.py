"""CRC-32C as TensorFlow uses it: plain values while computing, masked ones in files.

TensorFlow masks a checksum that it stores, so that the checksum of bytes which contain
checksums stays a good one (tsl/lib/hash/crc32c.h).
"""

from __future__ import annotations

from functools import cache

from fastcrc.crc32 import iscsi

__all__ = ["combine", "crc", "extend", "mask", "unmask"]

_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF
#: The generator polynomial, lowest power in the highest bit (RFC 3720, B.4).
_POLYNOMIAL = 0x82F63B78


def crc(data: bytes | memoryview) -> int:
    """The CRC-32C of ``data``; Python's lock is not held while much is summed."""
    return iscsi(data)


def extend(value: int, data: bytes | memoryview) -> int:
    """The CRC-32C of what ``value`` covers followed by ``data``."""
    return iscsi(data, value)


def mask(value: int) -> int:
    """The form in which files store a checksum."""
    return ((value >> 15 | value << 17) + _DELTA) & _WORD


def unmask(masked: int) -> int:
    """The inverse of ``mask``."""
    rotated = (masked - _DELTA) & _WORD
    return (rotated >> 17 | rotated << 15) & _WORD


def combine(first: int, second: int, size: int) -> int:
    """The CRC-32C of two pieces one after the other, from those of the pieces alone.

    ``size`` is the number of bytes of the second piece. Appending zero bytes is linear in
    the checksum's bits, so it is a product with a matrix for each bit of ``size``.
    """
    power = 0
    while size:
        if size & 1:
            first = _product(_zeros(power), first)
        size >>= 1
        power += 1
    return first ^ second


@cache
def _zeros(power: int) -> tuple[int, ...]:
    """What appending ``2**power`` zero bytes does to each bit of a checksum."""
    if power:
        half = _zeros(power - 1)
        return tuple(_product(half, column) for column in half)
    columns = []
    for bit in range(32):
        value = 1 << bit
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        columns.append(value)
    return tuple(columns)


def _product(columns: tuple[int, ...], vector: int) -> int:
    result = 0
    for column in columns:
        if vector & 1:
            result ^= column
        vector >>= 1
    return result
