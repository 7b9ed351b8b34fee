"""Whether a process that ended is started again, and after how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Restarts"]

#: Seconds before the first, second, … start after an end that came soon after another.
_PAUSES = (0.0, 0.25, 0.5, 1.0, 2.0)
#: An end this many seconds after the one before is not counted with it.
_FORGOTTEN = 60.0


@dataclass(slots=True)
class Restarts:
    """The ends of one process.

    Attributes:
        total: how often it was started again.
    """

    total: int = 0
    _ends: list[float] = field(default_factory=list)

    def after_end(self, now: float) -> float | None:
        """Seconds until it is to be started again; None: it ends again and again, give up.

        Args:
            now: seconds of any clock that only goes forward.
        """
        self._ends = [end for end in self._ends if now - end < _FORGOTTEN]
        if len(self._ends) >= len(_PAUSES):
            return None
        pause = _PAUSES[len(self._ends)]
        self._ends.append(now)
        self.total += 1
        return pause
