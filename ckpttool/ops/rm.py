"""``rm``: one checkpoint as a whole, by name, with the state file kept right.

Not a policy: what a person names goes, the newest one too. Only pins and a save that may
be under way are in its way. It shares journal, trash and undo with `prune`.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ckpttool.errors import ChangedError, CkpttoolError, RefusedError, UsageError
from ckpttool.formats.state import CheckpointState
from ckpttool.limits import Limits, default_limits
from ckpttool.ops.prune.apply import finish_interrupted, interrupted
from ckpttool.ops.prune.execute import Carried, carry_out
from ckpttool.ops.prune.facts import own_name
from ckpttool.ops.prune.pins import PINS_NAME, match_pins, read_pins
from ckpttool.ops.prune.plan import StateChange, read_whole
from ckpttool.ops.prune.removal import Removal
from ckpttool.ops.prune.state_change import activity, without
from ckpttool.ops.prune.state_files import refuse_unreadable
from ckpttool.ops.prune.survey import Stored, Survey, removal_of, survey
from ckpttool.ops.prune.wholeness import missing
from ckpttool.policy.words import ago
from ckpttool.sources.address import resolve
from ckpttool.sources.filenames import index_name, join, split_part
from ckpttool.sources.state_paths import Located, StatePaths
from ckpttool.storage import open_directory, stat_path
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["RmPlan", "RmRun", "plan_rm", "rm"]


@dataclass(frozen=True, slots=True)
class RmRun:
    """What goes out of one directory.

    ``latest`` is what the state file is to call latest where that changes; ``state`` the
    change of the state file; ``carried`` what came of it, once it was done. ``finishing``
    are those whose removal was killed half-way: what is left of them goes.
    """

    directory: str
    removals: tuple[Removal, ...]
    latest: str | None = None
    state: StateChange | None = None
    warnings: tuple[str, ...] = ()
    carried: Carried | None = None
    finishing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RmPlan:
    """What ``rm`` would do, directory by directory."""

    addresses: tuple[str, ...]
    min_age: float
    runs: tuple[RmRun, ...] = field(default=())

    @property
    def nbytes(self) -> int:
        """Bytes of everything that goes."""
        return sum(removal.nbytes for run in self.runs for removal in run.removals)

    @property
    def count(self) -> int:
        """How many checkpoints go."""
        return sum(len(run.removals) + len(run.finishing) for run in self.runs)


def plan_rm(
    addresses: Sequence[str], *, min_age: float = 60.0, limits: Limits | None = None
) -> RmPlan:
    """Plan the removal of checkpoints by name. Reads only.

    Args:
        addresses: prefixes, any of their files, or ``RUN/@STEP``.
        min_age: what changed later than this many seconds ago is refused; 0 lifts that.
        limits: bounds on what files may claim.

    Raises:
        NotFoundError: no such checkpoint, with what is near.
        UsageError: a directory was named.
        RefusedError: ids ``pinned``, ``in-flight``.
        CorruptError: the state file cannot be read, so it could not be kept right.
    """
    limits = limits or default_limits()
    names: dict[str, list[str]] = {}
    for address in addresses:
        folder, name = _place(address, limits)
        names.setdefault(folder, []).append(name)
    runs = []
    for folder, wanted in names.items():
        with open_directory(folder) as directory:
            runs.append(_plan_run(directory, wanted, min_age, limits))
    return RmPlan(tuple(addresses), min_age, tuple(runs))


def rm(
    plan: RmPlan,
    *,
    trash: bool = False,
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RmPlan:
    """Carry out a plan, directory by directory; returns it with what came of it.

    Raises:
        ChangedError: ids ``locked``, ``plan-stale``: something is not as it was.
        CkpttoolError: as ``plan_rm``; or the system let nothing go.
    """
    limits = limits or default_limits()
    done = []
    for run in plan.runs:
        with open_directory(run.directory) as directory, DirectoryLock(directory) as lock:
            finished = finish_interrupted(directory)
            wanted = [removal.prefix for removal in run.removals]
            fresh = _plan_run(directory, wanted, plan.min_age, limits)
            if fresh.removals != run.removals:
                raise ChangedError(
                    f"{run.directory} is not as it was",
                    why="a checkpoint that was to go has changed",
                    hint="run the command again",
                    id="plan-stale",
                )
            carried = carry_out(
                directory,
                fresh.removals,
                fresh.state,
                trash=trash,
                state_first=True,
                progress=progress,
            )
        carried.removed.prefixes += [name for name in run.finishing if name in finished]
        if lock.taken_over:
            carried.warnings.append(lock.note)
        done.append(replace(fresh, carried=carried))
    return replace(plan, runs=tuple(done))


def _place(address: str, limits: Limits) -> tuple[str, str]:
    """The directory and the name that an address means."""
    folder, base = os.path.split(address)
    there = stat_path(address) if address else None
    names_one = base and stat_path(index_name(address)) is not None
    if there is not None and there.kind == "directory" and not names_one:
        raise UsageError(
            f"{address} is a directory",
            why="rm removes checkpoints by their names",
            hint=f"name one, such as {join(address, 'ckpt-1')}; or "
            f"ckpttool prune {shlex.quote(address)} --max-to-keep 5",
        )
    if base and not base.startswith("@") and stat_path(folder or ".") is not None:
        return folder or ".", base
    found = resolve(address, limits)
    return found.directory, found.prefix


def _plan_run(
    directory: LocalDirectory, wanted: Sequence[str], min_age: float, limits: Limits
) -> RmRun:
    found = survey(directory, limits)
    now = time.time()
    begun = {removal.prefix for removal in interrupted(directory)} - found.stored.keys()
    chosen = {
        stored.prefix: stored
        for stored in (
            _named(directory, found, name, limits) for name in wanted if name not in begun
        )
    }
    _refuse_pinned(directory, chosen)
    removals = []
    for stored in chosen.values():
        age = now - stored.changed_ns / 1e9
        if min_age > 0 and age < min_age:
            raise _in_flight(join(directory.path, stored.prefix), f"it changed {ago(age)}")
        removal = removal_of(directory, stored)
        if removal is None:
            raise _in_flight(join(directory.path, stored.prefix), "it changed just now")
        removals.append(removal)
    run = RmRun(
        directory.path,
        tuple(removals),
        warnings=tuple(_others(directory, found, chosen)),
        finishing=tuple(name for name in wanted if name in begun),
    )
    return _with_state(directory, found, run, set(chosen), min_age, now, limits)


def _named(directory: LocalDirectory, found: Survey, name: str, limits: Limits) -> Stored:
    part = split_part(name)
    for prefix in (name, part.prefix if part else name):
        if prefix in found.stored:
            return found.stored[prefix]
    # Says what is near, or what it is instead; or it knows another name for it.
    resolved = resolve(join(directory.path, name), limits)
    if resolved.kind not in {"checkpoint", "tf-v1"}:
        raise UsageError(
            f"{join(directory.path, name)} is no checkpoint, but stands for one",
            why=f"it means {resolved.location} now, and what it means can change",
            hint=f"ckpttool rm {shlex.quote(resolved.location)}",
        )
    stored = found.stored.get(resolved.prefix)
    if stored is None and resolved.kind == "tf-v1":
        raise UsageError(
            f"{resolved.location} is not known to be a checkpoint of this directory",
            why="it is a V1 table, and has no number, no graph and no place in a state file",
            hint=f"if it may go: rm {shlex.quote(resolved.location)}",
        )
    if stored is None:
        raise _in_flight(resolved.location, "it appeared just now")
    return stored


def _refuse_pinned(directory: LocalDirectory, chosen: dict[str, Stored]) -> None:
    pinned, _ = match_pins(directory, read_pins(directory), chosen)
    for name, pin in pinned.items():
        raise RefusedError(
            f"{join(directory.path, name)} is pinned",
            why=f"{PINS_NAME} in its directory has the line {pin}",
            hint=f"take the line out of {join(directory.path, PINS_NAME)} first",
            id="pinned",
        )


def _others(directory: LocalDirectory, found: Survey, chosen: dict[str, Stored]) -> list[str]:
    """What else points to something that goes.

    Raises:
        CorruptError: id ``state-unreadable``: nobody knows what one of them names.
    """
    warnings = []
    for other in found.others:
        refuse_unreadable(other)
        paths = StatePaths(directory, other.name)
        state = other.state or CheckpointState()
        stored = [state.model_checkpoint_path or "", *state.all_model_checkpoint_paths]
        places = [paths.find(path) for path in stored if path]
        named = {place.prefix for place in places if isinstance(place, Located)} & set(chosen)
        warnings += [f"{other.name} still names {name}" for name in sorted(named)]
    return warnings


def _with_state(
    directory: LocalDirectory,
    found: Survey,
    run: RmRun,
    gone: set[str],
    min_age: float,
    now: float,
    limits: Limits,
) -> RmRun:
    """Take what goes off the state file's list; point the latest to what is left."""
    file = found.run.state_file
    if file is None or found.state_stat is None:
        return run
    if file.error is not None:
        raise file.error
    old = file.state or CheckpointState()
    latest = found.run.latest
    name = own_name(latest) if latest else ""
    lost = name in gone
    new: CheckpointState | None = without(old, found.run.listed, gone)
    if lost:
        heir = _heir(directory, found, gone, limits)
        new = None if heir is None else _pointing_to(new or old, found, heir)
    if new == old:
        return run
    busy = activity(found.state_stat, found.newest_change, min_age, now)
    if busy and lost:
        raise _in_flight(join(directory.path, name), f"it is the latest, and {busy}")
    if busy:
        return replace(run, warnings=(*run.warnings, f"the state file is left as it is: {busy}"))
    change = StateChange(
        found.state_stat, read_whole(directory, found.state_stat.name, limits), new
    )
    shown = new.model_checkpoint_path if lost and new else None
    return replace(run, state=change, latest=shown)


def _heir(directory: LocalDirectory, found: Survey, gone: set[str], limits: Limits) -> str | None:
    """The newest whole one that is left: of the list from its end, then by number and time."""
    listed = [own_name(item) for item in reversed(found.run.listed)]
    others = sorted(found.stored.values(), key=lambda one: (one.number or -1, one.saved_ns))
    for name in dict.fromkeys([*listed, *(one.prefix for one in reversed(others))]):
        stored = found.stored.get(name)
        if stored is None or name in gone or name.endswith((".h5", ".keras")):
            continue
        if not missing(directory, stored, limits):
            return name
    return None


def _pointing_to(state: CheckpointState, found: Survey, heir: str) -> CheckpointState:
    """The latest is the heir, and the last of the list, as TensorFlow writes it."""
    spelled = {own_name(item): item.stored for item in found.run.listed}.get(heir)
    if spelled is not None:
        return replace(state, model_checkpoint_path=spelled)
    times = state.all_model_checkpoint_timestamps
    complete = len(times) == len(state.all_model_checkpoint_paths) and bool(times)
    return replace(
        state,
        model_checkpoint_path=heir,
        all_model_checkpoint_paths=(*state.all_model_checkpoint_paths, heir),
        all_model_checkpoint_timestamps=(*times, found.stored[heir].saved_ns / 1e9)
        if complete
        else times,
    )


def _in_flight(what: str, why: str) -> CkpttoolError:
    return RefusedError(
        f"{what} may still be being written",
        why=why,
        hint="wait, or add --min-age 0 if nothing writes there",
        id="in-flight",
    )
