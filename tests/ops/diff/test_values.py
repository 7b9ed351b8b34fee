"""Figures of differences against numpy's own over whole arrays, for every dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ckpttool.errors import UsageError
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.ops.diff.facts import DiffResult, ValuesDiffer
from ckpttool.ops.diff.figures import Figures
from ckpttool.ops.diff.run import diff
from tests.support.handmade import EntryFields, masked_crc, string_payload, write_bundle

NUMBERS = [name for name, dtype in BY_NAME.items() if dtype.size]


def bundle(folder: Path, **variables: tuple[str, Any]) -> str:
    """A checkpoint of arrays, given with TensorFlow's word for their dtype."""
    folder.mkdir(exist_ok=True)
    entries: dict[bytes, EntryFields | bytes] = {}
    data = b""
    for name, (dtype, value) in sorted(variables.items()):
        if dtype == "string":
            part, crc = string_payload(value)
            shape: tuple[int, ...] = (len(value),)
        else:
            array = np.asarray(value).astype(numpy_dtype(dtype))
            part, shape = array.tobytes(), array.shape
            crc = masked_crc(part)
        entries[name.encode()] = {
            "dtype": BY_NAME[dtype].number,
            "shape": shape,
            "offset": len(data),
            "size": len(part),
            "crc": crc,
        }
        data += part
    return str(write_bundle(folder, "m", entries, [data]))


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., DiffResult]:
    def compare(dtype: str, a: Any, b: Any, other: str = "", **options: Any) -> DiffResult:
        left = bundle(tmp_path / "a", w=(dtype, a))
        return diff(left, bundle(tmp_path / "b", w=(other or dtype, b)), **options)

    return compare


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_dtype_of_numbers(compared: Callable[..., DiffResult], dtype: str) -> None:
    assert compared(dtype, [1, 0, 1], [1, 0, 1]).same
    result = compared(dtype, [1, 0, 1, 1], [1, 1, 1, 0])
    assert not result.same
    (found,) = result.values
    assert (found.name, found.elements, found.differing) == ("w", 4, 2)
    assert (found.max_abs, found.max_rel) == (1, 1.0)
    assert found.rms == pytest.approx(math.sqrt(0.5))


def test_differences_of_integers_are_exact(compared: Callable[..., DiffResult]) -> None:
    (found,) = compared("int64", [-(2**63), 5], [2**63 - 1, 5]).values
    assert found.max_abs == 2**64 - 1
    (found,) = compared("int64", [2**53 + 1], [2**53]).values
    assert found.max_abs == 1
    (found,) = compared("uint8", [3, 250], [5, 0]).values
    assert found.max_abs == 250


def test_nan_equals_nan_and_is_told(compared: Callable[..., DiffResult]) -> None:
    quiet, other = np.frombuffer(b"\0\0\xc0\x7f\1\0\xc0\x7f", np.float32)
    assert compared("float32", [quiet, 1], [other, 1]).same
    (found,) = compared("float32", [quiet, 1, 2, np.nan], [other, np.nan, 4, 1]).values
    assert (found.nan_a, found.nan_b, found.nan_both) == (1, 1, 1)
    assert (found.differing, found.max_abs, found.max_rel) == (3, 2, 0.5)


def test_infinities(compared: Callable[..., DiffResult]) -> None:
    assert compared("float64", [np.inf, -np.inf], [np.inf, -np.inf]).same
    (found,) = compared("float64", [np.inf, 1.0, np.inf], [np.inf, -np.inf, 7]).values
    assert (found.infinite, found.differing, found.max_abs) == (2, 2, math.inf)
    assert found.rms == 0
    # However large a tolerance is, what is infinitely far apart is beyond it.
    assert not compared("float64", [np.inf], [1.0], rtol=1e9, atol=1e300).same


def test_all_nan_has_no_figures(compared: Callable[..., DiffResult]) -> None:
    (found,) = compared("float32", [np.nan], [1.0]).values
    assert (found.max_abs, found.max_rel, found.rms) == (None, None, None)


def test_zero_by_zero_is_bit_by_bit(compared: Callable[..., DiffResult]) -> None:
    (found,) = compared("float32", [0.0, 1.0], [-0.0, 1.0]).values
    assert (found.differing, found.max_abs, found.max_rel) == (1, 0, 0)
    assert compared("float32", [0.0], [-0.0], atol=1e-30).same


def test_tolerances(compared: Callable[..., DiffResult]) -> None:
    a, b = [1.0, 100.0, -3.0], [1.001, 100.1, -3.0]
    assert compared("float32", a, b, rtol=1.1e-3).same
    assert compared("float32", b, a, rtol=1.1e-3).same
    assert compared("float32", a, b, atol=0.11).same
    (found,) = compared("float32", a, b, atol=0.01).values
    assert found.differing == 1
    assert compared("int32", [10, 20], [11, 20], atol=1).same
    for wrong in (-1.0, math.nan):
        with pytest.raises(UsageError):
            compared("float32", a, b, rtol=wrong)


def test_another_dtype_is_told_with_how_far_the_numbers_are_apart(
    compared: Callable[..., DiffResult],
) -> None:
    """D25: a dtype is never silently converted, and every mismatch is told."""
    result = compared("float32", [1.0, 0.1], [1.0, 0.1], "bfloat16")
    assert [(one.name, one.a, one.b) for one in result.dtype] == [("w", "float32", "bfloat16")]
    (found,) = result.values
    assert found.max_abs == pytest.approx(0.10009765625 - 0.1, rel=1e-4)
    result = compared("int64", [1000], [1000], "float32")
    assert result.dtype
    assert not result.values
    assert not compared("float32", [1.0], [b"1"], "string").values


def test_complex_numbers(compared: Callable[..., DiffResult]) -> None:
    (found,) = compared("complex64", [3 + 4j, 1], [0, 1]).values
    assert (found.max_abs, found.max_rel, found.differing) == (5, 1, 1)
    assert compared("complex128", [complex(0, np.nan)], [complex(np.nan, 0)]).same


def test_strings(compared: Callable[..., DiffResult]) -> None:
    assert compared("string", [b"a", b""], [b"a", b""]).same
    (found,) = compared("string", [b"a", b"b", b"c"], [b"a", b"x", b"cc"]).values
    assert (found.elements, found.differing, found.max_abs) == (3, 2, None)


def test_empty_variables_are_the_same(compared: Callable[..., DiffResult]) -> None:
    empty = np.zeros((0, 3), np.float32)
    assert compared("float32", empty, empty).same


FLOATS = arrays.arrays(
    np.float32,
    st.integers(0, 40),
    elements=st.floats(width=32) | st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf]),
)


@given(FLOATS, st.data())
def test_figures_are_those_of_whole_arrays(a: np.ndarray, data: st.DataObject) -> None:
    """Any floats, block by block, against the plain formulas."""
    moved = data.draw(arrays.arrays(np.float32, a.shape, elements=st.floats(width=32)))
    kept = data.draw(arrays.arrays(np.bool_, a.shape))
    b = np.where(kept, a, moved)
    figures = Figures("float32", "float32", rtol=0, atol=0)
    figures.add(a.tobytes(), b.tobytes())

    both = np.isnan(a) & np.isnan(b)
    one = np.isnan(a) ^ np.isnan(b)
    wide, other = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((wide == other) | both | one, 0, np.abs(wide - other))
        size = np.maximum(np.abs(wide), np.abs(other))
    unequal = (a.view(np.uint32) != b.view(np.uint32)) & ~both
    assert figures.differing == int(unequal.sum())
    assert figures.nan_a + figures.nan_b == int(one.sum())
    assert figures.infinite == int(np.isinf(apart).sum())
    assert figures.max_abs == apart.max(initial=0)
    finite = np.isfinite(apart) & (apart > 0)
    relative = (apart[finite] / size[finite]).max(initial=0)
    expected = max(relative, 1.0 if figures.infinite else 0.0)
    assert figures.max_rel == pytest.approx(expected, rel=1e-6)
    squares = np.square(apart[np.isfinite(apart)]).sum()
    assert figures.rms(max(a.size, 1)) == pytest.approx(math.sqrt(squares / max(a.size, 1)))


def test_more_elements_than_a_block(compared: Callable[..., DiffResult]) -> None:
    """Many blocks and several pieces of a read: 5 MB."""
    generator = np.random.default_rng(5)
    a = generator.standard_normal(1_250_001, np.float32)
    b = a.copy()
    b[::1000] += 0.5
    (found,) = compared("float32", a, b).values
    apart = np.abs(a.astype(np.float64) - b)
    assert found == ValuesDiffer(
        "w",
        "model",
        a.size,
        int(np.count_nonzero(apart)),
        apart.max(),
        pytest.approx((apart / np.maximum(np.abs(a), np.abs(b))).max(), rel=1e-6),  # type: ignore[arg-type]
        pytest.approx(math.sqrt(np.mean(apart**2))),  # type: ignore[arg-type]
    )
