"""The plan of a prune: what goes, what stays and why, with all that applying it has to check.

A plan is data: shown, saved, applied later. Making one reads and never writes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ckpttool.formats.state import CheckpointState
from ckpttool.limits import Limits, default_limits
from ckpttool.ops.prune.apply import JOURNAL_NAME, interrupted
from ckpttool.ops.prune.facts import Request, decide_proven, gather
from ckpttool.ops.prune.removal import Removal
from ckpttool.ops.prune.state_change import activity, without
from ckpttool.ops.prune.survey import Survey, leftover_removal, removal_of, survey
from ckpttool.policy.facts import Decision, Outcome, Reason
from ckpttool.policy.settings import check_retention
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory

if TYPE_CHECKING:
    from ckpttool.ops.prune.execute import PruneResult

__all__ = ["PrunePlan", "StateChange", "make_plan", "plan_prune", "read_whole"]


@dataclass(frozen=True, slots=True)
class StateChange:
    """What the state file is to say; ``seen`` and ``before`` are the file as it was read.

    ``state`` is None where the file goes, because it would name nothing.
    """

    seen: FileStat
    before: bytes
    state: CheckpointState | None


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What a prune would do to one directory.

    Attributes:
        directory: its path as given.
        identity: its device and inode.
        request: what was asked for.
        outcome: every decision with its reasons.
        removals: what goes, in the order in which it goes.
        left_alone: path and reason of what is out of scope or must not be touched.
        state: the change of the state file; None where nothing changes in it.
        unfinished: how many checkpoints an interrupted run still has to remove.
        warnings: what a person should know.
    """

    directory: str
    identity: tuple[int, int]
    request: Request
    outcome: Outcome
    removals: tuple[Removal, ...]
    left_alone: tuple[tuple[str, str], ...]
    state: StateChange | None
    unfinished: int
    warnings: tuple[str, ...] = field(default=())

    @property
    def keep(self) -> list[Decision]:
        """What stays by the policy, oldest first."""
        return self.outcome.of("keep")

    @property
    def delete(self) -> list[Decision]:
        """The checkpoints that go by the policy, oldest first."""
        return self.outcome.of("delete")

    @property
    def leftovers(self) -> list[Removal]:
        """What goes and is no checkpoint: what interrupted saves left."""
        checkpoints = {decision.checkpoint.prefix for decision in self.delete}
        return [removal for removal in self.removals if removal.prefix not in checkpoints]

    @property
    def nbytes(self) -> int:
        """Bytes of everything that goes."""
        return sum(removal.nbytes for removal in self.removals)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.removals or self.state or self.unfinished)

    def apply(self, *, trash: bool = False) -> PruneResult:
        """Carry it out; see ``execute.apply_plan``, which says what it checks and raises."""
        from ckpttool.ops.prune.execute import apply_plan

        return apply_plan(self, trash=trash)


def plan_prune(
    path: str, request: Request, *, limits: Limits | None = None, now: float | None = None
) -> PrunePlan:
    """Plan the pruning of a run directory. Reads only.

    Args:
        path: the directory.
        request: what to keep; see ``policy.facts.Retention``.
        limits: bounds on what files may claim.
        now: the time to reckon with, in seconds since the epoch; default: the clock's.

    Raises:
        UsageError, RefusedError: the policy says nothing, would leave nothing, or the order
            of the checkpoints is in doubt (see ``policy.retention.decide``).
        NotFoundError, CorruptError, LimitError, PermissionDeniedError, StorageError: the
            directory or its state file cannot be read.
    """
    if not request.best:  # else `decide` checks, when the metrics have been read
        check_retention(request.retention)
    with open_directory(path) as directory:
        return make_plan(directory, request, limits or default_limits(), now)


def make_plan(
    directory: LocalDirectory, request: Request, limits: Limits, now: float | None = None
) -> PrunePlan:
    """As ``plan_prune``, of an open directory."""
    found = survey(directory, limits, request.state_name)
    # After the survey, so that nothing that it saw lies in this clock's future.
    now = time.time() if now is None else now
    gathered = gather(directory, found, request, limits)
    outcome = decide_proven(directory, gathered, found, limits, now)
    left_alone = [*_left(outcome), *gathered.foreign, *found.opaque.items()]
    left_alone += [(name, "it is a run of its own (--recursive)") for name in found.nested]
    if request.retention.scope == "all":
        left_alone += found.unclassified.items()
    removals, outcome = _removals(directory, found, outcome, left_alone)
    own = directory.itself()
    warnings = [*gathered.warnings, *outcome.warnings]
    state = _state_change(directory, found, outcome, limits)
    if state is not None:
        busy = activity(state.seen, found.newest_change, request.retention.min_age, now)
        if busy:
            warnings.append(f"the state file is left as it is: {busy}")
            state = None
    unfinished = len(interrupted(directory)) if directory.stat(JOURNAL_NAME) else 0
    return PrunePlan(
        directory.path,
        (own.device, own.inode),
        request,
        outcome,
        tuple(removals),
        tuple(left_alone),
        state,
        unfinished,
        tuple(warnings),
    )


def _left(outcome: Outcome) -> list[tuple[str, str]]:
    left = [
        (decision.checkpoint.prefix, "; ".join(reason.text for reason in decision.reasons))
        for decision in outcome.of("leave")
    ]
    left += [
        (item.leftover.name, item.reason.text)
        for item in outcome.leftovers
        if item.verdict != "delete"
    ]
    return left


def _removals(
    directory: LocalDirectory,
    found: Survey,
    outcome: Outcome,
    left_alone: list[tuple[str, str]],
) -> tuple[list[Removal], Outcome]:
    """The files of everything that goes; what is not as surveyed is left alone after all."""
    removals = []
    decisions = []
    for decision in outcome.decisions:
        if decision.verdict == "delete":
            removal = removal_of(directory, found.stored[decision.checkpoint.prefix])
            if removal is None:
                why = "it changed while it was looked at"
                left_alone.append((decision.checkpoint.prefix, why))
                reasons = (Reason("changed", why),)
                decisions.append(replace(decision, verdict="leave", reasons=reasons, unless=""))
                continue
            removals.append(removal)
        decisions.append(decision)
    going = {item.leftover.name for item in outcome.leftovers if item.verdict == "delete"}
    for leftover in found.run.leftovers:
        if leftover.name in going:
            one = leftover_removal(directory, leftover)
            if isinstance(one, str):
                left_alone.append((leftover.name, one))
            else:
                removals.append(one)
    return removals, replace(outcome, decisions=tuple(decisions))


def _state_change(
    directory: LocalDirectory,
    found: Survey,
    outcome: Outcome,
    limits: Limits,
) -> StateChange | None:
    file = found.run.state_file
    if file is None or file.state is None or found.state_stat is None:
        return None
    dropped = {decision.checkpoint.prefix for decision in outcome.of("delete")}
    state = without(
        file.state,
        found.run.listed,
        dropped | outcome.unlisted,
        last_preserved=outcome.last_preserved
        if file.state.last_preserved_timestamp is not None
        else None,
    )
    if state == file.state:
        return None
    return StateChange(
        found.state_stat, read_whole(directory, found.state_stat.name, limits), state
    )


def read_whole(directory: LocalDirectory, name: str, limits: Limits) -> bytes:
    """The text of a state file.

    Raises:
        NotFoundError, UnsafeError, StorageError: it cannot be read.
    """
    file = directory.open(name)
    try:
        return file.pread(0, min(file.stat.size, limits.state_bytes))
    finally:
        file.close()
