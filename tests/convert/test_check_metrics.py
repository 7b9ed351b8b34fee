"""The figures of the check, and what is accepted: pure, so with thousands of arrays."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.conversion.metrics import (
    TOLERANCES,
    Figures,
    compare,
    faults,
    merged,
    tolerance_of,
)
from ckpttool.conversion.request import QUANTIZATIONS

np = pytest.importorskip("numpy")

FULL = TOLERANCES["float32"]


def test_the_same_is_the_same() -> None:
    array = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    figures = compare(array, array.copy())
    assert (figures.nrmse, figures.max_abs, figures.max_rel) == (0.0, 0.0, 0.0)
    assert figures.cosine == pytest.approx(1.0)
    assert (figures.argmax, figures.rows, figures.equal) == (1.0, 40, 1.0)
    assert faults(figures, FULL, None, "float32") == []


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
    st.floats(1e-3, 1e3),
)
def test_figures_are_those_of_their_definitions(
    values: list[float], seed: int, scale: float
) -> None:
    a = np.array(values)
    b = a + np.random.default_rng(seed).normal(0, scale, a.shape)
    figures = compare(a, b)
    error = np.abs(a - b)
    assert figures.max_abs == pytest.approx(error.max())
    size = math.sqrt((a**2).mean())
    if np.abs(a).max() > 1e-100:
        assert figures.nrmse == pytest.approx(math.sqrt((error**2).mean()) / size)
        assert figures.max_rel == pytest.approx(error.max() / np.abs(a).max())
        norms = np.linalg.norm(a) * np.linalg.norm(b)
        assert figures.cosine == pytest.approx(float(a @ b) / norms, abs=1e-9)


def test_a_result_of_zeros_is_wholly_wrong_and_a_large_one_no_overflow() -> None:
    array = np.full(8, 1e300)
    assert compare(array, np.zeros(8)).nrmse == pytest.approx(1.0)
    assert compare(array, array).nrmse == 0.0
    assert compare(np.zeros(8), np.full(8, 2.0)).nrmse == pytest.approx(2.0)
    assert compare(np.zeros(8), np.zeros(8)).cosine == 1.0
    assert compare(np.zeros((0, 3)), np.zeros((0, 3))).values == 0


def test_elements_near_zero_say_nothing() -> None:
    """CONVERT's fact of relative errors: one of a thousand per cent is no fault."""
    reference = np.array([1.0, -2.0, 1e-6, 3.0])
    figures = compare(reference, reference + 2e-5)
    assert faults(figures, FULL, None, "float32") == []


def test_nan_and_infinities_have_to_be_in_the_same_places() -> None:
    inf, nan = math.inf, math.nan
    reference = np.array([1.0, nan, inf, -inf, 2.0])
    assert compare(reference, reference.copy()).nonfinite == 0
    assert compare(reference, reference.copy()).finite == 2
    for other in (
        [1.0, 0.0, inf, -inf, 2.0],
        [1.0, nan, -inf, -inf, 2.0],
        [nan, nan, inf, -inf, 2.0],
    ):
        figures = compare(reference, np.array(other))
        assert figures.nonfinite == 1
        (said,) = faults(figures, FULL, None, "float32")
        assert "NaN" in said
    # Not even --tolerance accepts that.
    assert faults(compare(reference, np.zeros(5)), FULL, 10.0, "float32")


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "string"])
def test_what_is_discrete_has_to_be_equal(dtype: str) -> None:
    reference = np.arange(8).astype({"string": "S3"}.get(dtype, dtype))
    other = reference.copy()
    assert faults(compare(reference, other), FULL, None, dtype) == []
    other[-1] = reference[0]
    assert faults(compare(reference, other), FULL, None, dtype)
    quantized = TOLERANCES["int8"]
    assert faults(compare(reference, other), quantized, None, dtype), "7 of 8 are not nine tenths"
    many, close = np.zeros(20, reference.dtype), np.zeros(20, reference.dtype)
    close[0] = reference[1]
    assert bool(faults(compare(many, close), quantized, None, dtype)) is (dtype == "string")


def test_large_integers_are_not_compared_as_floats() -> None:
    reference = np.array([2**62, 5], np.int64)
    assert faults(compare(reference, reference + np.array([1, 0])), FULL, None, "int64")


def test_argmax_counts_where_there_are_many_rows() -> None:
    reference = np.tile([0.0, 1.0], (40, 1))
    other = reference.copy()
    other[:3] = [[1.0, 0.9999]] * 3
    loose = TOLERANCES["int8"]
    assert compare(reference, other).argmax == pytest.approx(37 / 40)
    tight = faults(compare(reference, other), FULL, None, "float32")
    assert any("argmax" in one for one in tight)
    loosely = faults(compare(reference, other), loose, None, "float32")
    assert not any("argmax" in one for one in loosely)
    few = faults(compare(reference[:3], other[:3]), FULL, None, "float32")
    assert not any("argmax" in one for one in few)
    assert compare(np.zeros(4), np.zeros(4)).argmax is None
    assert compare(np.zeros((4, 1)), np.zeros((4, 1))).argmax is None


def test_tolerance_alone_decides() -> None:
    reference = np.ones((40, 4))
    other = reference * 1.05
    figures = compare(reference, other)
    assert faults(figures, FULL, None, "float32")
    assert faults(figures, FULL, 0.06, "float32") == []
    assert faults(figures, TOLERANCES["int8"], 0.04, "float32")


def test_every_quantization_has_limits_and_narrower_ones_are_looser() -> None:
    assert set(QUANTIZATIONS) <= set(TOLERANCES)
    for name, one in TOLERANCES.items():
        assert one.nrmse >= FULL.nrmse
        # A limit that another makes unreachable would be no limit.
        assert 1 - one.cosine <= one.nrmse, name
        assert one.max_rel >= one.nrmse, name
    assert tolerance_of(["float32", "int8"]) == TOLERANCES["int8"]
    assert tolerance_of(["complex64"]) == FULL


def test_several_runs_count_as_their_worst() -> None:
    good, bad = (compare(np.ones((3, 2)), np.array([[1.0, value]] * 3)) for value in (1.0, 1.5))
    both = merged([good, bad])
    assert both.nrmse == bad.nrmse
    assert both.cosine == bad.cosine
    assert both.values == 12
    assert both.equal == pytest.approx(0.75)
    assert both.rows == 6
    assert merged([]) == Figures(0, 0, 0, 1.0)


def test_complex_numbers() -> None:
    reference = np.array([1 + 1j, 2 - 1j], np.complex64)
    assert compare(reference, reference).nrmse == 0.0
    turned = compare(reference, reference * 1j)
    assert turned.cosine == pytest.approx(0.0, abs=1e-6)
    assert turned.nrmse == pytest.approx(math.sqrt(2))
