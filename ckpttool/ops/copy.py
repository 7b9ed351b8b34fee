"""``cp`` and ``mv``: a whole checkpoint as one thing.

The files are taken as they are, to the byte, whatever is in them; only their names change.
The index comes last at the destination, and goes first at the source.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from ckpttool.errors import (
    CorruptError,
    IncompleteError,
    NoSpaceError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
)
from ckpttool.formats.bundle import BundleIndex
from ckpttool.limits import Limits
from ckpttool.ops.rewrite.destination import Destination, destination, in_the_way
from ckpttool.ops.rewrite.recipes import recipe_of_copy
from ckpttool.ops.rewrite.run import (
    Options,
    RewriteResult,
    ShardResult,
    finish_pending,
    forget_fingerprint,
    recover,
    require_same,
    verify_result,
)
from ckpttool.ops.rewrite.shard_writer import Reporter
from ckpttool.ops.rewrite.tensors import Input
from ckpttool.ops.rewrite.threads import in_order
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.filenames import graph_name, index_name, join, shard_name
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat
from ckpttool.storage.fileset import FileSet, Recipe
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["copy_checkpoint", "move_checkpoint"]


@dataclass(frozen=True, slots=True)
class _Files:
    """The files of a checkpoint.

    ``shards`` holds the number of every data file that is there, the file, and how many
    entries have bytes in it; ``count`` is what their names say. ``variables`` counts a
    partitioned one as one.
    """

    index: FileStat
    shards: tuple[tuple[int, FileStat, int], ...]
    count: int
    variables: int
    graph: FileStat | None

    def named(self, prefix: str) -> dict[str, FileStat]:
        """Every file under its name with another prefix, the index last."""
        files = {shard_name(prefix, number, self.count): stat for number, stat, _ in self.shards}
        if self.graph is not None:
            files[graph_name(prefix)] = self.graph
        files[index_name(prefix)] = self.index
        return files


def copy_checkpoint(address: str, to: str, options: Options) -> RewriteResult:
    """Copy a checkpoint with its graph.

    Raises:
        IncompleteError: ids ``shard-missing``, ``shard-short``: the copy would not be whole.
        CorruptError: with ``options.check``, id ``source-damaged``; with
            ``options.verify``, id ``written-wrong``.
        RefusedError: id ``exists``.
        CkpttoolError: as ``resolve`` and the storage.
    """
    pending = [] if options.dry_run else finish_pending(to)
    found = resolve(address, options.limits)
    with open_directory(found.directory) as source:
        where = destination(to, found.prefix)
        return _transfer(source, found, where, options, pending, moving=False)


def move_checkpoint(address: str, to: str, options: Options) -> RewriteResult:
    """Move a checkpoint with its graph; within a file system no byte is copied.

    Until the destination is complete the source stays as it is; raises as
    ``copy_checkpoint``.
    """
    pending = [] if options.dry_run else finish_pending(to)
    found = resolve(address, options.limits)
    if found.kind == "savedmodel":
        raise RefusedError(
            f"{address} is a SavedModel, and cannot do without its variables",
            why="moving them away would leave a broken model",
            hint=f"ckpttool cp {shlex.quote(address)} {shlex.quote(to)}",
            id="move-saved-model",
        )
    with open_directory(found.directory) as source:
        where = destination(to, found.prefix)
        return _transfer(source, found, where, options, pending, moving=True)


def _transfer(
    source: LocalDirectory,
    found: Resolved,
    where: Destination,
    options: Options,
    warnings: list[str],
    *,
    moving: bool,
) -> RewriteResult:
    files = _collect(source, found, options.limits)
    if options.check:
        _require_healthy(found.address, options)
    with open_directory(where.directory) as directory:
        old = in_the_way(directory, where.prefix, overwrite=options.overwrite)
        if not options.dry_run:
            _require_elsewhere(source, directory, found, where)
            with DirectoryLock(directory) as lock:
                recipes = _recipes(source, files, where.prefix)
                warnings += recover(directory, lock, recipes.values())
                _write(
                    source, directory, files, where, old, recipes, options, warnings, moving=moving
                )
            if options.verify:
                verify_result(where, options)
            if moving:
                _remove(source, files)
        shards = tuple(
            ShardResult(
                join(directory.path, shard_name(where.prefix, number, files.count)),
                stat.size,
                variables,
            )
            for number, stat, variables in files.shards
        )
    return RewriteResult(
        found.location,
        where.location,
        shards,
        sum(shard.nbytes for shard in shards),
        files.variables,
        (),
        not options.dry_run,
        tuple(warnings),
        found.notes,
        tuple(
            Input.of(join(source.path, stat.name), stat)
            for stat in (files.index, *(stat for _, stat, _ in files.shards))
        ),
    )


def _collect(source: LocalDirectory, found: Resolved, limits: Limits) -> _Files:
    """What belongs to the checkpoint; all of it has to be there."""
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
    shards = []
    for number in sorted(needed.keys() | set(range(min(count, len(on_disk))))):
        name = shard_name(prefix, number, count)
        stat = on_disk.get(name)
        if number in needed and (stat is None or stat.size < needed[number]):
            raise _incomplete(found, join(source.path, name), stat, needed[number])
        if stat is not None:
            shards.append((number, stat, entries[number]))
    return _Files(index_stat, tuple(shards), count, variables, on_disk.get(graph_name(prefix)))


def _write(
    source: LocalDirectory,
    directory: LocalDirectory,
    files: _Files,
    where: Destination,
    old: list[str],
    recipes: Mapping[str, Recipe],
    options: Options,
    warnings: list[str],
    *,
    moving: bool,
) -> None:
    named = files.named(where.prefix)
    total = sum(stat.size for stat in named.values())
    made = {name: one for name, one in recipes.items() if one.is_made(directory)}
    missing = total - sum(one.nbytes for one in made.values())
    linked = (moving or options.link) and source.itself().device == directory.itself().device
    if not linked and directory.free_bytes() < missing:
        raise NoSpaceError(
            f"{where.prefix} does not fit into {directory.path}",
            why=f"it needs {missing} bytes, and {directory.free_bytes()} are free",
            hint="free some space, or write to another disk",
        )
    report = Reporter(options.progress, total)
    with FileSet(directory, overwrite=options.overwrite) as new:

        def take(file: tuple[str, FileStat]) -> None:
            name, stat = file
            recipe = recipes.get(name)
            taken_in = recipe is not None and new.take_in(name, recipe)
            if not taken_in and not (linked and _link(new, name, source, stat)):
                _copy(new, name, source, stat, recipe)
            report.add(stat.size)

        in_order(take, list(named.items()), options.jobs, report.stop)
        require_same([Input.of(join(source.path, stat.name), stat) for stat in named.values()])
        forget_fingerprint(where, warnings)
        new.commit(index_name(where.prefix), [name for name in old if name not in named])
    if options.link and not linked:
        warnings.append(f"{directory.path} is on another file system: all was copied")


def _link(new: FileSet, name: str, source: LocalDirectory, stat: FileStat) -> bool:
    """Take a file in without copying it; false where the file system has no links."""
    try:
        new.link(name, source, stat)
    except (StorageError, PermissionDeniedError):
        return False
    return True


def _recipes(source: LocalDirectory, files: _Files, prefix: str) -> dict[str, Recipe]:
    """What the large files of the copy are made of, by name."""
    found = {}
    for name, stat in files.named(prefix).items():
        recipe = recipe_of_copy(Input.of(join(source.path, stat.name), stat), name)
        if recipe is not None:
            found[name] = recipe
    return found


def _copy(
    new: FileSet, name: str, source: LocalDirectory, stat: FileStat, recipe: Recipe | None
) -> None:
    with closing(source.open(stat.name)) as file, new.create(name, recipe) as copy:
        copy.reserve(file.stat.size)
        copy.copy(file, 0, file.stat.size)
        copy.commit()


def _remove(source: LocalDirectory, files: _Files) -> None:
    """Remove the source's files, the index first, so that nothing half gone looks whole."""
    source.remove(files.index)
    source.sync()
    for _, stat, _ in files.shards:
        source.remove(stat)
    if files.graph is not None:
        source.remove(files.graph)
    source.sync()


def _require_elsewhere(
    source: LocalDirectory, directory: LocalDirectory, found: Resolved, where: Destination
) -> None:
    one, other = source.itself(), directory.itself()
    if (one.device, one.inode, found.prefix) == (other.device, other.inode, where.prefix):
        raise RefusedError(
            f"{found.location} is the source and the destination",
            why="a checkpoint cannot be put in its own place",
            hint="choose another name",
            id="same-place",
        )


def _require_healthy(address: str, options: Options) -> None:
    from ckpttool.ops.verify import verify

    result = verify(address, limits=options.limits, progress=options.progress)
    if not result.healthy:
        first = result.findings[0] if result.findings else None
        raise CorruptError(
            f"{address} is not healthy, and was not copied",
            why=f"{first.object}: {first.message}" if first else "not all of it could be checked",
            hint=f"ckpttool cp --salvage {shlex.quote(address)} DST copies what is intact",
            id="source-damaged",
        )


def _incomplete(found: Resolved, path: str, stat: FileStat | None, needed: int) -> IncompleteError:
    return IncompleteError(
        f"{found.location} is not whole",
        why=f"there is no {path}"
        if stat is None
        else f"{path} has {stat.size} bytes of at least {needed}",
        hint=f"ckpttool cp --salvage {shlex.quote(found.address)} DST copies what is intact",
        id="shard-missing" if stat is None else "shard-short",
    )
