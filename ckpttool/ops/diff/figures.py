"""How far two streams of numbers are apart: figures that are added up block by block.

Needs numpy, and is imported only where bytes differ. The blocks are small enough to stay
in a processor's cache, so that a gigabyte takes a second and no memory. Differences are
taken in float64 (complex128), those of integers exactly. Knows no file.
"""

from __future__ import annotations

import math

import numpy as np

from ckpttool.formats.dtypes import numpy_dtype

__all__ = ["Figures"]

#: Elements that are worked on at once: a few arrays of them fit into a second-level cache.
_BLOCK = 2**15


class Figures:
    """Figures over the elements that ``add`` has been given; see ``facts.ValuesDiffer``.

    Args:
        dtype_a: TensorFlow's word for the elements of A; of a fixed size.
        dtype_b: the same of B; where they are not the same, numbers are compared.
        rtol, atol: elements differ where ``|a - b| > atol + rtol * max(|a|, |b|)``; with
            both 0 where their bits do, but any NaN equals any NaN.
    """

    def __init__(self, dtype_a: str, dtype_b: str, *, rtol: float, atol: float) -> None:
        self._dtypes = numpy_dtype(dtype_a), numpy_dtype(dtype_b)
        self._same_dtype = dtype_a == dtype_b
        self._integers = all(dtype.kind in "iub" for dtype in self._dtypes)
        self._rtol, self._atol = rtol, atol
        self.differing = self.infinite = 0
        self.nan_a = self.nan_b = self.nan_both = 0
        self.max_abs: float | int = 0
        self.max_rel = 0.0
        self._squares = 0.0
        self._met = False

    @property
    def met(self) -> bool:
        """Whether two numbers faced each other at all."""
        return self._met

    def rms(self, elements: int) -> float:
        """The root of the mean square over so many elements, those not added being equal."""
        return math.sqrt(self._squares / elements) if elements else 0.0

    def add(self, a: bytes | memoryview, b: bytes | memoryview) -> None:
        """Take in elements of both sides, equally many."""
        left, right = np.frombuffer(a, self._dtypes[0]), np.frombuffer(b, self._dtypes[1])
        with np.errstate(all="ignore"):
            for at in range(0, left.size, _BLOCK):
                self._block(left[at : at + _BLOCK], right[at : at + _BLOCK])

    def _block(self, a: np.ndarray, b: np.ndarray) -> None:
        unequal: np.ndarray | None = None
        if self._same_dtype:
            bits = np.dtype(f"V{a.itemsize}") if a.itemsize > 8 else np.dtype(f"u{a.itemsize}")
            unequal = a.view(bits) != b.view(bits)
            if not unequal.any():
                return
        if self._integers and self._same_dtype:
            self._whole_numbers(a, b)
        else:
            self._numbers(_plain(a), _plain(b), unequal)

    def _whole_numbers(self, a: np.ndarray, b: np.ndarray) -> None:
        """Integers of one dtype: a difference fits into the unsigned one of its size."""
        if a.dtype.kind == "b":
            a, b = a.view(np.uint8), b.view(np.uint8)
        unsigned = np.dtype(f"u{a.itemsize}")
        apart = np.maximum(a, b).view(unsigned) - np.minimum(a, b).view(unsigned)
        self.max_abs = max(self.max_abs, int(apart.max()))
        self._figure(
            apart.astype(np.float64),
            np.maximum(np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))),
            None,
        )

    def _numbers(self, a: np.ndarray, b: np.ndarray, unequal: np.ndarray | None) -> None:
        wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
        apart = np.subtract(a, b, dtype=wide)
        size = np.maximum(np.abs(a), np.abs(b))
        apart = np.abs(apart, out=None if wide is np.complex128 else apart)
        largest = float(apart.max())
        if not math.isfinite(largest):
            keep = self._special(a, b, apart)
            apart, size = apart[keep], size[keep]
            unequal = None if unequal is None else unequal[keep]
            largest = float(apart.max(initial=0.0))
        if apart.size:
            self.max_abs = max(self.max_abs, largest)
            self._figure(apart, size, unequal)

    def _special(self, a: np.ndarray, b: np.ndarray, apart: np.ndarray) -> np.ndarray:
        """Count NaNs and what is infinitely far apart; gives which elements remain."""
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        self.nan_a += int((nan_a & ~nan_b).sum())
        self.nan_b += int((nan_b & ~nan_a).sum())
        self.nan_both += int((nan_a & nan_b).sum())
        nan = nan_a | nan_b
        infinite = ~nan & (a != b) & ~np.isfinite(apart)
        far = int(infinite.sum())
        self.infinite += far
        self.differing += far + int((nan_a ^ nan_b).sum())
        if far:
            self._met = True
            self.max_abs, self.max_rel = math.inf, max(self.max_rel, 1.0)
        remain: np.ndarray = np.isfinite(apart)  # no NaN, and no two equal infinities
        return remain

    def _figure(self, apart: np.ndarray, size: np.ndarray, unequal: np.ndarray | None) -> None:
        """Finite differences, and the larger magnitude of each pair."""
        self._met = True
        self._squares += float(np.einsum("i,i->", apart, apart))
        if self._rtol or self._atol:
            beyond = apart > self._atol + self._rtol * size
            self.differing += int(np.count_nonzero(beyond))
        else:
            self.differing += int(np.count_nonzero(apart if unequal is None else unequal))
        # Where a difference is not 0, a magnitude is at least the smallest positive number.
        smallest = np.finfo(size.dtype).smallest_subnormal
        np.maximum(size, smallest, out=size)
        self.max_rel = max(self.max_rel, float(np.divide(apart, size, out=apart).max()))


def _plain(array: np.ndarray) -> np.ndarray:
    """The array in a dtype that numpy computes in quickly, without loss but for 64-bit integers."""
    kind = array.dtype.kind
    if kind == "c" or (kind == "f" and array.dtype.itemsize > 2):
        return array
    wider: np.ndarray = array.astype(np.float64 if kind in "iub" else np.float32)
    return wider
