"""Stored elements as Python values, and exact conversions between element types.

Works on the bytes that a source hands out (C order, little-endian, TensorFlow's layout)
with nothing but the standard library, so that printing and saving need no numpy, also
for the types that numpy does not have. Knows no file and no text format.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

from ckpttool.errors import UnsupportedError
from ckpttool.formats.dtypes import BY_NAME

__all__ = ["CAST_TARGETS", "Value", "cast", "cast_target", "npy_descr", "swap_words", "values"]

Value = bool | int | float | complex

#: Type → (numpy's short word, struct's letter), for the types that both have.
_PLAIN = {
    "bool": ("|b1", "?"),
    "int8": ("|i1", "b"),
    "uint8": ("|u1", "B"),
    "int16": ("<i2", "h"),
    "uint16": ("<u2", "H"),
    "int32": ("<i4", "i"),
    "uint32": ("<u4", "I"),
    "int64": ("<i8", "q"),
    "uint64": ("<u8", "Q"),
    "float16": ("<f2", "e"),
    "float32": ("<f4", "f"),
    "float64": ("<f8", "d"),
}
#: Type → (numpy's short word, the type of its halves).
_COMPLEX = {"complex64": ("<c8", "float32"), "complex128": ("<c16", "float64")}
#: Quantised integers are plain ones, as TensorFlow's reader gives them.
_QUANTISED = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint16": "int16",
    "quint16": "uint16",
    "qint32": "int32",
}
#: Integers stored in the low bits of a byte: (bits, signed).
_SMALL_INTEGERS = {
    "int4": (4, True),
    "uint4": (4, False),
    "int2": (2, True),
    "uint2": (2, False),
}
#: Floats of one byte: (exponent bits, mantissa bits, bias, which patterns are special).
#: "ieee" has infinities and NaNs, "fn" NaN only with all bits set, "fnuz" NaN only where
#: negative zero would be, "finite" neither (ml_dtypes/include/float8.h).
_SMALL_FLOATS = {
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e4m3b11fnuz": (4, 3, 11, "fnuz"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    "float4_e2m1fn": (2, 1, 1, "finite"),
}

#: What `cast` converts to; `auto`: only what numpy has no type for.
CAST_TARGETS = (
    "auto",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)
_FLOATS = {"bfloat16", "float16", "float32", "float64", *_SMALL_FLOATS}
#: The smallest and the largest value of each integer type.
_INTEGERS = {
    name: (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    for name, bits, signed in (
        *((name, *small) for name, small in _SMALL_INTEGERS.items()),
        *((f"int{bits}", bits, True) for bits in (8, 16, 32, 64)),
        *((f"uint{bits}", bits, False) for bits in (8, 16, 32, 64)),
    )
}
#: The integers that a type holds, all of them: of floats, as many as their mantissa counts.
_RANGES = _INTEGERS | {"float32": (-(2**24), 2**24), "float64": (-(2**53), 2**53)}


def npy_descr(dtype: str) -> str | None:
    """The short word of numpy for a type of fixed size; None for a type it does not have."""
    dtype = _QUANTISED.get(dtype, dtype)
    plain = _PLAIN.get(dtype) or _COMPLEX.get(dtype)
    return plain[0] if plain else None


def values(data: bytes, dtype: str) -> list[Value]:
    """The elements as Python numbers, each of which gives back the same element.

    A float of up to 32 bits becomes the shortest decimal that 32 bits hold as the same
    number, so that 0.1 stored as float32 is 0.1 and not 0.10000000149011612.

    Raises:
        UnsupportedError: id ``dtype-unsupported``: no type of fixed size.
    """
    dtype = _QUANTISED.get(dtype, dtype)
    if dtype == "bool":
        return [byte != 0 for byte in data]
    if dtype in _SMALL_INTEGERS:
        table = _small_integers(dtype)
        return [table[byte] for byte in data]
    if dtype in _SMALL_FLOATS:
        return [_small_floats(dtype)[byte] for byte in data]
    if dtype == "float64" or (dtype in _PLAIN and dtype not in _FLOATS):
        return list(_unpack(data, dtype))
    if dtype in _FLOATS:
        return list(_shortest(_floats(data, dtype)))
    if dtype in _COMPLEX:
        half = _COMPLEX[dtype][1]
        parts: Sequence[float] = _unpack(data, half)
        if half == "float32":
            parts = _shortest(parts)
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    raise UnsupportedError(
        f"values of type {dtype} cannot be read",
        why="they are opaque" if dtype in BY_NAME else "no TensorFlow up to 2.21 has this type",
        hint="the variable can be listed, checked and copied",
        id="dtype-unsupported",
    )


def cast_target(dtype: str, target: str) -> str | None:
    """The type that ``cast`` turns a type into; None where that would lose something.

    ``auto`` widens the types that numpy does not have, to the narrowest that it has, and
    leaves every other as it is. Only numbers are cast: no truth values, strings, complex.
    """
    source = _QUANTISED.get(dtype, dtype)
    if target == "auto":
        if source in _SMALL_INTEGERS:
            return "int8" if _SMALL_INTEGERS[source][1] else "uint8"
        return "float32" if source in _FLOATS and source not in _PLAIN else dtype
    if source == target:
        return target
    if source in _FLOATS:
        exact = target == "float64" or (target == "float32" and source != "float64")
    elif source in _INTEGERS:
        low, high = _RANGES[source]
        exact = _RANGES[target][0] <= low and high <= _RANGES[target][1]
    else:
        exact = False
    return target if exact else None


def cast(data: bytes, dtype: str, target: str) -> bytes:
    """The elements as elements of ``target``, which ``cast_target`` gave for their type."""
    if dtype == target:
        return data
    dtype = _QUANTISED.get(dtype, dtype)
    if dtype == "bfloat16" and target == "float32":
        return _bfloat16_to_float32(data)
    if dtype in _SMALL_INTEGERS or dtype in _SMALL_FLOATS:
        return _translate(data, dtype, target)
    numbers = _floats(data, dtype) if dtype == "bfloat16" else _unpack(data, dtype)
    return struct.pack(f"<{len(numbers)}{_PLAIN[target][1]}", *numbers)


def swap_words(data: bytes, word: int) -> bytes:
    """Every word of ``word`` bytes (1, 2, 4 or 8) with its bytes in reverse order."""
    if word == 1:
        return data
    words = array({2: "H", 4: "I", 8: "Q"}[word], data)
    words.byteswap()
    return words.tobytes()


def _unpack(data: bytes, dtype: str) -> tuple[Any, ...]:
    """Numbers of a type that the standard library has."""
    return struct.unpack(f"<{len(data) // BY_NAME[dtype].size}{_PLAIN[dtype][1]}", data)


def _floats(data: bytes, dtype: str) -> tuple[float, ...]:
    """Floats of 16 or 32 bits."""
    if dtype == "bfloat16":
        return _unpack(_bfloat16_to_float32(data), "float32")
    return _unpack(data, dtype)


def _shortest(numbers: Sequence[float]) -> list[float]:
    """For float32 numbers, the shortest decimals that float32 rounds to the same numbers.

    Six digits always survive float32 and nine always tell two of them apart, so 6, 7, 8
    or 9 digits are right. (Subnormal numbers could do with fewer than 6.)
    """
    result = list(numbers)
    places: Sequence[int] = range(len(result))
    unsettled = numbers
    for digits in (6, 7, 8, 9):
        tried = list(map(float, map(f"%.{digits}g".__mod__, unsettled)))
        rounded = array("f", tried)
        later: list[int] = []
        for place, number, candidate, single in zip(places, unsettled, tried, rounded, strict=True):
            if single == number:
                result[place] = candidate
            else:
                later.append(place)
        if not later:
            break
        places = later
        unsettled = [numbers[place] for place in later]
    return result


def _bfloat16_to_float32(data: bytes) -> bytes:
    """A bfloat16 is the upper half of a float32."""
    wide = bytearray(2 * len(data))
    wide[2::4] = data[::2]
    wide[3::4] = data[1::2]
    return bytes(wide)


def _translate(data: bytes, dtype: str, target: str) -> bytes:
    """A conversion of one-byte elements, each byte of the result by a table of its own."""
    table: tuple[float, ...] = (
        _small_integers(dtype) if dtype in _SMALL_INTEGERS else _small_floats(dtype)
    )
    size = BY_NAME[target].size
    images = struct.pack(f"<256{_PLAIN[target][1]}", *table)
    wide = bytearray(size * len(data))
    for byte in range(size):
        wide[byte::size] = data.translate(images[byte::size])
    return bytes(wide)


@cache
def _small_integers(dtype: str) -> tuple[int, ...]:
    """The value of each of the 256 bytes; the unused upper bits do not matter."""
    bits, signed = _SMALL_INTEGERS[dtype]
    sign = 1 << bits - 1 if signed else 0
    return tuple(((byte & (1 << bits) - 1) ^ sign) - sign for byte in range(256))


@cache
def _small_floats(dtype: str) -> tuple[float, ...]:
    """The value of each of the 256 bytes."""
    return tuple(_small_float(byte, *_SMALL_FLOATS[dtype]) for byte in range(256))


def _small_float(byte: int, exponent_bits: int, mantissa_bits: int, bias: int, kind: str) -> float:
    width = exponent_bits + mantissa_bits
    sign = -1.0 if byte >> width & 1 else 1.0
    exponent = byte >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = byte & (1 << mantissa_bits) - 1
    if kind == "ieee" and exponent == (1 << exponent_bits) - 1:
        return sign * math.inf if not mantissa else math.nan
    if kind == "fn" and byte & (1 << width) - 1 == (1 << width) - 1:
        return math.nan
    if kind == "fnuz" and byte == 1 << width:
        return math.nan
    if exponent:
        mantissa += 1 << mantissa_bits
    else:
        exponent = 1  # a subnormal has the exponent of the smallest normal number
    return sign * math.ldexp(mantissa, exponent - bias - mantissa_bits)
