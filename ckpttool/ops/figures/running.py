"""Figures of elements that come in pieces: one pass, exact counts, float64 sums.

Types of one or two bytes have few values: how often each occurs says everything. Of wider
ones each block is summed in float64 around its own mean, and the blocks are merged (Chan,
Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances", 1979), so a mean far from zero costs no digits of the deviation. Blocks are
small enough that what is made of one stays in the processor's cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np

from ckpttool.errors import UnsupportedError
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.ops.figures.histogram import (
    Codes,
    Floats,
    Ints,
    Values,
    count_between,
    free_edges,
    of_levels,
)
from ckpttool.ops.figures.model import Figures, Histogram, Number

__all__ = ["compute"]

#: Elements summed at once: half a megabyte as float64.
_BLOCK = 2**16
#: Up to so many elements, sorting is cheaper than a table of all codes or values.
_FEW = 2**12

#: The elements of a variable, as often as they are asked for.
Pieces = Callable[[], Iterable[bytes]]


def compute(pieces: Pieces, dtype: str, *, histogram: bool = True) -> Figures:
    """The figures of elements.

    Args:
        pieces: gives the elements from the start, little-endian, in pieces of whole ones
            (``Source.chunks``). It is called a second time for values for which one pass
            is too coarse: a large variable whose values lie close together far from zero.
        dtype: TensorFlow's word.
        histogram: whether to make one.

    Raises:
        UnsupportedError: id ``dtype-unsupported``: the type is not one of numbers.
        CkpttoolError: what ``pieces`` raises.
    """
    known = BY_NAME.get(dtype)
    if known is not None and not known.size:
        raise UnsupportedError(
            f"there are no figures of type {dtype}",
            why="its elements are no numbers",
            hint="ckpttool load prints strings",
            id="dtype-unsupported",
        )
    element = numpy_dtype(dtype)
    if element.itemsize <= 2:
        return _of_few_values(pieces(), element, histogram=histogram)
    if element.kind == "c":
        return _of_complex(pieces(), element)
    running = _Running(codes=histogram)
    for block in _blocks(pieces(), element):
        running.add(block)
    if not running.finite or not histogram:
        return running.figures(None)
    found = running.histogram()
    if found is None:
        assert running.low is not None, "there are finite values"
        assert running.high is not None
        finite = (block[np.isfinite(block)] for block in _blocks(pieces(), element))
        found = count_between(free_edges(running.low, running.high), finite)
    return running.figures(found)


def _blocks(pieces: Iterable[bytes], element: np.dtype) -> Iterator[Values]:
    for piece in pieces:
        values = np.frombuffer(piece, element)
        for at in range(0, values.size, _BLOCK):
            yield values[at : at + _BLOCK]


# Types of one or two bytes ----------------------------------------------------------------


def _of_few_values(pieces: Iterable[bytes], element: np.dtype, *, histogram: bool) -> Figures:
    counts = _count_values(pieces, element.itemsize)
    present = np.flatnonzero(counts)
    weights = counts[present]
    values = _values(element)[present]
    if element.kind == "b" or "int" in element.name:
        values = values.astype(np.int64)
    finite = np.isfinite(values)
    nan = int(weights[np.isnan(values)].sum())
    count, kept = int(weights.sum()), int(weights[finite].sum())
    values, weights = values[finite], weights[finite]
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    if not kept:
        return Figures(count, None, None, None, None, 0, nan, count - nan, None, None)
    mean = float((values * weights).sum() / kept)
    squares = float((np.square(values - mean) * weights).sum())
    return Figures(
        count=count,
        minimum=values[0].item(),
        maximum=values[-1].item(),
        mean=mean,
        std=math.sqrt(squares / kept),
        zeros=int(weights[values == 0].sum()),
        nan=nan,
        inf=count - kept - nan,
        norm=math.sqrt(float((np.square(values, dtype=np.float64) * weights).sum())),
        histogram=of_levels(values, weights) if histogram else None,
    )


def _count_values(pieces: Iterable[bytes], itemsize: int) -> Ints:
    """How often each bit pattern occurs."""
    counts = np.zeros(2 ** (8 * itemsize), np.intp)
    for piece in pieces:
        patterns = np.frombuffer(piece, "u1" if itemsize == 1 else "<u2")
        if patterns.size <= _FEW:
            np.add.at(counts, patterns, 1)
            continue
        for at in range(0, patterns.size, 4 * _BLOCK):
            counts += np.bincount(patterns[at : at + 4 * _BLOCK], minlength=counts.size)
    return counts


@lru_cache(maxsize=8)
def _values(element: np.dtype) -> Floats:
    """The value of each bit pattern; of types narrower than a byte the low bits count."""
    unsigned = np.uint8 if element.itemsize == 1 else np.uint16
    patterns = np.arange(2 ** (8 * element.itemsize), dtype=unsigned)
    if element.kind == "b":
        return np.asarray(patterns != 0, np.float64)
    with np.errstate(invalid="ignore"):
        return np.asarray(patterns.view(element), np.float64)


# Wider types ------------------------------------------------------------------------------


class _Running:
    """Sums that grow block by block.

    Attributes:
        low, high: the extremes of the finite elements so far.
        finite: how many those are.
    """

    def __init__(self, *, codes: bool) -> None:
        self.low: Number | None = None
        self.high: Number | None = None
        self.finite = 0
        self._count = self._zeros = self._nan = self._inf = 0
        self._mean = 0.0
        self._squares = 0.0
        self._buffer = np.empty(_BLOCK)
        self._wanted = codes
        self._few: Values | None = None
        self._codes: Codes | None = None

    def add(self, block: Values) -> None:
        """Add at most a block of elements."""
        self._count += block.size
        if not block.size:
            return
        low, high = block.min(), block.max()
        if block.dtype.kind == "f" and not (np.isfinite(low) and np.isfinite(high)):
            finite = np.isfinite(block)
            nan = int(np.count_nonzero(np.isnan(block)))
            self._nan += nan
            self._inf += block.size - int(np.count_nonzero(finite)) - nan
            block = block[finite]
            if not block.size:
                return
            low, high = block.min(), block.max()
        if low <= 0 <= high:
            self._zeros += block.size - int(np.count_nonzero(block != 0))
        self.low = low.item() if self.low is None else min(self.low, low.item())
        self.high = high.item() if self.high is None else max(self.high, high.item())
        if self._wanted:
            self._add_codes(block)
        values = self._buffer[: block.size]
        np.copyto(values, block)
        self._merge(values)

    def _merge(self, values: Floats) -> None:
        """Add the sums of finite values, which are overwritten."""
        size = values.size
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(values.sum()) / size
            if not math.isfinite(mean):  # a sum past float64, of values that are not
                mean = float((values / size).sum())
            np.subtract(values, mean, out=values)
            np.square(values, out=values)  # no dot product: BLAS would take every processor
            squares = float(values.sum())
        total = self.finite + size
        share = size / total
        apart = mean - self._mean
        if not self.finite:
            self._mean, self._squares = mean, squares
        elif math.isinf(apart):
            self._mean = self._mean * (1 - share) + mean * share
            self._squares = math.inf
        else:
            self._mean += apart * share
            self._squares += squares + apart * apart * self.finite * share
        self.finite = total

    def _add_codes(self, block: Values) -> None:
        if self._codes is None:
            if self._few is None and block.size <= _FEW:
                self._few = block
                return
            self._codes = Codes(_BLOCK)
            if self._few is not None:
                self._code(self._codes, self._few)
        self._code(self._codes, block)

    def _code(self, codes: Codes, values: Values) -> None:
        if values.dtype == np.float32:
            codes.add32(values.view(np.float32))
        else:
            codes.add64(values.astype(np.float64, copy=False))

    def histogram(self) -> Histogram | None:
        """The histogram; None where one pass was not enough."""
        assert self.low is not None, "the caller has seen finite values"
        assert self.high is not None
        if self.low == self.high:
            return Histogram((self.low, self.high), (self.finite,))
        if self._codes is not None:
            return self._codes.histogram(self.low, self.high)
        assert self._few is not None, "what is not few has codes"
        levels, counts = np.unique(self._few, return_counts=True)
        return of_levels(levels, counts)

    def figures(self, histogram: Histogram | None) -> Figures:
        """All figures, with a histogram that was made of the same elements."""
        some = self.finite > 0
        mean_square = self._squares + self._mean * self._mean * self.finite
        return Figures(
            count=self._count,
            minimum=self.low,
            maximum=self.high,
            mean=self._mean if some else None,
            std=math.sqrt(self._squares / self.finite) if some else None,
            zeros=self._zeros,
            nan=self._nan,
            inf=self._inf,
            norm=math.sqrt(mean_square) if some else None,
            histogram=histogram,
        )


def _of_complex(pieces: Iterable[bytes], element: np.dtype) -> Figures:
    """Counts and the norm: complex numbers have no order, so no extremes and no bins."""
    half = np.dtype("<f4") if element.itemsize == 8 else np.dtype("<f8")
    count = kept = zeros = nan = 0
    squares = 0.0
    for block in _blocks(pieces, half):
        values = block.astype(np.float64).reshape(-1, 2)  # real and imaginary parts
        finite = np.isfinite(values).all(axis=1)
        count += finite.size
        kept += int(np.count_nonzero(finite))
        nan += int(np.count_nonzero(np.isnan(values).any(axis=1)))
        zeros += int(np.count_nonzero(~values.any(axis=1)))
        with np.errstate(over="ignore"):
            squares += float(np.square(values[finite]).sum())
    norm = math.sqrt(squares) if kept else None
    return Figures(count, None, None, None, None, zeros, nan, count - kept - nan, norm, None)
