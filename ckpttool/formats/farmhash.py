"""``Fingerprint64`` of FarmHash: the hash that a SavedModel's fingerprint holds of its parts.

TensorFlow's ``tsl::Fingerprint64`` (tsl/platform/fingerprint.h) is farmhash's ``na`` variant,
whose values never change (github.com/google/farmhash, farmhash.h). In Python it takes a
tenth of a second a megabyte: enough for indexes, not for data.
"""

from __future__ import annotations

from struct import unpack_from

__all__ = ["fingerprint64"]

_MASK = 2**64 - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_BLOCK = 64
_SEED = 81


def fingerprint64(data: bytes) -> int:
    """The 64-bit hash of some bytes, as an unsigned number."""
    size = len(data)
    if size <= 16:
        return _up_to_16(data)
    if size <= 32:
        return _up_to_32(data)
    if size <= _BLOCK:
        return _up_to_64(data)
    return _long(data)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotated(value: int, bits: int) -> int:
    """A number turned right by some bits; anything above 64 bits is dropped first."""
    value &= _MASK
    return (value >> bits | value << (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value &= _MASK
    return value ^ value >> 47


def _two(one: int, other: int, factor: int) -> int:
    first = _mixed(((one ^ other) & _MASK) * factor)
    return _mixed(((other & _MASK) ^ first) * factor) * factor & _MASK


def _up_to_16(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    if size >= 8:
        first, last = _word(data, 0) + _K2, _word(data, size - 8)
        return _two(
            _rotated(last, 37) * factor + first, (_rotated(first, 25) + last) * factor, factor
        )
    if size >= 4:
        first, last = (int.from_bytes(part, "little") for part in (data[:4], data[-4:]))
        return _two(size + (first << 3), last, factor)
    if size:
        low = data[0] + (data[size >> 1] << 8)
        high = size + (data[-1] << 2)
        return _mixed(low * _K2 & _MASK ^ high * _K0 & _MASK) * _K2 & _MASK
    return _K2


def _ends(data: bytes, first_factor: int) -> tuple[int, int, int]:
    """What the shorter hashes make of the first and the last 16 bytes; and the first word."""
    size = len(data)
    factor = _K2 + size * 2
    a = _word(data, 0) * first_factor & _MASK
    b, c, d = _word(data, 8), _word(data, size - 8) * factor, _word(data, size - 16) * _K2
    return (
        _rotated(a + b, 43) + _rotated(c, 30) + d & _MASK,
        a + _rotated(b + _K2, 18) + c & _MASK,
        a,
    )


def _up_to_32(data: bytes) -> int:
    one, other, _ = _ends(data, _K1)
    return _two(one, other, _K2 + len(data) * 2)


def _up_to_64(data: bytes) -> int:
    size = len(data)
    factor = _K2 + size * 2
    y, other, a = _ends(data, _K2)
    z = _two(y, other, factor)
    e, f = _word(data, 16) * factor & _MASK, _word(data, 24)
    g = (y + _word(data, size - 32)) * factor
    h = (z + _word(data, size - 24)) * factor
    return _two(
        _rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g & _MASK, factor
    )


def _long(data: bytes) -> int:
    last = len(data) - 1
    y = (_SEED * _K1 + 113) & _MASK
    z = _mixed(y * _K2 + 113) * _K2 & _MASK
    state = (_SEED * _K2 + _word(data, 0) & _MASK, y, z, 0, 0, 0, 0)
    for at in range(0, last // _BLOCK * _BLOCK, _BLOCK):
        state = _round(data, at, state, _K1)
    x, y, z, v0, v1, w0, w1 = state
    factor = _K1 + ((z & 0xFF) << 1)
    w0 += last & (_BLOCK - 1)
    v0 += w0
    w0 += v0
    x, y, z, v0, v1, w0, w1 = _round(data, last + 1 - _BLOCK, (x, y, z, v0, v1, w0, w1), factor, 9)
    return _two(
        _two(v0, w0, factor) + _mixed(y) * _K0 + z & _MASK, _two(v1, w1, factor) + x, factor
    )


_State = tuple[int, int, int, int, int, int, int]


def _round(data: bytes, at: int, state: _State, factor: int, times: int = 1) -> _State:
    """Mix 64 bytes into the state; the last round multiplies two of its members by 9."""
    x, y, z, v0, v1, w0, w1 = state
    s0, s1, s2, s3, s4, s5, s6, s7 = unpack_from("<8Q", data, at)
    x = _rotated(x + y + v0 + s1, 37) * factor & _MASK
    y = _rotated(y + v1 + s6, 42) * factor & _MASK
    x ^= w1 * times & _MASK
    y = (y + v0 * times + s5) & _MASK
    z = _rotated(z + w0, 33) * factor & _MASK
    v0, v1 = _weak((s0, s1, s2, s3), v1 * factor, x + w0)
    w0, w1 = _weak((s4, s5, s6, s7), z + w1, y + s2)
    return z, y, x, v0, v1, w0, w1


def _weak(words: tuple[int, int, int, int], a: int, b: int) -> tuple[int, int]:
    """A hash of 32 bytes and two seeds."""
    a += words[0]
    b = _rotated(b + a + words[3], 21)
    start = a
    a += words[1] + words[2]
    b += _rotated(a, 44)
    return (a + words[3]) & _MASK, (b + start) & _MASK
