"""Applying a plan: lock, finish what was interrupted, look again, act, rewrite the state file.

What a plan said is never taken on trust: under the lock the directory is planned anew with
the same settings, and only what both plans let go, file by file the same, goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from ckpttool.errors import ChangedError
from ckpttool.limits import Limits, default_limits
from ckpttool.ops.prune.apply import Removed, finish_interrupted, remove
from ckpttool.ops.prune.plan import PrunePlan, StateChange, make_plan
from ckpttool.ops.prune.removal import Removal
from ckpttool.ops.prune.state_change import replace_state
from ckpttool.ops.prune.trash import SavedState, Trash
from ckpttool.storage import open_directory
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["Carried", "PruneResult", "StateOutcome", "apply_plan", "carry_out"]

#: What became of the state file: nothing to change, rewritten, removed because it would name
#: nothing, left because not everything went, or left because another program wrote it in
#: between.
StateOutcome = Literal["unchanged", "rewritten", "removed", "left", "changed"]


@dataclass(slots=True)
class Carried:
    """What a removal came to: files, state file, and its name in the trash (or empty)."""

    removed: Removed = field(default_factory=Removed)
    state: StateOutcome = "unchanged"
    undo: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0, 3 where a part could not be done, 30 where the state file changed under us."""
        if self.removed.failed or self.removed.skipped:
            return 3
        return 30 if self.state == "changed" else 0


@dataclass(slots=True)
class PruneResult:
    """What a prune did.

    ``plan`` is the one that was carried out; ``finished`` are the checkpoints whose removal
    an earlier, interrupted run had begun.
    """

    plan: PrunePlan
    carried: Carried = field(default_factory=Carried)
    finished: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def apply_plan(
    plan: PrunePlan,
    *,
    trash: bool = False,
    exact: bool = False,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PruneResult:
    """Carry out a plan.

    Args:
        plan: what to do.
        trash: move into the trash instead of deleting.
        exact: refuse altogether if anything is not as the plan says, instead of leaving
            out what has changed; for plans that were saved.
        limits: bounds on what files may claim.
        progress: told of bytes done and in total.

    Raises:
        ChangedError: id ``locked``: another ckpttool is at work; id ``plan-stale``:
            ``exact``, and something changed since.
        PermissionDeniedError, NoSpaceError, StorageError: nothing could be done.
        CkpttoolError: as ``plan_prune``.
    """
    limits = limits or default_limits()
    with open_directory(plan.directory) as directory, DirectoryLock(directory) as lock:
        result = PruneResult(plan)
        if lock.taken_over:
            result.warnings.append(lock.note)
        result.finished = finish_interrupted(directory)
        fresh = make_plan(directory, plan.request, limits)
        agreed = _agree(plan, fresh, result, exact=exact)
        result.plan = replace(fresh, removals=agreed)
        result.carried = carry_out(
            directory, agreed, result.plan.state, trash=trash, progress=progress
        )
        result.warnings += result.carried.warnings
    return result


def _agree(
    plan: PrunePlan, fresh: PrunePlan, result: PruneResult, *, exact: bool
) -> tuple[Removal, ...]:
    """What the plan wants gone and what still may go, file by file the same."""
    now = {removal.prefix: removal for removal in fresh.removals}
    agreed = [removal for removal in plan.removals if now.get(removal.prefix) == removal]
    left = [removal for removal in plan.removals if now.get(removal.prefix) != removal]
    state_same = (plan.state is None) == (fresh.state is None) and (
        plan.state is None or fresh.state is None or plan.state.seen == fresh.state.seen
    )
    if exact and (left or plan.identity != fresh.identity or not state_same):
        raise ChangedError(
            f"{plan.directory} is not as the plan says",
            why=f"{left[0].prefix} changed, or may not go any more"
            if left
            else "its state file changed, or it is another directory",
            hint="make a new plan and look at it",
            id="plan-stale",
        )
    gone_by_others = [one.prefix for one in left if one.prefix not in result.finished]
    result.warnings += [
        f"{prefix} was left: it changed, went, or may not go any more since the plan was made"
        for prefix in gone_by_others
    ]
    return tuple(agreed)


def carry_out(
    directory: LocalDirectory,
    removals: tuple[Removal, ...],
    change: StateChange | None,
    *,
    trash: bool,
    state_first: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Carried:
    """Remove, then rewrite the state file; the caller holds the lock.

    A prune that is killed in between is finished by the next one, which finds what is left
    by the list. With ``state_first`` the file is rewritten before anything goes: for a
    removal of the latest, which must never be named and not be there.

    Raises:
        ChangedError: id ``state-changed``: with ``state_first``, before anything went.
        CkpttoolError: the system let nothing go at all.
    """
    carried = Carried()
    if not removals:
        if change is not None:
            carried.state = _write_state(directory, change, None, removals)
        return carried
    place = None
    if trash:
        before = SavedState(change.seen.name, change.before, change.before) if change else None
        place = Trash.new(directory, removals, before)
        carried.undo = place.id

    if change is not None and state_first:
        carried.state = _write_state(directory, change, place, removals)
        if carried.state == "changed":
            if place is not None:
                place.close(directory)
            raise ChangedError(
                f"the state file in {directory.path} was written by another program meanwhile",
                why="it is not the one that was looked at; nothing was removed",
                hint="run the command again",
                id="state-changed",
            )

    def finish(removed: Removed) -> None:
        if change is None or state_first:
            return
        if removed.failed or removed.skipped:  # what did not go stays listed
            carried.state = "left"
            carried.warnings.append("the state file is left as it is: not everything went")
            return
        carried.state = _write_state(directory, change, place, removals)

    removed = carried.removed = remove(directory, removals, place, finish, progress)
    if removed.failed and not removed.prefixes:
        raise removed.failed[0][1]
    carried.warnings += [f"{prefix} was left: {why}" for prefix, why in removed.skipped]
    carried.warnings += [f"{prefix} could not be removed: {e}" for prefix, e in removed.failed]
    if carried.state == "changed":
        carried.warnings.append(
            "another program wrote the state file meanwhile; its word stands [state-changed]"
        )
    return carried


def _write_state(
    directory: LocalDirectory,
    change: StateChange,
    place: Trash | None,
    removals: tuple[Removal, ...],
) -> StateOutcome:
    try:
        if change.state is None:
            directory.remove(change.seen)
            after = None
        else:
            after = replace_state(directory, change.seen, change.state, change.seen.name)
    except ChangedError:
        return "changed"
    if place is not None:
        place.record(removals, SavedState(change.seen.name, change.before, after))
    return "removed" if after is None else "rewritten"
