"""``latest``: the newest whole checkpoint of a run, for scripts to go on from."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.limits import Limits, default_limits
from ckpttool.sources.absent import (
    refuse_denied,
    refuse_link,
    refuse_linked_index,
)
from ckpttool.sources.address import Address, require_run
from ckpttool.sources.choose import state_trouble
from ckpttool.sources.filenames import join, split_number
from ckpttool.sources.run import Run, read_run, read_state_file
from ckpttool.sources.state_paths import Located, Lost, StatePaths
from ckpttool.sources.step import step_inside
from ckpttool.sources.whole import Candidate, Flaw, flaws, newest_whole
from ckpttool.storage import Directory, open_directory

__all__ = ["LatestResult", "latest"]

#: Checkpoints that were passed over and are named.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class LatestResult:
    """The newest whole checkpoint.

    ``prefix`` is its path without a file's ending; ``step`` is the one stored inside, else
    the ``number`` in its name, else None. ``warnings`` say why it is not the one that the
    state file calls latest.
    """

    prefix: str
    step: int | None
    number: int | None
    warnings: tuple[str, ...]


def latest(address: Address, limits: Limits | None = None) -> LatestResult:
    """Find the newest whole checkpoint of a run directory (or of its state file).

    What the state file calls latest, if it is whole; else the newest whole one of its list;
    else of what else lies there, by number, then time. Reads indexes; of the data only the step.

    Raises:
        NotFoundError: ids ``not-a-run``, and ``no-whole-checkpoint``, which says why.
        UnsafeError: id ``unsafe-link``: none is whole as far as links are not followed.
        PermissionDeniedError: none is whole as far as indexes may be read.

    >>> import ckpttool
    >>> found = ckpttool.latest("fixtures/keras3")
    >>> found.prefix, found.step, found.number
    ('fixtures/keras3/ckpt-4', 16, 4)
    """
    limits = limits or default_limits()
    where = require_run(os.fsdecode(address))
    with open_directory(where.directory) as directory:
        state_file = read_state_file(directory, limits, where.state_name)
        state = state_file.state if state_file else None
        stored = state.model_checkpoint_path if state else None
        found = StatePaths(directory, where.state_name).find(stored) if stored else None
        if stored and isinstance(found, Located) and _is_whole(found, limits):
            # The usual case: no need to look at the whole directory.
            note = found.note(stored)
            here = Candidate(found.prefix, found.directory, found.version)
            return _result(here, found.directory, (note,) if note else (), limits)
        run = read_run(directory, limits, where.state_name)
        candidate, passed = newest_whole(run, directory, limits)
        if candidate is None:
            _refuse_unseen(directory, run, passed)
            raise _none_whole(run, passed)
        trouble = _trouble(run, stored, found)
        path = candidate.path(run.path)
        warning = f"{trouble}{_passed(run, passed)}; {path} is the newest whole checkpoint"
        return _result(candidate, candidate.directory or run.path, (warning,), limits)


def _is_whole(found: Located, limits: Limits) -> bool:
    with open_directory(found.directory) as there:
        return not flaws(there, found.prefix, limits, found.version)


def _result(
    found: Candidate, directory: str, warnings: tuple[str, ...], limits: Limits
) -> LatestResult:
    number = split_number(found.prefix)[1]
    with open_directory(directory) as there:
        step = step_inside(there, found.prefix, limits, found.version)
    path = join(directory, found.prefix)
    return LatestResult(path, number if step is None else step, number, warnings)


def _trouble(run: Run, stored: str | None, found: Located | Lost | None) -> str:
    """Why the state file's word is not enough."""
    if stored is None or found is None:
        return state_trouble(run.state_file, run.path)
    if isinstance(found, Lost):
        return f"the state file calls {stored} the latest, which is {found.why}"
    return f"the state file calls {stored} the latest"


def _passed(run: Run, passed: list[tuple[Candidate, Flaw]]) -> str:
    """The newer checkpoints that are not whole, and what each lacks."""
    if not passed:
        return ""
    named = [f"{item.path(run.path)} is not whole: {flaw}" for item, flaw in passed[:_NAMED]]
    more = len(passed) - _NAMED
    return "; " + "; ".join(named) + (f"; nor are {more} more" if more > 0 else "")


def _refuse_unseen(directory: Directory, run: Run, passed: list[tuple[Candidate, Flaw]]) -> None:
    """Raise where there may well be a whole checkpoint: its files are links, or not for us."""
    refuse_linked_index(directory, run)
    for item, flaw in passed:
        if item.directory is None:
            refuse_link(directory, flaw.name)
            refuse_denied(directory, flaw.name)
        else:
            with open_directory(item.directory) as other:
                refuse_link(other, flaw.name)
                refuse_denied(other, flaw.name)


def _none_whole(run: Run, passed: list[tuple[Candidate, Flaw]]) -> CkpttoolError:
    why = _passed(run, passed).removeprefix("; ")
    return NotFoundError(
        f"no whole checkpoint in {run.path}",
        why=why or "it has no .index file of a checkpoint",
        hint=f"ckpttool inspect {shlex.quote(run.path)} shows what is there",
        id="no-whole-checkpoint",
    )
