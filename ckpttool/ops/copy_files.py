"""Which files make up a checkpoint that is copied or moved, and what is in their way.

Of a V2 checkpoint the data files, the graph and the index; of a V1 checkpoint the graph
and the file, or files, that are named by the prefix itself. The last one is that without
which the others mean nothing: it comes last at the destination, and goes first at the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from ckpttool.errors import IncompleteError, RefusedError
from ckpttool.formats.bundle import BundleIndex
from ckpttool.formats.entry import SliceBudget
from ckpttool.formats.v1 import V1File
from ckpttool.limits import Limits
from ckpttool.ops.rewrite.destination import in_the_way, is_checkpoint_file
from ckpttool.sources.address import Resolved
from ckpttool.sources.filenames import graph_name, index_name, join, shard_name, v1_shard
from ckpttool.sources.v1_files import is_v1, missing_files, v1_files
from ckpttool.storage.base import Directory, FileStat

__all__ = ["CheckpointFile", "CheckpointFiles", "collect", "require_free"]


class CheckpointFile(NamedTuple):
    """A file of a checkpoint.

    Attributes:
        name: its name with a given prefix.
        stat: the file.
        role: what it is.
        variables: of a data file, how many entries have bytes in it.
    """

    name: Callable[[str], str]
    stat: FileStat
    role: Literal["data", "graph", "index"]
    variables: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of a checkpoint, the last one last.

    ``variables`` counts a partitioned one as one; ``v1`` is whether it has no index.
    """

    files: tuple[CheckpointFile, ...]
    variables: int
    v1: bool

    def named(self, prefix: str) -> dict[str, FileStat]:
        """Every file under its name with another prefix, in their order."""
        return {one.name(prefix): one.stat for one in self.files}

    @property
    def data(self) -> list[CheckpointFile]:
        """The data files."""
        return [one for one in self.files if one.role == "data"]

    @property
    def without_graph(self) -> list[FileStat]:
        """Those that hold the variables, the last one first."""
        return [one.stat for one in reversed(self.files) if one.role != "graph"]


def collect(source: Directory, found: Resolved, limits: Limits, hint: str) -> CheckpointFiles:
    """What belongs to the checkpoint that an address came to; all of it has to be there.

    Raises:
        IncompleteError: ids ``shard-missing``, ``shard-short``; with the ``hint``.
        CorruptError, LimitError, UnsupportedError: its index cannot be read.
    """
    collected = _v1 if found.version == "v1" else _v2
    return collected(source, found, limits, hint)


def require_free(
    directory: Directory, files: CheckpointFiles, prefix: str, *, overwrite: bool
) -> list[str]:
    """The files of a checkpoint that is at the destination already, by name.

    Raises:
        RefusedError: id ``exists``: there are some, and ``overwrite`` is false; or one has
            the name of a V1 checkpoint, and is none.
    """
    if not files.v1:
        return in_the_way(directory, prefix, overwrite=overwrite)
    found = []
    for stat in directory.scan():
        shard = v1_shard(stat.name)
        if stat.name == prefix or (shard and shard[0] == prefix and shard[1] is not None):
            if overwrite and not is_v1(directory, stat.name):
                raise _exists(directory, prefix, f"{stat.name} is no V1 checkpoint")
            found.append(stat.name)
        elif is_checkpoint_file(stat.name, prefix):
            found.append(stat.name)
    if found and not overwrite:
        raise _exists(directory, prefix, f"there is {', '.join(sorted(found)[:3])}")
    return sorted(found)


def _exists(directory: Directory, prefix: str, why: str) -> RefusedError:
    return RefusedError(
        f"{join(directory.path, prefix)} exists",
        why=why,
        hint="add --overwrite, or choose another name",
        id="exists",
    )


def _v2(source: Directory, found: Resolved, limits: Limits, hint: str) -> CheckpointFiles:
    prefix = found.prefix
    needed: Counter[int] = Counter()
    entries: Counter[int] = Counter()
    variables = 0
    with closing(source.open(index_name(prefix))) as file:
        index = BundleIndex(file, limits)
        for block in index.blocks():
            for entry in block:
                if entry.slices:
                    variables += 1 - len(entry.slices)
                else:
                    variables += 1
                    entries[entry.shard] += 1
                    needed[entry.shard] = max(needed[entry.shard], entry.offset + entry.size)
        count, index_stat = index.header.num_shards, file.stat
    on_disk = {entry.name: entry for entry in source.scan()}
    files = []
    for number in sorted(needed.keys() | set(range(min(count, len(on_disk))))):
        name = shard_name(prefix, number, count)
        stat = on_disk.get(name)
        if number in needed and (stat is None or stat.size < needed[number]):
            raise _incomplete(found, join(source.path, name), stat, needed[number], hint)
        if stat is not None:
            named = partial(shard_name, shard=number, shards=count)
            files.append(CheckpointFile(named, stat, "data", entries[number]))
    if (graph := on_disk.get(graph_name(prefix))) is not None:
        files.append(CheckpointFile(graph_name, graph, "graph"))
    files.append(CheckpointFile(index_name, index_stat, "index"))
    return CheckpointFiles(tuple(files), variables, v1=False)


def _v1(source: Directory, found: Resolved, limits: Limits, hint: str) -> CheckpointFiles:
    names = v1_files(source, found.prefix)
    for name in missing_files(found.prefix, names):
        raise _incomplete(found, join(source.path, name), None, 0, hint)
    files = []
    graph = source.stat(graph_name(found.prefix))
    if graph is not None and graph.kind == "file":
        files.append(CheckpointFile(graph_name, graph, "graph"))
    variables: set[bytes] = set()
    budget = SliceBudget(limits)
    for number, name in names.items():
        with closing(source.open(name)) as file:
            tensors = V1File(file, limits, budget).tensors
            variables.update(tensor.name for tensor in tensors)
            slices = sum(len(tensor.slices) for tensor in tensors)
            named = partial(_v1_name, number=number, pattern=found.prefix)
            files.append(CheckpointFile(named, file.stat, "data", slices))
    return CheckpointFiles(tuple(files), len(variables), v1=True)


def _v1_name(prefix: str, *, number: int, pattern: str) -> str:
    """The name of a file of a V1 checkpoint; ``pattern`` is how the source spells its prefix."""
    shard = v1_shard(pattern)
    return prefix if shard is None else f"{prefix}-{number:05d}-of-{shard[2]:05d}"


def _incomplete(
    found: Resolved, path: str, stat: FileStat | None, needed: int, hint: str
) -> IncompleteError:
    return IncompleteError(
        f"{found.location} is not whole",
        why=f"there is no {path}"
        if stat is None
        else f"{path} has {stat.size} bytes of at least {needed}",
        hint=hint,
        id="shard-missing" if stat is None else "shard-short",
    )
