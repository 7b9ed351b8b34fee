"""What a supervisor and those who started it tell each other."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from ckpttool.ps.run_dir import RunState

__all__ = ["Event", "StopSignal"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: ``kind`` is for programs, ``text`` for people.

    Attributes:
        task: whom it concerns: ``ps-0``.
        state: with the kind ``ready``: what ``run.json`` says.
        warns: whether a person should do something about it.
        time: seconds since the epoch.
    """

    kind: str
    text: str
    task: str | None = None
    state: RunState | None = None
    warns: bool = False
    time: float = field(default_factory=time.time)


class StopSignal(Protocol):
    """Whether to stop; ``fileno`` becomes readable then."""

    def fileno(self) -> int: ...

    @property
    def stopped(self) -> bool: ...
