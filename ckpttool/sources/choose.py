"""Which checkpoint of a run is meant: the latest of its state file, the newest, a step.

The state file's word counts; where it is missing, cannot be read or names what is not
there, the newest by name is taken and the notes say why. ``@latest`` is strict: it is what
the state file says, whole, or an error that names the newest whole one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Literal, NoReturn

from ckpttool.errors import IncompleteError, NotFoundError, UsageError
from ckpttool.limits import Limits
from ckpttool.model import Oddity
from ckpttool.sources.absent import (
    index_missing,
    no_checkpoint,
    refuse_denied,
    refuse_link,
    refuse_linked_index,
)
from ckpttool.sources.filenames import (
    STATE_FILE,
    join,
    split_number,
    split_part,
    v1_pattern,
    v1_shard,
)
from ckpttool.sources.run import Run, StateFile, read_run, read_state_file
from ckpttool.sources.state_paths import Located, StatePaths, Version
from ckpttool.sources.step import step_inside
from ckpttool.sources.v1_files import is_v1
from ckpttool.sources.whole import Candidate, flaws, newest_by_name, newest_whole
from ckpttool.storage import Directory, open_directory

__all__ = ["Choice", "Via", "choose", "choose_latest", "choose_step", "state_trouble"]

#: Names of a directory, and files in it, that are looked at for what nothing tells of.
_NAMES = 2000
_LOOKED_AT = 50

#: How a checkpoint came to be chosen.
Via = Literal["prefix", "part", "state", "scan", "step"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A checkpoint of a run: its directory, its base name, and how it was found.

    What is not as it should be about that is an `Oddity` among the notes.
    """

    directory: str
    prefix: str
    via: Via
    notes: tuple[str, ...] = ()
    version: Version = "v2"

    @property
    def path(self) -> str:
        """The prefix as a person would type it."""
        return join(self.directory, self.prefix)


def choose(directory: Directory, limits: Limits, state_name: str = STATE_FILE) -> Choice:
    """The checkpoint that a run directory stands for.

    Raises:
        NotFoundError, IncompleteError, ForeignFormatError: there is none.
        LimitError: more entries than ``limits.directory_entries``.
    """
    state_file = read_state_file(directory, limits, state_name)
    found = _latest(directory, state_file)
    if isinstance(found, Choice):
        return found
    run = read_run(directory, limits, state_name)
    return _newest_by_name(directory, run, found)


def choose_latest(directory: Directory, limits: Limits, state_name: str = STATE_FILE) -> Choice:
    """``@latest``: what the state file calls latest, if it is whole.

    Without a usable state file it is the newest whole checkpoint.

    Raises:
        IncompleteError: id ``latest-incomplete``; the hint names the newest whole one.
        NotFoundError: there is no whole one either, and no state file says there should be.
        PermissionDeniedError: its index may not be read.
    """
    state_file = read_state_file(directory, limits, state_name)
    found = _latest(directory, state_file)
    if isinstance(found, Choice):
        with open_directory(found.directory) as where:
            wrong = flaws(where, found.prefix, limits, found.version)
            if not wrong:
                return found
            refuse_link(where, wrong[0].name)
            refuse_denied(where, wrong[0].name)
        why = "; ".join(str(flaw) for flaw in wrong[:3])
        _raise_incomplete(directory, limits, state_name, found.path, why)
    if state_file is not None and state_file.state and state_file.state.model_checkpoint_path:
        stored = state_file.state.model_checkpoint_path
        _raise_incomplete(directory, limits, state_name, stored, found)
    run = read_run(directory, limits, state_name)
    candidate, _ = newest_whole(run, directory, limits)
    if candidate is None:
        return _newest_by_name(directory, run, found)  # raises where there is none at all
    return _scanned(directory, candidate.prefix, found, "newest whole", candidate.version)


def choose_step(
    directory: Directory, step: int, limits: Limits, state_name: str = STATE_FILE
) -> Choice:
    """``@STEP``: the checkpoint with this number in its name, else with this step inside.

    Raises:
        NotFoundError: id ``step-not-found``; the hint names the nearest steps.
        UsageError: id ``step-ambiguous``: several fit.
    """
    run = read_run(directory, limits, state_name)
    saved = [Candidate(item.prefix) for item in run.checkpoints]
    saved += [Candidate(prefix, version="v1") for prefix in run.v1]
    matches = [one for one in saved if split_number(one.prefix)[1] == step]
    how = ""
    if not matches:
        matches = [
            one for one in saved if step_inside(directory, one.prefix, limits, one.version) == step
        ]
        how = ", by the step inside it"
    if len(matches) > 1:
        raise UsageError(
            f"step {step} of {directory.path} is ambiguous",
            why=f"it fits {len(matches)} checkpoints: "
            f"{', '.join(one.prefix for one in matches[:5])}",
            hint=f"name one of them: {join(directory.path, matches[0].prefix)}",
            id="step-ambiguous",
        )
    if not matches:
        raise _no_step(directory, saved, step)
    (found,) = matches
    note = f"step {step} is {join(directory.path, found.prefix)}{how}"
    return Choice(directory.path, found.prefix, "step", (note,), found.version)


def state_trouble(state_file: StateFile | None, path: str) -> str:
    """Why a state file names no latest checkpoint: missing, unreadable or silent."""
    if state_file is None:
        return f"{path} has no state file"
    if state_file.error is not None:
        return f"the state file cannot be used: {state_file.error.why or state_file.error.what}"
    return f"the state file {state_file.path} names no checkpoint"


def _latest(directory: Directory, state_file: StateFile | None) -> Choice | str:
    """The state file's latest checkpoint, or why there is none."""
    if state_file is None or not state_file.state or not state_file.state.model_checkpoint_path:
        return state_trouble(state_file, directory.path)
    stored = state_file.state.model_checkpoint_path
    found = StatePaths(directory, state_file.name).find(stored)
    if not isinstance(found, Located):
        return f"the state file calls {stored} the latest, which is {found.why}"
    notes = [f"{found.path} is the latest by the state file"]
    if note := found.note(stored):
        notes.append(Oddity(note))
    return Choice(found.directory, found.prefix, "state", tuple(notes), found.version)


def _newest_by_name(directory: Directory, run: Run, trouble: str) -> Choice:
    if saved := newest_by_name(run):
        return _scanned(directory, saved[0].prefix, trouble, "newest", saved[0].version)
    refuse_linked_index(directory, run)
    by_prefix: dict[str, list[str]] = {}
    for leftover in run.leftovers:
        part = split_part(leftover.name)
        if part and part.kind == "shard":
            by_prefix.setdefault(leftover.prefix, []).append(leftover.name)
    if by_prefix:
        prefix = max(by_prefix, key=lambda prefix: (split_number(prefix)[1] or -1, prefix))
        raise index_missing(join(directory.path, prefix), by_prefix[prefix])
    if bare := _bare_v1(directory):
        return _scanned(directory, bare, trouble, "newest", "v1")
    raise no_checkpoint(directory, directory.path)


def _bare_v1(directory: Directory) -> str:
    """The newest V1 checkpoint by its bytes, where no graph or state file tells of one."""
    found: dict[str, tuple[int, int, str]] = {}
    entries = sorted(islice(directory.scan(), _NAMES), key=attrgetter("name"))
    for stat in [entry for entry in entries if entry.kind == "file"][:_LOOKED_AT]:
        if is_v1(directory, stat.name):
            shard = v1_shard(stat.name)
            prefix = v1_pattern(shard[0], shard[2]) if shard else stat.name
            number = split_number(prefix)[1]
            found[prefix] = -1 if number is None else number, stat.mtime_ns, prefix
    return max(found.values())[2] if found else ""


def _scanned(
    directory: Directory, prefix: str, trouble: str, what: str, version: Version
) -> Choice:
    numbered = split_number(prefix)[1] is not None
    by = "by the number in its name" if numbered else "by its time"
    note = Oddity(f"{trouble}; {join(directory.path, prefix)} is the {what}, {by}")
    return Choice(directory.path, prefix, "scan", (note,), version)


def _raise_incomplete(
    directory: Directory, limits: Limits, state_name: str, path: str, why: str
) -> NoReturn:
    run = read_run(directory, limits, state_name)
    candidate, _ = newest_whole(run, directory, limits)
    raise IncompleteError(
        f"the latest checkpoint, {path}, is not whole",
        why=why,
        hint=f"the newest whole one is {candidate.path(directory.path)}"
        if candidate
        else f"no checkpoint in {directory.path} is whole",
        id="latest-incomplete",
    )


def _no_step(directory: Directory, saved: Sequence[Candidate], step: int) -> NotFoundError:
    known = {split_number(one.prefix)[1] for one in saved}
    numbers = sorted(
        (number for number in known if number is not None), key=lambda number: abs(number - step)
    )
    return NotFoundError(
        f"no checkpoint of step {step} in {directory.path}",
        why=f"{len(saved)} checkpoints were looked at, by the number in their names "
        "and the step inside them",
        hint=f"the nearest are @{', @'.join(str(number) for number in numbers[:3])}"
        if numbers
        else "",
        id="step-not-found",
    )
