"""What a retention policy is told, and what it answers: plain frozen data.

Times are seconds since the epoch. Whoever fills these in reads files; nothing here does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "BestRule",
    "CheckpointFacts",
    "Decision",
    "LeftoverDecision",
    "LeftoverFacts",
    "Order",
    "Outcome",
    "Reason",
    "Retention",
    "RunFacts",
    "Verdict",
]

Order = Literal["state", "name", "step", "time"]
Verdict = Literal["keep", "delete", "leave"]


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """One checkpoint of a directory.

    Attributes:
        prefix: its name in the directory, such as ``ckpt-12``.
        series: the name without the number (``ckpt``): what one writer calls its saves.
        number: the number at the end of the name.
        step: the step stored inside, where it was looked up.
        saved: when it was written: the time of its index.
        changed: when any of its files, or of the temporary ones of a save of it, changed last.
        nbytes: all of its files together.
        missing: why it is not whole; empty when it is.
        unknown: why that cannot be told, so that it is neither counted nor removed.
        v2: whether it is a V2 checkpoint, the kind that is gone on from.
        listed: its place in the state file's list, 0 the oldest; None when it is not there.
        stamp: the state file's time for it.
        named_by: what else points to it: state files that name it.
        pinned: the pin that matches it.
        preserved: why it is taken for one that TensorFlow preserved for ever.
    """

    prefix: str
    series: str
    number: int | None
    saved: float
    changed: float
    nbytes: int
    step: int | None = None
    missing: str = ""
    unknown: str = ""
    v2: bool = True
    listed: int | None = None
    stamp: float | None = None
    named_by: tuple[str, ...] = ()
    pinned: str = ""
    preserved: str = ""

    @property
    def time(self) -> float:
        """When it was saved: the state file's word where there is one, else the file's."""
        return self.saved if self.stamp is None or math.isnan(self.stamp) else self.stamp

    @property
    def position(self) -> int | None:
        """The step as far as it is known: stored inside, else the number in the name."""
        return self.number if self.step is None else self.step


@dataclass(frozen=True, slots=True)
class LeftoverFacts:
    """A file or directory that a save left behind and that belongs to no checkpoint.

    ``unproven`` is why it may be another program's; empty where a save of this run left it.
    """

    name: str
    changed: float
    nbytes: int
    why: str
    unproven: str = ""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The checkpoints of one directory, and what its state file says of them all.

    ``stamped`` says whether the state file has times (a CheckpointManager's does, a
    Saver's does not); ``last_preserved`` is its time of the last preserved checkpoint.
    """

    checkpoints: tuple[CheckpointFacts, ...]
    leftovers: tuple[LeftoverFacts, ...] = ()
    stamped: bool = False
    last_preserved: float = 0.0


@dataclass(frozen=True, slots=True)
class BestRule:
    """Keep the ``count`` best by a metric; ``scores`` has a number for some prefixes."""

    label: str
    mode: Literal["min", "max"]
    count: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Retention:
    """What to keep. Keep rules unite; ``max_total_bytes`` bounds what they keep.

    Hours as TensorFlow has them; ``within`` and ``min_age`` in seconds. ``since`` is when
    the Saver was built; None stands for the time of the oldest checkpoint. With
    ``include_preserved`` whoever gathers the facts marks nothing as preserved.
    """

    style: Literal["manager", "saver"] = "manager"
    scope: Literal["listed", "all"] = "listed"
    max_to_keep: int | None = None
    every_n_hours: float | None = None
    since: float | None = None
    every_n_steps: int | None = None
    within: float | None = None
    best: tuple[BestRule, ...] = ()
    max_total_bytes: int | None = None
    broken: bool = False
    include_preserved: bool = False
    min_age: float = 60.0
    order: Order | None = None

    @property
    def has_keep_rule(self) -> bool:
        """Whether anything says what to keep; without, everything in scope stays."""
        return (
            self.max_to_keep is not None
            or self.every_n_steps is not None
            or self.within is not None
            or bool(self.best)
        )


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a checkpoint stays or goes: a stable word and a sentence for a person."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to one checkpoint: kept, deleted, or left alone as out of scope.

    ``unless`` says what would have kept one that goes.
    """

    checkpoint: CheckpointFacts
    verdict: Verdict
    reasons: tuple[Reason, ...]
    unless: str = ""


@dataclass(frozen=True, slots=True)
class LeftoverDecision:
    """What happens to a leftover, and why."""

    leftover: LeftoverFacts
    verdict: Verdict
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """All decisions, oldest checkpoint first, and what they came from.

    Attributes:
        order: what the order of the checkpoints was taken from.
        counted: prefixes that fill a quota, so that they have to be whole indeed.
        unlisted: prefixes that TensorFlow would have taken off the state file's list
            while keeping their files.
        last_preserved: the state file's new time of the last preserved checkpoint.
        warnings: what a person should know about the decisions.
    """

    decisions: tuple[Decision, ...]
    leftovers: tuple[LeftoverDecision, ...]
    order: Order
    counted: frozenset[str]
    unlisted: frozenset[str]
    last_preserved: float
    warnings: tuple[str, ...] = field(default=())

    def of(self, verdict: Verdict) -> list[Decision]:
        """The decisions of one kind, oldest first."""
        return [decision for decision in self.decisions if decision.verdict == verdict]
