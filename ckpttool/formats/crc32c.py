"""CRC-32C as TensorFlow uses it: plain values while computing, masked ones in files.

TensorFlow masks a checksum that it stores, so that the checksum of bytes which contain
checksums stays a good one (tsl/lib/hash/crc32c.h).
"""

from __future__ import annotations

import google_crc32c

__all__ = ["crc", "extend", "mask", "unmask"]

_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF


def crc(data: bytes) -> int:
    """The CRC-32C of ``data``."""
    value: int = google_crc32c.value(data)
    return value


def extend(value: int, data: bytes) -> int:
    """The CRC-32C of what ``value`` covers followed by ``data``."""
    extended: int = google_crc32c.extend(value, data)
    return extended


def mask(value: int) -> int:
    """The form in which files store a checksum."""
    return ((value >> 15 | value << 17) + _DELTA) & _WORD


def unmask(masked: int) -> int:
    """The inverse of ``mask``."""
    rotated = (masked - _DELTA) & _WORD
    return (rotated >> 17 | rotated << 15) & _WORD
