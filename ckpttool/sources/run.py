"""A run directory: its checkpoints, what saves left behind, and its state file.

One pass over the directory and one small file read; nothing is opened to find out more.
What comes out are facts that never change, cheap enough for a hundred thousand
checkpoints. Whether one is whole is asked one by one (``sources/whole.py``), and what to
do about any of it is the affair of policies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, LimitError, NotFoundError
from ckpttool.formats.state import CheckpointState, read_state
from ckpttool.limits import Limits
from ckpttool.sources.filenames import (
    STATE_FILE,
    index_name,
    join,
    shard_name,
    split_number,
    split_part,
    v1_pattern,
    v1_shard,
)
from ckpttool.sources.state_paths import Located, Lost, StatePaths
from ckpttool.storage import Directory, FileStat
from ckpttool.storage.base import KIND_WORDS

__all__ = [
    "Checkpoint",
    "Leftover",
    "ListedPath",
    "Run",
    "ShardFile",
    "StateFile",
    "read_run",
    "read_state_file",
]


class ShardFile(NamedTuple):
    """A data file, as its name says: shard ``shard`` of ``shards``, and its size."""

    shard: int
    shards: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A V2 checkpoint of a run, known by its index; it may lack shards.

    Attributes:
        prefix: base name.
        series: the prefix without its number.
        number: the number in the name, None where there is none.
        mtime_ns: when the index was written, which is when the save was finished.
        changed_ns: when any of its files, or a temporary one of a save of it, last changed.
        nbytes: index, shards and graph together.
        shards: the data files that are there, also stale ones of another ``-of-N``.
        has_graph: whether it has a ``.meta`` file.
        listed: its place in the state file's list, 0 the oldest; None where it is not there.
        timestamp: the state file's time of it, in seconds.
        latest: whether the state file calls it the latest.
    """

    prefix: str
    series: str
    number: int | None
    mtime_ns: int
    changed_ns: int
    nbytes: int
    shards: tuple[ShardFile, ...]
    has_graph: bool
    listed: int | None = None
    timestamp: float | None = None
    latest: bool = False

    @property
    def files(self) -> list[str]:
        """The names of its files, the index first."""
        names = [index_name(self.prefix)]
        names += [shard_name(self.prefix, shard, shards) for shard, shards, _ in self.shards]
        if self.has_graph:
            names.append(f"{self.prefix}.meta")
        return names


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or directory that a save left behind, or part of no checkpoint.

    ``prefix`` is the checkpoint whose save it comes from; empty where no name says so.
    ``nbytes`` is 0 for a directory.
    """

    name: str
    why: str
    prefix: str
    nbytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class StateFile:
    """A state file that is there: what it says, or why it cannot be read."""

    name: str
    path: str
    state: CheckpointState | None
    error: CkpttoolError | None


@dataclass(frozen=True, slots=True)
class ListedPath:
    """One path of the state file, and where it leads."""

    stored: str
    timestamp: float | None
    found: Located | Lost


@dataclass(frozen=True, slots=True)
class Run:
    """What a run directory holds.

    Attributes:
        path: the directory.
        checkpoints: oldest first: by the number in the name, then by time.
        leftovers: by name.
        v1: prefixes of what may be V1 checkpoints: files that have a graph and no index
            beside them, or that the state file names. Of a sharded one as TensorFlow spells
            it, with question marks.
        state_file: None where there is none.
        listed: the state file's ``all_model_checkpoint_paths``, in its order.
        latest: the state file's ``model_checkpoint_path``; None where it names none.
    """

    path: str
    checkpoints: tuple[Checkpoint, ...]
    leftovers: tuple[Leftover, ...]
    v1: tuple[str, ...]
    state_file: StateFile | None
    listed: tuple[ListedPath, ...]
    latest: ListedPath | None


def read_state_file(
    directory: Directory, limits: Limits, name: str = STATE_FILE
) -> StateFile | None:
    """Read the state file of a directory; what is wrong with it is part of the answer."""
    path = join(directory.path, name)
    try:
        stat = directory.stat(name)
        if stat is None or stat.kind == "directory":
            return None
        file = directory.open(name)
        try:
            return StateFile(name, path, read_state(file, limits), None)
        finally:
            file.close()
    except NotFoundError:
        return None  # removed just now
    except CkpttoolError as error:
        return StateFile(name, path, None, error)


def read_run(
    directory: Directory,
    limits: Limits,
    state_name: str = STATE_FILE,
    *,
    others: list[FileStat] | None = None,
) -> Run:
    """Look at a run directory, in time linear in its entries.

    ``others`` is given every entry that is neither part of a V2 checkpoint nor a leftover
    (the state file is among them), for callers that have to account for all.

    Raises:
        LimitError: more entries than ``limits.directory_entries``.
        StorageError, PermissionDeniedError: the directory cannot be listed.
    """
    found = _Found(others)
    for count, stat in enumerate(directory.scan(), 1):
        if count > limits.directory_entries:
            raise LimitError(
                f"{directory.path} has too many entries",
                why=f"the limit is {limits.directory_entries}",
                hint="name a checkpoint by its prefix, or raise directory_entries in "
                "CKPTTOOL_LIMITS",
                id="limit-directory",
            )
        found.add(stat)
    state_file = read_state_file(directory, limits, state_name)
    listed, latest = _find_paths(directory, state_file)
    checkpoints, v1 = found.finish(directory, listed, latest)
    return Run(
        directory.path,
        checkpoints,
        tuple(sorted(found.leftovers, key=attrgetter("name"))),
        v1,
        state_file,
        listed,
        latest,
    )


def _find_paths(
    directory: Directory, state_file: StateFile | None
) -> tuple[tuple[ListedPath, ...], ListedPath | None]:
    if state_file is None or state_file.state is None:
        return (), None
    state = state_file.state
    paths = StatePaths(directory, state_file.name)
    times = state.all_model_checkpoint_timestamps
    listed = tuple(
        ListedPath(stored, times[place] if place < len(times) else None, paths.find(stored))
        for place, stored in enumerate(state.all_model_checkpoint_paths)
    )
    stored = state.model_checkpoint_path
    if not stored:
        return listed, None
    return listed, ListedPath(stored, None, paths.find(stored))


#: How the name of a temporary file ends, and what left it. TensorFlow: tensor_bundle.cc
#: (tempstate), lib/io/file_io.py (tmp).
_TEMPORARY_FILES = (
    (re.compile(r"\.tempstate[0-9]+\Z"), "a save was interrupted while it wrote this file"),
    (re.compile(r"\.tmp[0-9a-f]{32}\Z"), "a text file was interrupted while it was written"),
    (re.compile(r"\.ckpttool-tmp\Z"), "ckpttool was stopped while it wrote this file"),
)
#: The parts of a save that were not merged yet (functional_saver.py, saver.py).
_TEMPORARY_DIRECTORY = re.compile(r"_temp(?:_[0-9a-f]+)?\Z")


@dataclass(slots=True)
class _Files:
    """The files of one prefix while the directory is read; None where there is none."""

    index: int | None = None
    graph: int | None = None
    shards: list[ShardFile] = field(default_factory=list)
    mtime_ns: int = 0
    changed_ns: int = 0


class _Found:
    """Sorts directory entries into checkpoints and leftovers."""

    def __init__(self, others: list[FileStat] | None) -> None:
        self.leftovers: list[Leftover] = []
        self._others = others
        self._files: dict[str, _Files] = {}
        self._sharded_v1: dict[str, str] = {}

    def add(self, stat: FileStat) -> None:
        """Take one entry of the directory."""
        name = stat.name
        part = split_part(name)
        if part is None:
            self._add_other(stat)
        elif stat.kind != "file":
            what = (
                "a symbolic link, which is not followed"
                if stat.kind == "link"
                else f"named like a file of a checkpoint, but {KIND_WORDS[stat.kind]}"
            )
            self._leave(stat, what, part.prefix)
        elif name.startswith("._"):
            self._leave(stat, "a macOS resource file (AppleDouble)", "")
        else:
            files = self._files.get(part.prefix)
            if files is None:
                files = self._files[part.prefix] = _Files()
            files.changed_ns = max(files.changed_ns, stat.mtime_ns)
            if part.kind == "shard":
                files.shards.append(ShardFile(part.shard, part.shards, stat.size))
            elif part.kind == "index":
                files.index = stat.size
                files.mtime_ns = stat.mtime_ns
            else:
                files.graph = stat.size

    def _add_other(self, stat: FileStat) -> None:
        name = stat.name
        if stat.kind == "directory":
            temporary = _TEMPORARY_DIRECTORY.search(name)
            if temporary and temporary.start():
                why = "a save was interrupted before its parts were merged"
                self._leave(stat, why, name[: temporary.start()])
            elif self._others is not None:
                self._others.append(stat)
            return
        for ending, why in _TEMPORARY_FILES:
            if temporary := ending.search(name):
                part = split_part(name[: temporary.start()])
                self._leave(stat, why, part.prefix if part else "")
                return
        if self._others is not None:
            self._others.append(stat)
        if "-of-" in name and (shard := v1_shard(name)):
            self._sharded_v1[shard[0]] = v1_pattern(shard[0], shard[2])

    def _leave(self, stat: FileStat, why: str, prefix: str) -> None:
        nbytes = stat.size if stat.kind == "file" else 0
        self.leftovers.append(Leftover(stat.name, why, prefix, nbytes, stat.mtime_ns))

    def finish(
        self, directory: Directory, listed: Sequence[ListedPath], latest: ListedPath | None
    ) -> tuple[tuple[Checkpoint, ...], tuple[str, ...]]:
        """The checkpoints, oldest first, and the names of V1 ones; completes the leftovers."""
        for leftover in self.leftovers:
            if files := self._files.get(leftover.prefix):
                files.changed_ns = max(files.changed_ns, leftover.mtime_ns)
        places: dict[str, tuple[int, float | None]] = {}
        v1: set[str] = set()
        for place, item in enumerate(listed):
            if isinstance(item.found, Located) and item.found.own:
                places[item.found.prefix] = place, item.timestamp
        named = [item.found for item in (*listed, *([latest] if latest else ()))]
        v1.update(
            found.prefix
            for found in named
            if isinstance(found, Located) and found.own and found.version == "v1"
        )
        latest_prefix = (
            latest.found.prefix
            if latest and isinstance(latest.found, Located) and latest.found.own
            else None
        )
        checkpoints = []
        for prefix, files in self._files.items():
            if files.index is None:
                if name := self._without_index(directory, prefix, files):
                    v1.add(name)
                continue
            series, number = split_number(prefix)
            listed_place, timestamp = places.get(prefix, (None, None))
            files.shards.sort(key=_by_count_and_number)
            nbytes = files.index + (files.graph or 0)
            nbytes += sum(shard.nbytes for shard in files.shards)
            checkpoints.append(
                Checkpoint(
                    prefix,
                    series,
                    number,
                    files.mtime_ns,
                    files.changed_ns,
                    nbytes,
                    tuple(files.shards),
                    files.graph is not None,
                    listed_place,
                    timestamp,
                    prefix == latest_prefix,
                )
            )
        checkpoints.sort(key=_by_age)
        return tuple(checkpoints), tuple(sorted(v1))

    def _without_index(self, directory: Directory, prefix: str, files: _Files) -> str | None:
        """Files of a prefix that has no index: leftovers, unless it is a V1 checkpoint."""
        for shard in files.shards:
            name = shard_name(prefix, shard.shard, shard.shards)
            why = "a data file without an index: its save was interrupted, or it was half deleted"
            self.leftovers.append(Leftover(name, why, prefix, shard.nbytes, files.changed_ns))
        if files.graph is None:
            return None
        plain = directory.stat(prefix)
        if plain is not None and plain.kind == "file" and not files.shards:
            return prefix
        if prefix in self._sharded_v1:
            return self._sharded_v1[prefix]
        why = "a graph whose checkpoint is gone"
        self.leftovers.append(
            Leftover(f"{prefix}.meta", why, prefix, files.graph, files.changed_ns)
        )
        return None


def _by_count_and_number(file: ShardFile) -> tuple[int, int]:
    return file.shards, file.shard


def _by_age(checkpoint: Checkpoint) -> tuple[int, int, str]:
    """By number, then time; those without a number come first, for they say least."""
    number = -1 if checkpoint.number is None else checkpoint.number
    return number, checkpoint.mtime_ns, checkpoint.prefix
