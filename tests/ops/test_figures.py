"""The figures of elements in pieces, against NumPy on all of them at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ckpttool.errors import CkpttoolError, UnsupportedError
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.ops.figures.model import BINS, Figures
from ckpttool.ops.figures.running import compute

RANDOM = np.random.default_rng(7)


def figures(array: np.ndarray, dtype: str = "", piece: int = 2**20, **options: bool) -> Figures:
    """Of an array, handed over in pieces of so many elements."""
    data = np.ascontiguousarray(array).tobytes()
    step = piece * array.dtype.itemsize

    def pieces() -> Iterator[bytes]:
        return (data[at : at + step] for at in range(0, len(data), step))

    return compute(pieces, dtype or array.dtype.name, **options)


def check(array: np.ndarray, dtype: str = "", piece: int = 2**20) -> Figures:
    """Compare every figure with NumPy's, and the histogram with the same edges of its own."""
    found = figures(array, dtype, piece)
    wide = array if array.dtype.kind in "iu" else array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    assert found.count == array.size
    assert found.nan == np.isnan(wide).sum()
    assert found.inf == np.isinf(wide).sum()
    assert found.zeros == (finite == 0).sum()
    assert found.bad == bool(found.nan or found.inf)
    if not finite.size:
        assert (found.minimum, found.mean, found.norm, found.histogram) == (None,) * 4
        return found
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    largest = max(abs(float(finite.min())), abs(float(finite.max())))
    assert found.mean == pytest.approx(finite.mean(dtype=np.float64), rel=1e-9, abs=1e-12 * largest)
    assert found.histogram is not None
    edges, counts = found.histogram.edges, found.histogram.counts
    assert (edges[0], edges[-1]) == (found.minimum, found.maximum)
    assert len(edges) == len(counts) + 1
    assert sum(counts) == finite.size
    if len(counts) > 1:
        assert all(a < b for a, b in pairwise(edges))
        assert counts == tuple(np.histogram(finite, np.array(edges))[0].tolist())
    return found


# Every type -----------------------------------------------------------------------------


NUMBERS = [name for name, known in BY_NAME.items() if known.size and "complex" not in name]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("size", [0, 1, 7, 5000, 70_000])
def test_every_type_of_numbers(name: str, size: int) -> None:
    dtype = numpy_dtype(name)
    if dtype.kind == "b":
        array = RANDOM.integers(0, 2, size).astype(bool)
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = RANDOM.integers(info.min, info.max, size, dtype, endpoint=True)
    else:
        low = 0 if "uint" in name else -2
        array = RANDOM.uniform(low, 2, size).astype(dtype)
    check(array, name)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e5m2", "float32", "float64"])
@pytest.mark.parametrize("size", [3, 100, 100_000])
def test_what_is_not_finite_is_counted_and_left_out(name: str, size: int) -> None:
    array = RANDOM.normal(0, 1, size).astype(numpy_dtype(name))
    array[0], array[1], array[2] = np.nan, np.inf, -np.inf
    found = check(array, name)
    assert (found.nan, found.inf) == (1, 2)
    for value in (np.nan, np.inf):
        check(np.full(size, value).astype(array.dtype), name)


def test_types_narrower_than_a_byte() -> None:
    found = check(np.arange(-8, 8).astype(ml_dtypes.int4), "int4")
    assert (found.minimum, found.maximum, found.zeros) == (-8, 7, 1)
    assert found.histogram is not None
    assert found.histogram.counts == (1,) * 16


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_have_a_norm_and_counts(name: str) -> None:
    array = (RANDOM.normal(0, 1, 90_000) + 1j * RANDOM.normal(0, 1, 90_000)).astype(name)
    array[:4] = [0, complex(np.nan, 1), complex(1, np.inf), complex(np.nan, np.inf)]
    found = figures(array, piece=1000)
    assert (found.count, found.zeros, found.nan, found.inf) == (90_000, 1, 2, 1)
    assert found.norm == pytest.approx(np.linalg.norm(array[4:].astype("c16")))
    assert (found.minimum, found.maximum, found.mean, found.std) == (None,) * 4
    assert found.histogram is None


@pytest.mark.parametrize("name", ["string", "variant", "resource", "dtype_99"])
def test_what_holds_no_numbers_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compute(lambda: [b""], name)
    assert caught.value.id == "dtype-unsupported"


def test_an_error_of_the_source_comes_through() -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(4)
        raise CkpttoolError("broken")

    with pytest.raises(CkpttoolError, match="broken"):
        compute(broken, "float32")


# Care with numbers ----------------------------------------------------------------------


def test_a_mean_far_from_zero_costs_no_digits_of_the_deviation() -> None:
    array = 1e8 + RANDOM.normal(0, 1e-3, 500_000)
    found = check(array, piece=10_000)
    exact = np.std(array - 1e8)
    assert found.std == pytest.approx(exact, rel=1e-6)
    assert found.histogram is not None
    assert sum(count > 0 for count in found.histogram.counts) > BINS // 2


def test_sums_of_float32_are_not_float32() -> None:
    array = np.full(3_000_000, np.float32(0.1))
    found = check(array)
    assert found.mean == float(np.float32(0.1))
    assert found.std == 0
    assert found.norm == pytest.approx(math.sqrt(3_000_000) * float(np.float32(0.1)), rel=1e-12)


def test_extremes_of_integers_are_exact() -> None:
    array = np.array([2**63 - 1, -(2**63), 2**53 + 1], np.int64)
    found = check(array)
    assert (found.minimum, found.maximum) == (-(2**63), 2**63 - 1)
    found = check(np.array([2**64 - 1, 0], np.uint64))
    assert found.maximum == 2**64 - 1


def test_sums_past_float64() -> None:
    found = figures(np.array([1.7e308, 1.7e308, -1.7e308]))
    assert found.mean == pytest.approx(1.7e308 / 3)
    assert found.norm == math.inf
    assert found.histogram is not None
    assert found.histogram.counts[0] == 1
    assert found.histogram.counts[-1] == 2
    assert figures(np.full(100_000, 1.7e308)).mean == pytest.approx(1.7e308)


def test_negative_zero_is_zero() -> None:
    for name in ("float32", "float64", "float16"):
        array = np.zeros(100_000, name)
        array[::2] = -0.0
        array[0], array[1] = -1, 1
        found = check(array)
        assert found.zeros == 99_998


# Histograms -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize(
    ("centre", "width"), [(0, 0.05), (0, 1e-30), (0, 1e-42), (1, 1e-3), (1000, 0.1), (3, 3)]
)
def test_bins_of_weights_are_about_equal(name: str, centre: float, width: float) -> None:
    array = RANDOM.normal(centre, width, 200_000).astype(name)
    found = check(array, piece=50_000)
    assert found.histogram is not None
    edges = np.array(found.histogram.edges)
    widths = np.diff(edges)[1:-1]
    if width > 1e-40:
        assert len(found.histogram.counts) == BINS
        assert widths.max() < 1.5 * widths.min()


def test_a_few_values_far_out_do_not_hide_the_others() -> None:
    array = RANDOM.normal(0, 1, 100_000).astype("f4")
    array[:5] = 1e6
    found = check(array)
    assert found.histogram is not None
    assert max(found.histogram.counts) < array.size / 4
    assert found.histogram.edges[-1] == 1e6


def test_one_pass_is_enough_for_weights_and_two_for_what_lies_close_together() -> None:
    passes = []

    def pieces() -> list[bytes]:
        passes.append(1)
        return [array.tobytes()]

    array = RANDOM.normal(0, 0.05, 100_000).astype("f4")
    compute(pieces, "float32")
    assert len(passes) == 1
    array = RANDOM.normal(1000, 0.05, 100_000).astype("f4")
    compute(pieces, "float32")
    assert len(passes) == 3


def test_without_a_histogram() -> None:
    for array in (np.arange(5, dtype="f4"), np.arange(5, dtype="i1")):
        found = figures(array, histogram=False)
        assert found.histogram is None
        assert found.mean == 2


def test_integers_have_a_bin_each_while_they_are_few() -> None:
    found = check(RANDOM.integers(0, 5, 100_000))
    assert found.histogram is not None
    assert found.histogram.edges == (0, 0.5, 1.5, 2.5, 3.5, 4)
    found = check(np.array([True, False, True]))
    assert found.histogram is not None
    assert (found.histogram.edges, found.histogram.counts) == ((0, 0.5, 1), (1, 2))


@given(
    hnp.arrays(
        st.sampled_from(["<f4", "<f8", "<f2"]),
        st.integers(1, 40),
        elements=st.floats(width=16),
    ),
    st.integers(1, 7),
)
def test_any_floats_in_any_pieces(array: np.ndarray, piece: int) -> None:
    check(array, piece=piece)
    repeated = np.tile(array, 5000 // array.size + 1)
    check(repeated)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2))
def test_the_mean_and_deviation_of_any_float32(values: list[float]) -> None:
    found = figures(np.array(values, "<f4"), piece=3)
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    largest = max(map(abs, values)) or 1
    assert found.mean == pytest.approx(float(mean), abs=1e-12 * largest)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    assert found.std is not None
    assert found.std / largest == pytest.approx(
        math.sqrt(variance / Fraction(largest) ** 2), abs=1e-7
    )
