"""How far a result is from its reference, and how far it may be; pure but for numpy.

Nothing is compared element by element in relation to itself: an element near zero makes
any good result look bad. What is measured is the error of an output as a whole:

- **nrmse**: root of the mean squared error over the root of the mean square of the
  reference: 0 for the same, 1 for a result of zeros;
- **cosine**: of the angle between the two;
- **max_rel**: the largest error over the largest value of the reference;
- **argmax**: the share of rows (along the last axis) whose largest element is the same one;
- **equal**: the share of elements that are equal, for integers, booleans and text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["TOLERANCES", "Figures", "Tolerance", "compare", "faults", "merged", "tolerance_of"]

#: Rows below which one that disagrees is chance, and no share of them is asked for.
_MANY_ROWS = 32


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is accepted; ``argmax`` also of ``equal``, where results are not exact."""

    nrmse: float
    cosine: float
    max_rel: float
    argmax: float
    exact: bool = False


#: Precision → what is accepted. A precision is a dtype or a word of ``--quantize``. The
#: figures are some ten times what good conversions of trained models were measured to have.
TOLERANCES = {
    "float64": Tolerance(1e-4, 0.99999, 1e-3, 0.99, exact=True),
    "float32": Tolerance(1e-4, 0.99999, 1e-3, 0.99, exact=True),
    "float16": Tolerance(5e-3, 0.9999, 2e-2, 0.98),
    "bfloat16": Tolerance(3e-2, 0.999, 1e-1, 0.95),
    "uint16": Tolerance(1e-3, 0.9999, 5e-3, 0.99),
    "int16x8": Tolerance(5e-2, 0.995, 1e-1, 0.95),
    "dynamic-int8": Tolerance(5e-2, 0.995, 1e-1, 0.95),
    "uint8": Tolerance(5e-2, 0.995, 1e-1, 0.95),
    "int8": Tolerance(1e-1, 0.99, 2e-1, 0.9),
}
_FULL = TOLERANCES["float32"]


@dataclass(frozen=True, slots=True)
class Figures:
    """The distance of one output from its reference.

    Attributes:
        values: how many elements were compared.
        nonfinite: elements that are NaN or infinite on one side and not so on the other.
        finite: elements that are finite on both sides; the figures below are of these.
        equal: the share of equal elements.
        nrmse, cosine, max_abs, max_rel: None where the elements are no numbers.
        argmax: None where there are no rows of at least two elements.
        rows: how many rows ``argmax`` is of.
    """

    values: int
    nonfinite: int
    finite: int
    equal: float
    nrmse: float | None = None
    cosine: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    argmax: float | None = None
    rows: int = 0


def tolerance_of(precisions: Sequence[str]) -> Tolerance:
    """The most generous of some precisions; of one that is unknown, that of float32."""
    return max((TOLERANCES.get(one, _FULL) for one in precisions), key=lambda one: one.nrmse)


def compare(reference: np.ndarray, result: np.ndarray) -> Figures:
    """The distance of two arrays of one shape and one kind of elements."""
    import numpy as np

    if reference.dtype.kind in "SUO":
        same = np.asarray(reference == result)
        return Figures(same.size, 0, same.size, _share(same))
    wide = np.complex128 if reference.dtype.kind == "c" else np.float64
    a, b = np.asarray(reference, wide), np.asarray(result, wide)
    finite = np.isfinite(a) & np.isfinite(b)
    same_kind = finite | (np.isnan(a) & np.isnan(b)) | (a == b)
    # Integers of 64 bits are compared as they are: a float would hide their last bits.
    equal = _share((reference == result) | (np.isnan(a) & np.isnan(b)))
    argmax, rows = _argmax(a, b)
    kept = finite.ravel()
    x, y = a.ravel()[kept], b.ravel()[kept]
    nrmse, cosine, max_abs, max_rel = _distance(x, y)
    nonfinite = int(a.size - np.count_nonzero(same_kind))
    return Figures(a.size, nonfinite, x.size, equal, nrmse, cosine, max_abs, max_rel, argmax, rows)


def merged(parts: Sequence[Figures]) -> Figures:
    """The figures of several runs as one: the worst of each, shares by their weight."""
    values = sum(one.values for one in parts)
    rows = sum(one.rows for one in parts)
    ranked = [one for one in parts if one.argmax is not None]
    return Figures(
        values,
        sum(one.nonfinite for one in parts),
        sum(one.finite for one in parts),
        sum(one.equal * one.values for one in parts) / values if values else 1.0,
        _worst([one.nrmse for one in parts]),
        _worst([one.cosine for one in parts], least=True),
        _worst([one.max_abs for one in parts]),
        _worst([one.max_rel for one in parts]),
        sum((one.argmax or 0.0) * one.rows for one in ranked) / rows if rows else None,
        rows,
    )


def faults(figures: Figures, tolerance: Tolerance, given: float | None, dtype: str) -> list[str]:
    """What is beyond the limits, in words; empty where nothing is.

    Args:
        figures: of an output.
        tolerance: what its precision allows.
        given: ``--tolerance``: then the NRMSE alone decides.
        dtype: of the output, in TensorFlow's word.
    """
    found = []
    if figures.nonfinite:
        found.append(
            f"{figures.nonfinite} of {figures.values} values are NaN or infinite on one side only"
        )
    if not dtype.startswith(("float", "bfloat", "complex")):
        return found + _of_discrete(figures, tolerance, given, dtype)
    if given is not None:
        tolerance = Tolerance(given, -math.inf, math.inf, -math.inf)
    for name, value, limit in (
        ("NRMSE", figures.nrmse, tolerance.nrmse),
        ("largest error in relation to the largest value", figures.max_rel, tolerance.max_rel),
    ):
        if value is not None and value > limit:
            found.append(f"{name} {value:.2g}, over {limit:.2g}")
    shares = [("cosine", figures.cosine, tolerance.cosine)]
    if figures.rows >= _MANY_ROWS:
        shares.append(("same argmax", figures.argmax, tolerance.argmax))
    for name, value, limit in shares:
        if value is not None and value < limit:
            found.append(f"{name} {value:.6g}, under {limit:.6g}")
    return found


def _of_discrete(
    figures: Figures, tolerance: Tolerance, given: float | None, dtype: str
) -> list[str]:
    if figures.equal == 1.0:
        return []
    if given is not None and figures.nrmse is not None:
        over = figures.nrmse > given
        return [f"NRMSE {figures.nrmse:.2g}, over {given:.2g}"] if over else []
    limit = 1.0 if tolerance.exact or dtype == "string" else tolerance.argmax
    if figures.equal >= limit:
        return []
    return [f"{figures.equal:.4g} of the values are equal, and {limit:g} have to be"]


def _distance(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """NRMSE, cosine, largest error, and that over the largest value, of finite elements.

    Where the reference is zero everywhere there is nothing to relate to: absolute errors.
    """
    import numpy as np

    if not x.size:
        return 0.0, 1.0, 0.0, 0.0
    largest = float(np.max(np.abs(x)))
    scale = largest or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(y - x)
        # In units of the largest value, whose square is always a number.
        size = float(np.sqrt(np.mean(np.abs(x / scale) ** 2)))
        other = float(np.sqrt(np.mean(np.abs(y / scale) ** 2)))
        off = float(np.sqrt(np.mean((error / scale) ** 2)))
        product = float(np.mean((x / scale * np.conj(y / scale)).real))
    max_abs = float(np.max(error))
    nrmse = off / size if size else off
    one_is_zero = 1.0 if size == other else 0.0
    cosine = min(1.0, product / (size * other)) if size and other else one_is_zero
    return nrmse, cosine, max_abs, max_abs / scale


def _argmax(a: np.ndarray, b: np.ndarray) -> tuple[float | None, int]:
    import numpy as np

    if a.ndim < 2 or a.shape[-1] < 2 or not a.size or np.iscomplexobj(a):
        return None, 0
    same = np.argmax(a, axis=-1) == np.argmax(b, axis=-1)
    return _share(same), same.size


def _share(same: np.ndarray) -> float:
    return float(same.mean()) if same.size else 1.0


def _worst(values: Sequence[float | None], *, least: bool = False) -> float | None:
    found = [one for one in values if one is not None]
    if not found:
        return None
    return min(found) if least else max(found)
