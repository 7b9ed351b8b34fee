"""Numbers as rows of little bars, one character each. Pure text; knows no terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["bars", "line"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#%@"


def bars(counts: Sequence[int], *, unicode: bool) -> str:
    """Counts as bars from nothing to the highest; what is not zero is seen."""
    levels = _BLOCKS if unicode else _ASCII
    most = max(counts, default=0) or 1
    top = len(levels) - 1
    return "".join(levels[0 if not n else max(1, round(n / most * top))] for n in counts)


def line(values: Sequence[float | None], *, unicode: bool) -> str:
    """A course of values between their least and largest; ``?`` where there is none."""
    levels = (_BLOCKS if unicode else _ASCII)[1:]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    top = len(levels) - 1

    def level(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return "?"
        # Halves first, for the distance may be past float64.
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        return levels[round(share * top)]

    return "".join(map(level, values))
