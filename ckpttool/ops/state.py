"""``state``: what the state file of a run says, and what of it is not so.

Reads the text, looks for every path it names, and reads the index of the latest
checkpoint. Changes nothing.
"""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from ckpttool.errors import NotFoundError
from ckpttool.formats.state import CheckpointState
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Finding, Severity
from ckpttool.sources.address import require_run
from ckpttool.sources.run import ListedPath, Run, read_run
from ckpttool.sources.state_paths import Located, Lost
from ckpttool.sources.whole import flaws
from ckpttool.storage import open_directory

__all__ = ["StateEntry", "StateResult", "state"]

#: Paths that one message names; the rest are counted.
_NAMED = 3
#: Clocks of machines differ by this much without anything being wrong, in seconds.
_CLOCK_SKEW = 300.0


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A checkpoint of the state file's list: the path as stored, where it is today.

    ``location`` is the prefix that it leads to, None where it leads nowhere; ``timestamp``
    is in seconds since the epoch, None where the file has none for it.
    """

    prefix: str
    timestamp: float | None
    location: str | None

    @property
    def exists(self) -> bool:
        """Whether the path leads to a checkpoint, whole or not."""
        return self.location is not None


@dataclass(frozen=True, slots=True)
class StateResult:
    """What a state file says.

    Attributes:
        path: the state file.
        latest: the path that it calls latest, as stored; None where it names none.
        latest_location: the prefix that this path leads to; None where it leads nowhere.
        checkpoints: its list, oldest first.
        last_preserved: when a checkpoint was last preserved for good, in seconds.
        unlisted: prefixes in the directory that it does not name. TensorFlow takes those
            that it preserves off the list, so this is no fault.
        problems: what is not as it says.
        changed: whether the file was rewritten.
    """

    path: str
    latest: str | None
    latest_location: str | None
    checkpoints: tuple[StateEntry, ...]
    last_preserved: float | None
    unlisted: tuple[str, ...]
    problems: tuple[Finding, ...]
    changed: bool = False


def state(address: str, limits: Limits | None = None) -> StateResult:
    """Show and check the state file of a run directory (or a state file by its path).

    Raises:
        NotFoundError: ids ``not-a-run``, ``state-missing``.
        CorruptError: id ``state-corrupt``; the message names the line.
        LimitError: id ``limit-state``.
    """
    limits = limits or default_limits()
    where = require_run(address)
    with open_directory(where.directory) as directory:
        run = read_run(directory, limits, where.state_name)
        if run.state_file is None:
            raise _missing(run, where.state_name)
        if run.state_file.error is not None:
            raise run.state_file.error
        said = run.state_file.state or CheckpointState()
        problems = [
            *_latest_problems(run, limits),
            *_list_problems(run),
            *_time_problems(run.state_file.path, said),
        ]
    named = {
        item.found.prefix
        for item in _all_paths(run)
        if isinstance(item.found, Located) and item.found.own
    }
    return StateResult(
        run.state_file.path,
        run.latest.stored if run.latest else None,
        _location(run.latest) if run.latest else None,
        tuple(StateEntry(item.stored, item.timestamp, _location(item)) for item in run.listed),
        said.last_preserved_timestamp,
        tuple(item.prefix for item in run.checkpoints if item.prefix not in named),
        tuple(problems),
    )


def _missing(run: Run, state_name: str) -> NotFoundError:
    count = len(run.checkpoints)
    return NotFoundError(
        f"{run.path} has no state file",
        why=f"there is no file {state_name}; the directory holds "
        f"{count or 'no'} checkpoint{'' if count == 1 else 's'}",
        hint=f"ckpttool latest {shlex.quote(run.path)} finds the newest whole one without it"
        if count
        else "",
        id="state-missing",
    )


def _location(item: ListedPath) -> str | None:
    return item.found.path if isinstance(item.found, Located) else None


def _all_paths(run: Run) -> list[ListedPath]:
    return [*run.listed, *([run.latest] if run.latest else ())]


def _latest_problems(run: Run, limits: Limits) -> Iterator[Finding]:
    """What is wrong with the path that is called latest."""
    assert run.state_file is not None, "the caller has looked"
    latest = run.latest
    if latest is None:
        message = "it names no latest checkpoint, so TensorFlow refuses it"
        yield Finding("state-no-latest", "error", run.state_file.path, message)
        return
    found = latest.found
    if isinstance(found, Lost):
        if not found.foreign:
            message = f"the latest checkpoint is {found.why}"
            yield Finding("state-latest-missing", "error", latest.stored, message)
    else:
        with open_directory(found.directory) as there:
            wrong = flaws(there, found.prefix, limits, found.version)
        if wrong:
            message = f"the latest checkpoint is not whole: {_some(map(str, wrong), '; ')}"
            yield Finding("state-latest-incomplete", "error", found.path, message)
    if run.listed and latest.stored not in {item.stored for item in run.listed}:
        message = "the latest checkpoint is not in the list"
        yield Finding("state-latest-unlisted", "warning", latest.stored, message)


def _list_problems(run: Run) -> Iterator[Finding]:
    """What is wrong with the paths; those of a kind are one finding."""
    assert run.state_file is not None, "the caller has looked"
    missing: dict[str, None] = {}
    foreign: dict[str, None] = {}
    moved: dict[str, None] = {}
    outside: dict[str, None] = {}
    for item in _all_paths(run):
        found = item.found
        if isinstance(found, Lost):
            if found.foreign:
                foreign[f"'{item.stored}' is {found.why}"] = None
            else:
                missing[item.stored] = None
        elif not found.own:
            outside[item.stored] = None
        elif found.how != "stored":
            moved[item.stored] = None
    kinds: tuple[tuple[str, Severity, dict[str, None], str], ...] = (
        ("state-path-missing", "warning", missing, "not there"),
        ("state-path-foreign", "error", foreign, "no checkpoint of this directory"),
        ("state-path-outside", "warning", outside, "in another directory"),
        ("state-path-moved", "warning", moved, "stored with a path that no longer fits"),
    )
    for id, severity, paths, what in kinds:
        if paths:
            yield Finding(id, severity, run.state_file.path, f"{what}: {_some(paths)}")
    twice = [path for path, uses in Counter(item.stored for item in run.listed).items() if uses > 1]
    if twice:
        message = f"listed more than once: {_some(twice)}"
        yield Finding("state-duplicate", "warning", run.state_file.path, message)


def _time_problems(path: str, said: CheckpointState) -> Iterator[Finding]:
    """What is odd about the times; TensorFlow decides by them what it deletes."""
    times = said.all_model_checkpoint_timestamps
    listed = len(said.all_model_checkpoint_paths)
    odd = []
    if times and len(times) != listed:
        odd.append(f"{len(times)} timestamps for {listed} paths")
    every = (
        *times,
        *(() if said.last_preserved_timestamp is None else (said.last_preserved_timestamp,)),
    )
    if not all(map(math.isfinite, every)):
        odd.append("a timestamp is not a finite number")
    elif any(later < earlier for earlier, later in pairwise(times)):
        odd.append("the list is not in the order of its timestamps")
    ahead = max((at for at in every if math.isfinite(at)), default=0.0) - time.time()
    if ahead > _CLOCK_SKEW:
        odd.append(f"a timestamp lies {ahead:.0f} seconds in the future")
    if odd:
        yield Finding("state-timestamps", "warning", path, "; ".join(odd))


def _some(texts: Iterable[str], separator: str = ", ") -> str:
    """The first few of many, and how many more there are."""
    every = list(texts)
    more = len(every) - _NAMED
    shown = separator.join(every[:_NAMED])
    return f"{shown}{separator}and {more} more" if more > 0 else shown
