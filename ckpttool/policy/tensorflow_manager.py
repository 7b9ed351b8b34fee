"""What ``tf.train.CheckpointManager`` keeps: its bookkeeping, replayed without files.

Facts of TensorFlow 2.21, ``tensorflow/python/checkpoint/checkpoint_management.py``
(``CheckpointManager.__init__``, ``_sweep``, ``save``). Knows names and times, no files;
whether a file exists plays no part in TensorFlow's decision, so neither here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

__all__ = ["ManagerReplay", "Swept"]

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Swept:
    """A checkpoint that left the managed list: deleted, or preserved for ever.

    ``since_preserved`` is the time in seconds from the last preserved checkpoint to it,
    as it was when the decision was made.
    """

    prefix: str
    timestamp: float
    outcome: Literal["deleted", "preserved"]
    since_preserved: float


class ManagerReplay:
    """The memory of a CheckpointManager: the managed list and the last preserved time.

    Attributes:
        managed: prefix → save time in seconds, oldest first. What a sweep may remove.
        last_preserved: the save time of the checkpoint that was preserved last.
    """

    __slots__ = ("last_preserved", "managed")

    def __init__(self, last_preserved: float) -> None:
        self.managed: dict[str, float] = {}
        self.last_preserved = last_preserved

    @classmethod
    def started(cls, now: float) -> Self:
        """A manager built where there is no state file."""
        return cls(now - 1.0)

    @classmethod
    def recovered(
        cls,
        paths: Iterable[str],
        timestamps: Iterable[float],
        last_preserved: float,
        now: float,
    ) -> Self:
        """A manager built over a state file.

        An entry is managed only when it is younger than the last preserved one (strictly);
        without timestamps none is, so what a Saver lists is never deleted. Neither is an
        entry beyond the last timestamp. Times in the future count as ``now``.
        """
        replay = cls(min(last_preserved, now))
        for path, timestamp in zip(paths, timestamps, strict=False):
            # The order of the arguments matters for NaN, and it is TensorFlow's.
            seen = min(timestamp, now)
            if seen > replay.last_preserved:
                replay.managed[path] = seen
        return replay

    def save(self, prefix: str, timestamp: float) -> None:
        """Record a save; a prefix that was saved before moves to the end of the list."""
        self.managed.pop(prefix, None)
        self.managed[prefix] = timestamp

    def sweep(self, max_to_keep: int | None, every_hours: float | None) -> list[Swept]:
        """Come down to ``max_to_keep`` (None keeps all), oldest first.

        One that is at least ``every_hours`` younger than the last preserved one (not
        strictly) is preserved instead of deleted; None or 0 preserves none.
        """
        swept: list[Swept] = []
        if not max_to_keep:
            return swept
        # Not popped one by one: the first key of a dict that shrinks from the front costs
        # a walk over the removed ones.
        surplus = list(self.managed.items())[: max(0, len(self.managed) - max_to_keep)]
        for prefix, timestamp in surplus:
            del self.managed[prefix]
            since = timestamp - self.last_preserved
            preserve = bool(every_hours) and (
                timestamp - (every_hours or 0.0) * _SECONDS_PER_HOUR >= self.last_preserved
            )
            if preserve:
                self.last_preserved = timestamp
            swept.append(Swept(prefix, timestamp, "preserved" if preserve else "deleted", since))
        return swept
