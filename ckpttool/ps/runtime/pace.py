"""How quickly a copy is fetched, so that the training beside it goes on.

Fetching takes the processor from servers, workers and coordinator alike, so what it costs
them is a matter of how many bytes a second pass. Knows neither TensorFlow nor files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Pace"]

#: Seconds that may be caught up with after something else (a disk) has held the bytes.
_CATCH_UP = 0.25


class Pace:
    """Lets so many bytes a second pass.

    Args:
        rate: bytes a second; 0: all that come.
        busy: whether anybody trains; nothing is held where nobody does.
        hurry: when it is set nothing is held any more.
    """

    def __init__(self, rate: float, busy: Callable[[], bool], hurry: threading.Event) -> None:
        self._rate = rate
        self._busy = busy
        self._hurry = hurry
        self._due = time.monotonic()

    def passed(self, nbytes: int) -> None:
        """So many bytes have passed: wait until there may be more."""
        if not self._rate:
            return
        now = time.monotonic()
        self._due = max(self._due, now - _CATCH_UP) + nbytes / self._rate
        if self._due > now and self._busy():
            self._hurry.wait(self._due - now)
