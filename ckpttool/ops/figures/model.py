"""What the figures of a variable are, without numpy: for those who show them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BINS", "Figures", "Histogram", "Number"]

#: Bins of a histogram, as far as the values allow so many.
BINS = 20

Number = int | float


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often which values occur.

    ``edges`` rise and are one more than ``counts``. A bin holds what is at least its left
    edge and less than its right one, the last bin its right edge too (as
    ``numpy.histogram``). The outermost edges are the least and the largest value; where
    all are equal, the one bin has both edges there.
    """

    edges: tuple[Number, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Facts about the elements of a variable, or of a part of one.

    Everything but the counts is of the finite elements, and None where there are none. A
    figure that float64 cannot hold (the norm of float64 values past 1e154) is infinite.

    Attributes:
        count: elements.
        minimum, maximum: extremes, exact for integers; None for complex numbers.
        mean, std: mean and (population's) standard deviation; None for complex numbers.
        zeros, nan, inf: elements that are zero, not a number, infinite. A complex number
            is not a number or infinite when a part of it is.
        norm: Euclidean.
        histogram: None for complex numbers, and where it was not asked for.
    """

    count: int
    minimum: Number | None
    maximum: Number | None
    mean: float | None
    std: float | None
    zeros: int
    nan: int
    inf: int
    norm: float | None
    histogram: Histogram | None

    @property
    def bad(self) -> bool:
        """Whether an element is NaN or infinite."""
        return bool(self.nan or self.inf)
