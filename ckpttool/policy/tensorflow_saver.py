"""What ``tf.compat.v1.train.Saver`` keeps: its bookkeeping, replayed without files.

Facts of TensorFlow 2.21, ``tensorflow/python/training/saver.py`` (``_RecordLastCheckpoint``,
``_MaybeDeleteOldCheckpoints``). Knows names and times, no files.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Evicted", "SaverReplay", "as_float32"]

_SECONDS_PER_HOUR = 3600.0


def as_float32(value: float) -> float:
    """The nearest float32: SaverDef stores hours so, and 0.1 becomes 0.10000000149."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf")
    return rounded


@dataclass(frozen=True, slots=True)
class Evicted:
    """A checkpoint that left a Saver's list: deleted, or kept for ever.

    ``grid_time`` is the time that its save had to be after (strictly) to be kept.
    """

    prefix: str
    timestamp: float
    outcome: Literal["deleted", "preserved"]
    grid_time: float


class SaverReplay:
    """The memory of a Saver: its list and the next time of the every-N-hours grid.

    Attributes:
        last: prefix → save time in seconds, oldest first.
        next_time: the first evicted checkpoint that was saved after it is kept for ever.
    """

    __slots__ = ("_every_hours", "_max_to_keep", "last", "next_time")

    def __init__(
        self,
        max_to_keep: int | None,
        every_hours: float,
        built: float,
        *,
        recovered: Iterable[tuple[str, float]] = (),
    ) -> None:
        """A Saver built at ``built``.

        Args:
            max_to_keep: None and 0 record nothing, so nothing is ever deleted.
            every_hours: N of keep_checkpoint_every_n_hours, 0 or more.
            built: when the Saver was built, in seconds. (Constructed in eager mode, its first
                grid time alone uses the hours unrounded; this is graph mode.)
            recovered: what ``recover_last_checkpoints`` or ``set_last_checkpoints`` set.
        """
        self._max_to_keep = max_to_keep or 0
        self._every_hours = as_float32(every_hours)
        self.last: OrderedDict[str, float] = OrderedDict(recovered)
        self.next_time = built + self._every_hours * _SECONDS_PER_HOUR

    def save(self, prefix: str, timestamp: float) -> Evicted | None:
        """Record a save; at most one checkpoint, the oldest, leaves the list.

        So a recovered list that is longer than ``max_to_keep`` never shrinks. Kept ones move
        the grid by one step, however far behind it is.
        """
        if not self._max_to_keep:
            return None
        self.last.pop(prefix, None)
        self.last[prefix] = timestamp
        if len(self.last) <= self._max_to_keep:
            return None
        oldest, saved = self.last.popitem(last=False)
        grid_time = self.next_time
        if saved > grid_time:
            self.next_time += self._every_hours * _SECONDS_PER_HOUR
            return Evicted(oldest, saved, "preserved", grid_time)
        return Evicted(oldest, saved, "deleted", grid_time)
