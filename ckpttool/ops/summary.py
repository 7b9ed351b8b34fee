"""A few numbers that say what an array holds: extremes, mean, spread, odd values.

Reads everything once, in pieces, and needs numpy; a caller without it does without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ckpttool.ops.load import Loaded

__all__ = ["Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts about the elements of one item.

    Attributes:
        count: elements.
        minimum, maximum, mean, std: of the finite ones (the standard deviation is the
            population's); None where there are none, and for complex numbers.
        zeros, nan, inf: elements that are zero, not a number, infinite.
    """

    count: int
    minimum: float | int | None
    maximum: float | int | None
    mean: float | None
    std: float | None
    zeros: int
    nan: int
    inf: int


def summarise(loaded: Loaded, number: int) -> Summary | None:
    """The summary of an item of numbers; None for strings, and where numpy is too little.

    Raises:
        CkpttoolError: as ``Loaded.chunks``.
    """
    from ckpttool.formats.dtypes import numpy_dtype

    item = loaded.items[number]
    if item.dtype == "string":
        return None
    try:
        import numpy as np

        dtype = numpy_dtype(item.dtype)
    except ImportError:
        return None  # numpy, or ml_dtypes, is not installed
    running = _Running()
    for piece in loaded.chunks(number):
        running.add(np.frombuffer(piece, dtype))
    return running.summary()


class _Running:
    """Sums that grow piece by piece (Chan, Golub and LeVeque: pairwise variance)."""

    def __init__(self) -> None:
        self._count = self._finite = self._zeros = self._nan = self._inf = 0
        self._minimum: float | int | None = None
        self._maximum: float | int | None = None
        self._mean = 0.0
        self._squares = 0.0

    def add(self, piece: np.ndarray) -> None:
        import numpy as np

        self._count += piece.size
        if piece.dtype.itemsize == 1 or piece.dtype.kind not in "iufc":
            # Truth values, and types of ml_dtypes: plain ones hold every value of theirs.
            integers = piece.dtype.kind == "b" or "int" in piece.dtype.name
            piece = piece.astype(np.int64 if integers else np.float32)
        self._zeros += piece.size - int(np.count_nonzero(piece))
        if piece.dtype.kind in "fc":
            nan = int(np.count_nonzero(np.isnan(piece)))
            finite = np.isfinite(piece)
            kept = int(np.count_nonzero(finite))
            self._nan += nan
            self._inf += piece.size - kept - nan
            if kept < piece.size:
                piece = piece[finite]
        if not piece.size or piece.dtype.kind == "c":
            return
        low, high = piece.min().item(), piece.max().item()
        self._minimum = low if self._minimum is None else min(low, self._minimum)
        self._maximum = high if self._maximum is None else max(high, self._maximum)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(piece.mean(dtype=np.float64))
            squares = float(np.square(piece - mean, dtype=np.float64).sum())
        total = self._finite + piece.size
        apart = mean - self._mean
        self._squares += squares + apart * apart * self._finite * piece.size / total
        self._mean += apart * piece.size / total
        self._finite = total

    def summary(self) -> Summary:
        some = self._finite > 0
        return Summary(
            count=self._count,
            minimum=self._minimum,
            maximum=self._maximum,
            mean=self._mean if some else None,
            std=math.sqrt(self._squares / self._finite) if some else None,
            zeros=self._zeros,
            nan=self._nan,
            inf=self._inf,
        )
