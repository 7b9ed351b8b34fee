"""A run directory as `inspect` tells it: its checkpoints one by one, and what is odd.

Reads the index of every checkpoint (of V1 what it says of its variables) to say whether it
is whole; of the data only the step.
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
from ckpttool.sources.filenames import graph_name, join, split_number
from ckpttool.sources.run import Checkpoint, ListedPath, Run, read_run
from ckpttool.sources.state_paths import Located, version_at
from ckpttool.sources.step import step_inside
from ckpttool.sources.v1_files import v1_files
from ckpttool.sources.whole import flaws
from ckpttool.storage import Directory, open_directory

__all__ = ["RunCheckpoint", "RunReport", "report_run"]

#: Checkpoints that a message names; the rest are counted.
_NAMED = 3

#: Told of checkpoints done and of all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RunCheckpoint:
    """A checkpoint of a run, of either version.

    Attributes:
        prefix: with its directory, so that it is an address.
        step: the one stored inside, else the number in its name.
        number: the number in its name.
        time: when it was saved, in seconds: by the state file, else by the mtime of its
            index (V1: of its newest file).
        nbytes: all its files together.
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
        v1: paths of those that are, or by their names may be, V1 checkpoints.
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
        saved: list[Checkpoint | str] = [*run.checkpoints, *run.v1]
        for number, checkpoint in enumerate(saved, 1):
            if isinstance(checkpoint, Checkpoint):
                checkpoints.append(_checkpoint(directory, checkpoint, limits))
            elif version_at(directory, checkpoint, where.state_name) == "v1":
                checkpoints.append(_v1_checkpoint(directory, run, checkpoint, limits))
            if progress is not None:
                progress(number, len(saved))
        if run.v1:
            checkpoints.sort(key=_by_number)
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


def _v1_checkpoint(directory: Directory, run: Run, prefix: str, limits: Limits) -> RunCheckpoint:
    names = [*v1_files(directory, prefix).values(), graph_name(prefix)]
    files = [stat for name in names if (stat := directory.stat(name)) is not None]
    listed = [item for item in run.listed if _is_at(item, prefix)]
    time = max(stat.mtime_ns for stat in files) / 1e9
    if listed and listed[-1].timestamp is not None and math.isfinite(listed[-1].timestamp):
        time = listed[-1].timestamp
    number = split_number(prefix)[1]
    step = step_inside(directory, prefix, limits, "v1")
    wrong = flaws(directory, prefix, limits, "v1")
    return RunCheckpoint(
        join(directory.path, prefix),
        number if step is None else step,
        number,
        time,
        sum(stat.size for stat in files),
        str(wrong[0]) if wrong else "",
        bool(listed),
        run.latest is not None and _is_at(run.latest, prefix),
    )


def _is_at(item: ListedPath, prefix: str) -> bool:
    return isinstance(item.found, Located) and item.found.own and item.found.prefix == prefix


def _by_number(checkpoint: RunCheckpoint) -> tuple[int, float]:
    return -1 if checkpoint.number is None else checkpoint.number, checkpoint.time


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
