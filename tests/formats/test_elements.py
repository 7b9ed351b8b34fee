"""Elements as Python numbers, and exact casts, against numpy and ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import UnsupportedError
from ckpttool.formats import elements
from ckpttool.formats.dtypes import BY_NAME

SMALL = [name for name, dtype in BY_NAME.items() if dtype.size == 1 and hasattr(ml_dtypes, name)]
PLAIN = [name for name in BY_NAME if elements.npy_descr(name)]
#: The bits that count in types stored in the low bits of a byte; the others are not
#: defined for ml_dtypes, so arrays are made without them.
NARROW = {"bool": 1, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
BITS_32 = st.lists(st.integers(0, 2**32 - 1), max_size=50)


def same(ours: object, theirs: object) -> bool:
    """Equal, with NaN equal to NaN and the sign of zero counting."""
    if isinstance(ours, complex) and isinstance(theirs, complex):
        return same(ours.real, theirs.real) and same(ours.imag, theirs.imag)
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(theirs):
            return math.isnan(ours)
        return ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs)
    return type(ours) is type(theirs) and ours == theirs


@pytest.mark.parametrize("name", SMALL)
def test_every_byte_of_the_one_byte_types(name: str) -> None:
    data = bytes(range(256))
    used = np.frombuffer(data, np.uint8) & (2 ** NARROW.get(name, 8) - 1)
    array = used.view(getattr(ml_dtypes, name))
    wide = array.astype(np.int64 if "int" in name else np.float32).tolist()
    assert all(map(same, elements.values(data, name), wide))
    target = "int16" if "int" in name else "float32"
    ours = np.frombuffer(elements.cast(data, name, target), target)
    np.testing.assert_array_equal(ours, array.astype(target))


@given(BITS_32)
def test_float32_as_the_shortest_decimals(bits: list[int]) -> None:
    array = np.array(bits, np.uint32).view(np.float32)
    found = elements.values(array.tobytes(), "float32")
    for ours, exact in zip(found, array, strict=True):
        assert isinstance(ours, float)
        with np.errstate(invalid="ignore"):
            assert same(float(np.float32(ours)), float(exact)), "gives the same float32"
        if np.isfinite(exact) and abs(exact) >= np.finfo(np.float32).tiny:
            shortest = np.format_float_scientific(exact, unique=True)
            assert float(shortest) == ours


def test_what_float32_looks_like() -> None:
    array = np.array([0.1, 1 / 3, 16777216, 3.4028235e38, 1e-45, -0.0, np.inf], np.float32)
    text = [repr(value) for value in elements.values(array.tobytes(), "float32")]
    assert text == ["0.1", "0.33333334", "16777216.0", "3.4028235e+38", "1.4013e-45", "-0.0", "inf"]


def stored(name: str, count: int) -> tuple[bytes, np.ndarray]:
    """Random elements as stored, and the same as an array."""
    size = BY_NAME[name].size
    data = np.random.default_rng(7).integers(0, 256, count * size, np.uint8)
    if name in NARROW:
        data &= 2 ** NARROW[name] - 1
    dtype = elements.npy_descr(name) or getattr(ml_dtypes, name)
    return data.tobytes(), data.view(dtype)


@pytest.mark.parametrize("name", [*PLAIN, "bfloat16"])
def test_every_plain_type(name: str) -> None:
    data, array = stored(name, 64)
    found = elements.values(data, name)
    back = np.array([np.array(value).astype(array.dtype) for value in found])
    if name == "bfloat16":  # whose NaNs numpy does not compare
        back, array = back.astype(np.float32), array.astype(np.float32)
    np.testing.assert_array_equal(back, array)


def test_types_without_values() -> None:
    for name in ("string", "variant", "resource", "dtype_77"):
        with pytest.raises(UnsupportedError):
            elements.values(b"", name)
        assert elements.npy_descr(name) is None
    assert elements.npy_descr("bfloat16") is None
    assert elements.npy_descr("qint8") == "|i1"


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("name", [*PLAIN, *SMALL, "bfloat16"])
def test_a_cast_is_exact_or_refused(name: str) -> None:
    data, array = stored(name, 256)
    for target in elements.CAST_TARGETS[1:]:
        if elements.cast_target(name, target) is None:
            assert not is_exact(name, array, target)
            continue
        assert is_exact(name, array, target)
        assert elements.cast_target(name, target) == target
        ours = np.frombuffer(elements.cast(data, name, target), target)
        np.testing.assert_array_equal(ours, array.astype(target))


def is_exact(name: str, array: np.ndarray, target: str) -> bool:
    if array.dtype.kind in "bc" or ("float" in name and "int" in target):
        return False
    if array.dtype.itemsize == 8 and array.dtype.kind in "iu" and target == "float64":
        return False  # as numpy will have it, a safe cast
    return np.can_cast(array.dtype, target) or (name in SMALL and exact(array, target))


def test_an_automatic_cast_widens_what_numpy_does_not_have() -> None:
    widened = {name: elements.cast_target(name, "auto") for name in BY_NAME}
    assert {name: to for name, to in widened.items() if to != name} == {
        "bfloat16": "float32",
        **{name: "float32" for name in SMALL if "float" in name},
        **dict.fromkeys(("int4", "int2"), "int8"),
        **dict.fromkeys(("uint4", "uint2"), "uint8"),
    }


def exact(array: np.ndarray, target: str) -> bool:
    """Whether every element (of all 256 there are) survives."""
    wide = array.astype(np.float64)
    return bool(np.array_equal(wide.astype(target).astype(np.float64), wide, equal_nan=True))


def test_swaps_words() -> None:
    assert elements.swap_words(b"abcdefgh", 1) == b"abcdefgh"
    assert elements.swap_words(b"abcdefgh", 2) == b"badcfehg"
    assert elements.swap_words(b"abcdefgh", 4) == b"dcbahgfe"
    assert elements.swap_words(b"abcdefgh", 8) == b"hgfedcba"
