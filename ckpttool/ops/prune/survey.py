"""What lies in a run directory, for commands that remove: a `Run`, and all that it leaves out.

Adds V1 checkpoints, Keras files, further state files and nested runs to the facts of
``sources/run.py``. Nothing is classified by guessing: what fits no known pattern, a link or
a pipe is never touched. One pass, linear in the number of files; no name is ever a pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ckpttool.errors import CkpttoolError
from ckpttool.formats.sniff import sniff_file
from ckpttool.limits import Limits
from ckpttool.ops.prune.removal import Removal
from ckpttool.sources.filenames import (
    STATE_FILE,
    graph_name,
    is_sharded_v1,
    split_number,
    split_part,
)
from ckpttool.sources.run import Checkpoint, Leftover, Run, StateFile, read_run, read_state_file
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import TEMPORARY_SUFFIX

__all__ = ["OWN", "Stored", "Survey", "leftover_removal", "removal_of", "survey"]

#: How the names of our own files in a run directory begin.
OWN = ".ckpttool-"
_KERAS = (".weights.h5", ".keras", ".h5")
#: A state file of any name is small; so is what is read to find one.
_STATE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Stored:
    """One checkpoint of any kind.

    ``names`` are its files in the order in which they go: the index, data, the graph. Times
    in nanoseconds; ``v2`` are the facts of a V2 checkpoint, ``prefix`` a file name for Keras.
    """

    prefix: str
    series: str
    number: int | None
    saved_ns: int
    changed_ns: int
    nbytes: int
    names: tuple[str, ...]
    v2: Checkpoint | None = None


@dataclass(slots=True)
class Survey:
    """What lies in a directory.

    ``opaque`` are checkpoints of which a file is a link or a pipe, and why that is so: they
    are not in ``stored``. ``others`` are the state files besides the run's own; ``nested``
    directories that are runs of their own.
    """

    run: Run
    state_name: str
    state_stat: FileStat | None = None
    stored: dict[str, Stored] = field(default_factory=dict)
    opaque: dict[str, str] = field(default_factory=dict)
    others: list[StateFile] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)

    @property
    def newest_change(self) -> float:
        """When anything of a checkpoint or a save changed last, in seconds; 0 if never.

        What ckpttool itself left when it was killed is no save.
        """
        times = [item.changed_ns for item in self.stored.values()]
        times += [
            item.mtime_ns for item in self.run.leftovers if not item.name.endswith(TEMPORARY_SUFFIX)
        ]
        return max(times, default=0) / 1e9


def survey(directory: LocalDirectory, limits: Limits, state_name: str = STATE_FILE) -> Survey:
    """Look at every entry of the directory once, and into those few that need it.

    ``state_name`` is the run's own state file (``latest_filename``).

    Raises:
        LimitError: id ``limit-directory``: more entries than the limit.
        PermissionDeniedError, StorageError, NotFoundError: as the system says.
    """
    # Before the run is read, so that a state file that is replaced meanwhile is noticed.
    state_stat = directory.stat(state_name)
    rest: list[FileStat] = []
    run = read_run(directory, limits, state_name, others=rest)
    found = Survey(run, state_name, state_stat)
    for leftover in run.leftovers:
        # A data file that is elsewhere is as good as one that is here, to TensorFlow.
        part = split_part(leftover.name)
        entry = directory.stat(leftover.name) if part else None
        if part and entry is not None and entry.kind != "file":
            found.opaque[part.prefix] = f"{leftover.name} is {leftover.why}"
    for item in run.checkpoints:
        if item.prefix in found.opaque:
            continue
        found.stored[item.prefix] = Stored(
            item.prefix,
            item.series,
            item.number,
            item.mtime_ns,
            item.changed_ns,
            item.nbytes,
            tuple(item.files),
            item,
        )
    v1: dict[str, list[FileStat]] = {}
    for entry in rest:
        if entry.name.startswith(OWN):
            continue
        if entry.kind == "directory":
            _look_at_folder(directory, entry, found)
        elif entry.kind != "file":
            continue  # a link, a pipe or a device is nothing that a save leaves
        elif entry.name.endswith(_KERAS):
            _add(found, entry.name, [entry])
        else:
            _look_into(directory, entry, found, limits, v1)
    for prefix, files in v1.items():
        if prefix not in found.stored:  # a V2 checkpoint of the same name is the newer one
            graph = directory.stat(graph_name(prefix))
            if graph is not None and graph.kind == "file":
                files.append(graph)
            _add(found, prefix, files)
    return found


def removal_of(directory: LocalDirectory, stored: Stored) -> Removal | None:
    """The files of a checkpoint as they are now; None when they are not as surveyed."""
    files = []
    for name in stored.names:
        now = directory.stat(name)
        if now is None or now.kind != "file" or now.mtime_ns > stored.changed_ns:
            return None
        files.append(now)
    if sum(file.size for file in files) != stored.nbytes:
        return None
    return Removal(stored.prefix, tuple(files))


def leftover_removal(directory: LocalDirectory, leftover: Leftover) -> Removal | str:
    """The files of a leftover as they are now, or why it is left alone.

    A directory goes only when it holds nothing but plain files that a save put there.
    """
    now = directory.stat(leftover.name)
    if now is None or now.mtime_ns > leftover.mtime_ns:
        return "it changed while it was looked at"
    if now.kind == "file":
        return Removal(leftover.name, (now,))
    if now.kind != "directory":
        return "it is no regular file"
    with directory.directory(leftover.name) as inside:
        entries = sorted(inside.scan(), key=lambda entry: entry.name)
    for entry in entries:
        if entry.kind != "file" or not entry.name.startswith("part"):
            return f"{entry.name} in it is no part of a save"
    # The indexes first here too, so that what is left never looks whole.
    entries.sort(key=lambda entry: not entry.name.endswith(".index"))
    return Removal(leftover.name, tuple(entries), leftover.name)


def _add(found: Survey, prefix: str, files: list[FileStat]) -> None:
    suffix = next((s for s in _KERAS if prefix.endswith(s)), "")
    stem = is_sharded_v1(prefix) or prefix.removesuffix(suffix)
    series, number = split_number(stem)
    found.stored[prefix] = Stored(
        prefix,
        series + suffix,
        number,
        max(file.mtime_ns for file in files if not file.name.endswith(".meta")),
        max(file.mtime_ns for file in files),
        sum(file.size for file in files),
        tuple(file.name for file in files),
    )


def _look_into(
    directory: LocalDirectory,
    entry: FileStat,
    found: Survey,
    limits: Limits,
    v1: dict[str, list[FileStat]],
) -> None:
    """A V1 checkpoint or a state file may have any name: those that may be one are opened."""
    name = entry.name
    if name == found.state_name or name.startswith("."):
        return
    sharded = is_sharded_v1(name)
    may_be_state = entry.size <= _STATE_BYTES and ("." not in name or "checkpoint" in name)
    if not (may_be_state or sharded or name in found.run.v1 or split_number(name)[1] is not None):
        return
    try:
        file = directory.open(name)
        try:
            kind = sniff_file(file).kind
        finally:
            file.close()
    except CkpttoolError:
        return  # what cannot be opened is not classified, and so not touched
    if kind == "tf-v1":
        count = name.rpartition("-of-")[2]
        v1.setdefault(f"{sharded}-?????-of-{count}" if sharded else name, []).append(entry)
    elif kind == "state" and may_be_state:
        state = read_state_file(directory, limits, name)
        if state is not None:
            found.others.append(state)


def _look_at_folder(directory: LocalDirectory, folder: FileStat, found: Survey) -> None:
    try:
        with directory.directory(folder.name) as inside:
            if inside.stat(STATE_FILE) is not None:
                found.nested.append(folder.name)
    except CkpttoolError:
        return
