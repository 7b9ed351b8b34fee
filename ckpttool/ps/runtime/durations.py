"""How long things took, in counts that can be added up: Prometheus draws them as a histogram."""

from __future__ import annotations

import threading
from bisect import bisect_left

__all__ = ["Durations"]

#: Seconds: a small snapshot takes hundredths, the export of a large model minutes.
_BOUNDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class Durations:
    """Counts since this process began, for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """One more took so long."""
        with self._lock:
            self._counts[bisect_left(_BOUNDS, seconds)] += 1
            self._sum += seconds

    def as_dict(self) -> dict[str, object]:
        """For JSON: upper bounds in seconds, how many each has, and one more count: longer ones."""
        with self._lock:
            return {"bounds": _BOUNDS, "counts": tuple(self._counts), "sum": self._sum}
