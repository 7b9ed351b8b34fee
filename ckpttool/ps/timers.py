"""What a loop has to do later, in order of time."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

__all__ = ["Timers"]


class Timers:
    """Calls that are due at a time of ``time.monotonic``."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have something called by ``run`` once so many seconds are over."""
        heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._order), call))

    def wait(self) -> float | None:
        """Seconds until something is due; None: nothing will be."""
        return max(0.0, self._calls[0][0] - time.monotonic()) if self._calls else None

    def run(self) -> None:
        """Call what is due."""
        while self._calls and self._calls[0][0] <= time.monotonic():
            heapq.heappop(self._calls)[2]()
