"""Which checkpoint of a run is meant: the latest of its state file, the newest, a step.

The state file's word counts; where it is missing, cannot be read or names what is not
there, the newest by name is taken and the notes say why. ``@latest`` is strict: it is what
the state file says, whole, or an error that names the newest whole one.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    v1_unsupported,
)
from ckpttool.sources.filenames import STATE_FILE, join, split_number, split_part
from ckpttool.sources.run import Run, StateFile, read_run, read_state_file
from ckpttool.sources.state_paths import Located, StatePaths
from ckpttool.sources.step import step_inside
from ckpttool.sources.whole import flaws, newest_whole
from ckpttool.storage import Directory, open_directory

__all__ = ["Choice", "Via", "choose", "choose_latest", "choose_step", "state_trouble"]

#: How a checkpoint came to be chosen.
Via = Literal["prefix", "part", "state", "scan", "step"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A V2 checkpoint of a run: its directory, its base name, and how it was found.

    What is not as it should be about that is an `Oddity` among the notes.
    """

    directory: str
    prefix: str
    via: Via
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The prefix as a person would type it."""
        return join(self.directory, self.prefix)


def choose(directory: Directory, limits: Limits, state_name: str = STATE_FILE) -> Choice:
    """The checkpoint that a run directory stands for.

    Raises:
        NotFoundError, IncompleteError, ForeignFormatError: there is none.
        UnsupportedError: id ``v1-checkpoint``.
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
            wrong = flaws(where, found.prefix, limits)
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
    return _scanned(directory, candidate.prefix, found, "newest whole")


def choose_step(
    directory: Directory, step: int, limits: Limits, state_name: str = STATE_FILE
) -> Choice:
    """``@STEP``: the checkpoint with this number in its name, else with this step inside.

    Raises:
        NotFoundError: id ``step-not-found``; the hint names the nearest steps.
        UsageError: id ``step-ambiguous``: several fit.
    """
    run = read_run(directory, limits, state_name)
    matches = [item.prefix for item in run.checkpoints if item.number == step]
    how = ""
    if not matches:
        for name in run.v1:
            if split_number(name)[1] == step:
                raise v1_unsupported(join(directory.path, name))
        matches = [
            item.prefix
            for item in run.checkpoints
            if step_inside(directory, item.prefix, limits) == step
        ]
        how = ", by the step inside it"
    if len(matches) > 1:
        raise UsageError(
            f"step {step} of {directory.path} is ambiguous",
            why=f"it fits {len(matches)} checkpoints: {', '.join(matches[:5])}",
            hint=f"name one of them: {join(directory.path, matches[0])}",
            id="step-ambiguous",
        )
    if not matches:
        raise _no_step(directory, run, step)
    note = f"step {step} is {join(directory.path, matches[0])}{how}"
    return Choice(directory.path, matches[0], "step", (note,))


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
    if found.version == "v1":
        raise v1_unsupported(found.path)
    notes = [f"{found.path} is the latest by the state file"]
    if note := found.note(stored):
        notes.append(Oddity(note))
    return Choice(found.directory, found.prefix, "state", tuple(notes))


def _newest_by_name(directory: Directory, run: Run, trouble: str) -> Choice:
    if run.checkpoints:
        return _scanned(directory, run.checkpoints[-1].prefix, trouble, "newest")
    if run.v1:
        raise v1_unsupported(join(directory.path, run.v1[-1]))
    refuse_linked_index(directory, run)
    by_prefix: dict[str, list[str]] = {}
    for leftover in run.leftovers:
        part = split_part(leftover.name)
        if part and part.kind == "shard":
            by_prefix.setdefault(leftover.prefix, []).append(leftover.name)
    if by_prefix:
        prefix = max(by_prefix, key=lambda prefix: (split_number(prefix)[1] or -1, prefix))
        raise index_missing(join(directory.path, prefix), by_prefix[prefix])
    raise no_checkpoint(directory, directory.path)


def _scanned(directory: Directory, prefix: str, trouble: str, what: str) -> Choice:
    by = "by the number in its name" if split_number(prefix)[1] is not None else "by its time"
    note = Oddity(f"{trouble}; {join(directory.path, prefix)} is the {what}, {by}")
    return Choice(directory.path, prefix, "scan", (note,))


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


def _no_step(directory: Directory, run: Run, step: int) -> NotFoundError:
    numbers = sorted(
        {item.number for item in run.checkpoints if item.number is not None},
        key=lambda number: abs(number - step),
    )
    return NotFoundError(
        f"no checkpoint of step {step} in {directory.path}",
        why=f"{len(run.checkpoints)} checkpoints were looked at, by the number in their names "
        "and the step inside them",
        hint=f"the nearest are @{', @'.join(str(number) for number in numbers[:3])}"
        if numbers
        else "",
        id="step-not-found",
    )
