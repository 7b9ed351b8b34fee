"""A run directory as `inspect` tells it: its checkpoints one by one, and what is odd.

Reads the index of every checkpoint to say whether it is whole; of the data only the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError
from ckpttool.limits import Limits
from ckpttool.model import Finding
from ckpttool.ops.state import state
from ckpttool.sources.address import RunAddress
from ckpttool.sources.filenames import join
from ckpttool.sources.run import Checkpoint, Run, read_run
from ckpttool.sources.step import step_inside
from ckpttool.sources.whole import flaws
from ckpttool.storage import Directory, open_directory

__all__ = ["RunCheckpoint", "RunReport", "report_run"]

#: Checkpoints that a message names; the rest are counted.
_NAMED = 3

#: Told of checkpoints done and of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """A V2 checkpoint of a run.

    Attributes:
        prefix: with its directory, so that it is an address.
        step: the one stored inside, else the number in its name.
        number: the number in its name.
        time: when it was saved, in seconds: by the state file, else by the index's mtime.
        nbytes: index, data files and graph together.
        flaw: the first thing that keeps it from being whole; empty when it is.
        listed: whether the state file lists it.
        latest: whether the state file calls it the latest.
    """

    prefix: str
    step: int | None
    number: int | None
    time: float
    nbytes: int
    flaw: str
    listed: bool
    latest: bool

    @property
    def whole(self) -> bool:
        """Whether every data file that it needs is there and long enough."""
        return not self.flaw


@dataclass(frozen=True, slots=True)
class RunReport:
    """A run directory.

    Attributes:
        path: the directory.
        state_file: its state file; None where there is none that can be read.
        checkpoints: oldest first.
        leftovers: path and reason of what saves left behind, by name.
        v1: paths of what may be V1 checkpoints, which are not read.
        problems: of the state file and of the checkpoints.
    """

    path: str
    state_file: str | None
    checkpoints: tuple[RunCheckpoint, ...]
    leftovers: tuple[tuple[str, str], ...]
    v1: tuple[str, ...]
    problems: tuple[Finding, ...]


def report_run(where: RunAddress, limits: Limits, progress: Progress | None = None) -> RunReport:
    """Look at a run directory; linear in its entries and in the size of its indexes.

    Raises:
        LimitError, StorageError, PermissionDeniedError: as ``read_run``.
    """
    with open_directory(where.directory) as directory:
        run = read_run(directory, limits, where.state_name)
        checkpoints = []
        for number, checkpoint in enumerate(run.checkpoints, 1):
            checkpoints.append(_checkpoint(directory, checkpoint, limits))
            if progress is not None:
                progress(number, len(run.checkpoints))
    return RunReport(
        run.path,
        run.state_file.path if run.state_file and run.state_file.state else None,
        tuple(checkpoints),
        tuple((join(run.path, leftover.name), leftover.why) for leftover in run.leftovers),
        tuple(join(run.path, name) for name in run.v1),
        (*_state_problems(run, limits), *_checkpoint_problems(run, checkpoints)),
    )


def _checkpoint(directory: Directory, checkpoint: Checkpoint, limits: Limits) -> RunCheckpoint:
    prefix = checkpoint.prefix
    step = step_inside(directory, prefix, limits)
    time = checkpoint.timestamp
    if time is None or not math.isfinite(time):
        time = checkpoint.mtime_ns / 1e9
    wrong = flaws(directory, prefix, limits)
    return RunCheckpoint(
        join(directory.path, prefix),
        checkpoint.number if step is None else step,
        checkpoint.number,
        time,
        checkpoint.nbytes,
        str(wrong[0]) if wrong else "",
        checkpoint.listed is not None,
        checkpoint.latest,
    )


def _state_problems(run: Run, limits: Limits) -> Iterator[Finding]:
    """What `state` finds; that a run has no state file is worth a note."""
    path = run.state_file.path if run.state_file else run.path
    try:
        yield from state(path, limits).problems
    except CkpttoolError as error:
        missing = error.id == "state-missing"
        message = str(error)
        if message.startswith(f"{path} "):  # the finding names it already
            message = f"it{message.removeprefix(path)}"
        yield Finding(error.id, "note" if missing else "warning", path, message)


def _checkpoint_problems(run: Run, checkpoints: list[RunCheckpoint]) -> Iterator[Finding]:
    """Checkpoints that are not whole (but the latest, of which `state` tells), or unlisted."""
    broken = [item for item in checkpoints if item.flaw and not item.latest]
    if broken:
        named = "; ".join(f"{item.prefix}: {item.flaw}" for item in broken[:_NAMED])
        more = _more(len(broken))
        message = f"{_count(len(broken), 'is', 'are')} not whole: {named}{more}"
        yield Finding("checkpoint-incomplete", "warning", run.path, message)
    unlisted = [item for item in checkpoints if not (item.listed or item.latest)]
    if unlisted and run.state_file is not None and run.state_file.state is not None:
        named = ", ".join(item.prefix for item in unlisted[:_NAMED])
        more = _more(len(unlisted))
        message = (
            f"{_count(len(unlisted), 'is', 'are')} not in the state file's list, so TensorFlow "
            f"will not delete {'it' if len(unlisted) == 1 else 'them'}: {named}{more}"
        )
        yield Finding("checkpoint-unlisted", "note", run.path, message)


def _count(count: int, one: str, many: str) -> str:
    return f"1 checkpoint {one}" if count == 1 else f"{count} checkpoints {many}"


def _more(count: int) -> str:
    return f" and {count - _NAMED} more" if count > _NAMED else ""
