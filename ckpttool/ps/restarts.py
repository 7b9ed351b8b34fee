"""Whether a process that ended is started again, and after how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["PATIENT", "Restarts"]

#: Seconds before the first, second, … start of a process that ends soon after another end.
_PAUSES = (0.0, 0.25, 0.5, 1.0, 2.0)
#: The same of one that depends on others, on other hosts maybe: they may take a minute.
PATIENT = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 15.0, 15.0)
#: An end this many seconds after the one before is not counted with it.
_FORGOTTEN = 60.0


@dataclass(slots=True)
class Restarts:
    """The ends of one process.

    Attributes:
        total: how often it was started again.
    """

    pauses: tuple[float, ...] = _PAUSES
    total: int = 0
    _last: float | None = field(default=None, init=False)
    _in_a_row: int = field(default=0, init=False)

    def after_end(self, now: float) -> float | None:
        """Seconds until it is to be started again; None: it ends again and again, give up.

        Args:
            now: seconds of any clock that only goes forward.
        """
        if self._last is not None and now - self._last > _FORGOTTEN:
            self._in_a_row = 0
        self._last = now
        if self._in_a_row >= len(self.pauses):
            return None
        pause = self.pauses[self._in_a_row]
        self._in_a_row += 1
        self.total += 1
        return pause
