"""``state --fix`` and ``--set-latest``: make a state file say what is there.

Paths of another place become names of this one, paths that lead nowhere go, and the latest
is a whole checkpoint; a file that is missing or cannot be read is rebuilt from what lies in
the directory. Never while a save may be under way, and the old text is kept.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ckpttool.errors import IncompleteError, LimitError, NotFoundError, RefusedError
from ckpttool.formats.state import CheckpointState
from ckpttool.formats.state_writer import format_state
from ckpttool.limits import Limits, default_limits
from ckpttool.ops.prune.plan import read_whole
from ckpttool.ops.prune.state_change import activity, replace_state
from ckpttool.ops.prune.survey import OWN, Survey, survey
from ckpttool.sources.address import require_run
from ckpttool.sources.filenames import join, split_part
from ckpttool.sources.state_paths import Located, Lost
from ckpttool.sources.whole import Flaw, flaws, newest_by_name
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["StateFix", "apply_fix", "plan_fix"]


@dataclass(frozen=True, slots=True)
class StateFix:
    """What would be changed in a state file.

    Attributes:
        directory: where it lies. ``name``: its name.
        seen: the file as it was; None where there is none.
        before: its text; empty where there is none.
        after: what it is to say.
        changes: each change in words; empty where there is nothing to do.
        busy: why a writer may be alive; empty if none is.
        unlisted: prefixes in the directory that it will not name.
        backup: where the old text was kept, once it was done.
    """

    directory: str
    name: str
    seen: FileStat | None
    before: bytes
    after: CheckpointState
    changes: tuple[str, ...]
    busy: str = ""
    set_latest: str | None = None
    unlisted: tuple[str, ...] = ()
    backup: str = ""

    @property
    def path(self) -> str:
        """The state file's path."""
        return join(self.directory, self.name)


def plan_fix(
    address: str,
    *,
    set_latest: str | None = None,
    min_age: float = 60.0,
    limits: Limits | None = None,
) -> StateFix:
    """Plan the repair of a run's state file. Reads only.

    Args:
        address: the run directory, or its state file.
        set_latest: a checkpoint of the directory that is to be called latest; then nothing
            else is changed.
        min_age: see ``apply_fix``.
        limits: bounds on what files may claim.

    Raises:
        NotFoundError: no run; no such checkpoint; nothing whole to rebuild from
            (id ``no-whole-checkpoint``).
        IncompleteError: id ``latest-incomplete``: ``set_latest`` is not whole.
    """
    limits = limits or default_limits()
    where = require_run(address)
    with open_directory(where.directory) as directory:
        return _plan(directory, where.state_name, set_latest, min_age, limits)


def apply_fix(fix: StateFix, *, min_age: float = 60.0, limits: Limits | None = None) -> StateFix:
    """Write the repaired file, and keep the old text beside it.

    Raises:
        RefusedError: id ``in-flight``: a save may be under way; ``min_age`` 0 lifts that.
        ChangedError: ids ``locked``, ``state-changed``.
    """
    if not fix.changes:
        return fix
    limits = limits or default_limits()
    with open_directory(fix.directory) as directory, DirectoryLock(directory):
        fresh = _plan(directory, fix.name, fix.set_latest, min_age, limits)
        if fresh.busy:
            raise RefusedError(
                f"{fresh.path} may be written by a trainer",
                why=fresh.busy,
                hint="wait until training has ended, or add --min-age 0 if nothing writes there",
                id="in-flight",
            )
        backup = ""
        if fresh.seen is not None:
            backup = (
                f"{OWN}{fix.name}-{time.strftime('%Y%m%dT%H%M%S')}-{time.time_ns() % 10**9:09d}"
            )
            with directory.create(backup) as file:
                file.write(fresh.before)
                file.commit()
        replace_state(directory, fresh.seen, fresh.after, fix.name)
    return replace(fresh, backup=join(fix.directory, backup) if backup else "")


def _plan(
    directory: LocalDirectory, name: str, set_latest: str | None, min_age: float, limits: Limits
) -> StateFix:
    found = survey(directory, limits, name)
    file = found.run.state_file
    if file is not None and isinstance(file.error, LimitError):
        raise file.error  # no text of that size is rewritten, nor kept as a backup
    before = b"" if found.state_stat is None else read_whole(directory, name, limits)
    old = file.state if file else None
    changes: list[str] = []
    if set_latest is not None:
        after = _with_latest(directory, found, old, set_latest, limits, changes)
    elif old is None or not old.model_checkpoint_path:
        after = _rebuilt(directory, found, limits, changes)
    else:
        after = _repaired(directory, found, old, limits, changes)
    named = {after.model_checkpoint_path, *after.all_model_checkpoint_paths}
    busy = ""
    if found.state_stat is not None and changes:
        busy = activity(found.state_stat, found.newest_change, min_age, time.time())
    return StateFix(
        directory.path,
        name,
        found.state_stat,
        before,
        after,
        tuple(changes) if format_state(after) != before else (),
        busy,
        set_latest,
        tuple(item.prefix for item in found.run.checkpoints if item.prefix not in named),
    )


def _repaired(
    directory: LocalDirectory,
    found: Survey,
    old: CheckpointState,
    limits: Limits,
    changes: list[str],
) -> CheckpointState:
    paths: list[str] = []
    times: list[float] = []
    stamps = old.all_model_checkpoint_timestamps
    for place, item in enumerate(found.run.listed):
        if isinstance(item.found, Lost):
            changes.append(f"{item.stored} goes: it is {item.found.why}")
            continue
        right = _spelled(item.stored, item.found)
        if right != item.stored:
            changes.append(f"{item.stored} becomes {right}")
        if right in paths:
            changes.append(f"{right} is listed once, not twice")
            index = paths.index(right)
            del paths[index]
            if index < len(times):
                del times[index]
        paths.append(right)
        if place < len(stamps):
            times.append(stamps[place])
    if len(stamps) > len(found.run.listed):
        changes.append(f"{len(stamps) - len(found.run.listed)} timestamps of no path go")
    named = found.run.latest
    latest = None
    if named is not None and isinstance(named.found, Located):
        latest = _spelled(named.stored, named.found)
    if latest is None or not _is_whole(directory, found, latest, limits):
        heir = next(
            (path for path in reversed(paths) if _is_whole(directory, found, path, limits)), None
        )
        if heir is None:
            heir = _newest(directory, found, limits)
            paths.append(heir)
            if times and len(times) == len(paths) - 1:
                times.append(found.stored[heir].saved_ns / 1e9)
        changes.append(f"the latest is {heir}, not {old.model_checkpoint_path}")
        latest = heir
    elif latest != old.model_checkpoint_path:
        changes.append(f"the latest is spelled {latest}")
    return CheckpointState(latest, tuple(paths), tuple(times), old.last_preserved_timestamp)


def _spelled(stored: str, place: Located) -> str:
    """How a path should be spelled; one that leads to another directory stays as it is."""
    return place.prefix if place.own and place.how != "stored" else stored


def _rebuilt(
    directory: LocalDirectory, found: Survey, limits: Limits, changes: list[str]
) -> CheckpointState:
    """From the files alone: the series of the newest checkpoint, those that are whole.

    Without times: with them a CheckpointManager would take the list for its own and delete.
    """
    newest = _newest(directory, found, limits)
    series = found.stored[newest].series
    listed = [
        name
        for name in reversed(_saved(found))
        if found.stored[name].series == series and name != newest
        if not _flaws(directory, found, name, limits)
    ]
    listed.append(newest)
    why = "cannot be read" if found.run.state_file else "is missing"
    changes.append(f"the state file {why}; rebuilt from {len(listed)} whole checkpoints")
    return CheckpointState(newest, tuple(listed))


def _with_latest(
    directory: LocalDirectory,
    found: Survey,
    old: CheckpointState | None,
    wanted: str,
    limits: Limits,
    changes: list[str],
) -> CheckpointState:
    name = wanted.rstrip("/").rpartition("/")[2]
    part = split_part(name)
    if name not in found.stored and part is not None:
        name = part.prefix
    if name not in found.stored:
        from ckpttool.sources.nearest import nearest

        near = nearest(name, found.stored)
        raise NotFoundError(
            f"there is no checkpoint {wanted} in {directory.path}",
            why=f"it has {len(found.stored)} checkpoints",
            hint=f"did you mean {near[0]}?" if near else "",
        )
    wrong = _flaws(directory, found, name, limits)
    if wrong:
        raise IncompleteError(
            f"{join(directory.path, name)} is not whole, so it cannot be the latest",
            why=str(wrong[0]),
            hint=f"ckpttool verify {shlex.quote(join(directory.path, name))}",
            id="latest-incomplete",
        )
    state = old or CheckpointState()
    spelled = next(
        (
            item.stored
            for item in found.run.listed
            if isinstance(item.found, Located) and item.found.own and item.found.prefix == name
        ),
        None,
    )
    changes.append(f"the latest is {name}, not {state.model_checkpoint_path or 'unknown'}")
    if spelled is not None:
        return replace(state, model_checkpoint_path=spelled)
    times = state.all_model_checkpoint_timestamps
    if times and len(times) == len(state.all_model_checkpoint_paths):
        times = (*times, found.stored[name].saved_ns / 1e9)
    changes.append(f"{name} joins the list")
    paths = (*state.all_model_checkpoint_paths, name)
    return replace(
        state,
        model_checkpoint_path=name,
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=times,
    )


def _is_whole(directory: LocalDirectory, found: Survey, path: str, limits: Limits) -> bool:
    """Whether a path of the list is a whole checkpoint here; one elsewhere is believed."""
    stored = found.stored.get(path)
    if stored is None:
        return "/" in path
    return not _flaws(directory, found, path, limits)


def _flaws(directory: LocalDirectory, found: Survey, name: str, limits: Limits) -> tuple[Flaw, ...]:
    """What keeps a checkpoint of either version from being whole; of a Keras file nothing."""
    stored = found.stored[name]
    if stored.v2 is None and name not in found.run.v1:
        return ()
    return flaws(directory, name, limits, "v1" if stored.v2 is None else "v2")


def _saved(found: Survey) -> list[str]:
    """The checkpoints of both versions, the newest first."""
    return [one.prefix for one in newest_by_name(found.run) if one.prefix in found.stored]


def _newest(directory: LocalDirectory, found: Survey, limits: Limits) -> str:
    candidates: Sequence[str] = _saved(found)
    by_time = sorted(candidates, key=lambda name: found.stored[name].saved_ns, reverse=True)
    if by_time:
        # Of the series that was written last the highest number.
        series = found.stored[by_time[0]].series
        candidates = [name for name in candidates if found.stored[name].series == series]
    for name in dict.fromkeys([*candidates, *by_time]):
        if not _flaws(directory, found, name, limits):
            return name
    raise NotFoundError(
        f"no whole checkpoint in {directory.path}",
        why=f"none of its {len(by_time)} checkpoints is whole",
        hint=f"ckpttool inspect {shlex.quote(directory.path)} shows what is there",
        id="no-whole-checkpoint",
    )
