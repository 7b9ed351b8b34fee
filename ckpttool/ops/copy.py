"""``cp`` and ``mv``: a whole checkpoint as one thing.

The files (``copy_files.py``) are taken as they are, to the byte, whatever is in them; only
their names change. The index comes last at the destination, and goes first at the source.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing

from ckpttool.errors import (
    CorruptError,
    NoSpaceError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from ckpttool.limits import Limits
from ckpttool.ops.copy_files import CheckpointFiles, collect, require_free
from ckpttool.ops.rewrite.destination import Destination, destination, prefix_of
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
from ckpttool.sources.filenames import join
from ckpttool.sources.run import read_state_file
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat
from ckpttool.storage.fileset import FileSet, Recipe
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["copy_checkpoint", "move_checkpoint"]


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
        where = destination(to, prefix_of(found))
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
        where = destination(to, prefix_of(found))
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
    _require_checkpoint(found)
    files = collect(source, found, options.limits, _salvage(found))
    with open_directory(where.directory) as directory:
        _require_elsewhere(source, directory, found, where)
        old = require_free(directory, files, where.prefix, overwrite=options.overwrite)
        if old and not options.dry_run and options.confirm is not None:
            options.confirm(where.location)
        if options.check:
            _require_healthy(found, options)
        if not options.dry_run:
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
        if moving and not options.dry_run:
            warnings += _still_listed(source, found.prefix, options.limits)
        shards = tuple(
            ShardResult(join(directory.path, one.name(where.prefix)), one.stat.size, one.variables)
            for one in files.data
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
        tuple(Input.of(join(source.path, stat.name), stat) for stat in files.without_graph),
    )


def _write(
    source: LocalDirectory,
    directory: LocalDirectory,
    files: CheckpointFiles,
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
        *_, last = named
        new.commit(last, [name for name in old if name not in named])
    if options.link and not linked:
        warnings.append(f"{directory.path} is on another file system: all was copied")


def _link(new: FileSet, name: str, source: LocalDirectory, stat: FileStat) -> bool:
    """Take a file in without copying it; false where the file system has no links."""
    try:
        new.link(name, source, stat)
    except (StorageError, PermissionDeniedError):
        return False
    return True


def _recipes(source: LocalDirectory, files: CheckpointFiles, prefix: str) -> dict[str, Recipe]:
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


def _remove(source: LocalDirectory, files: CheckpointFiles) -> None:
    """Remove the source's files, the last one first, so that nothing half gone looks whole."""
    *others, last = files.files
    source.remove(last.stat)
    source.sync()
    for one in others:
        source.remove(one.stat)
    source.sync()


def _still_listed(source: LocalDirectory, prefix: str, limits: Limits) -> Iterator[str]:
    """What to know where the run's state file names a checkpoint that is moved."""
    file = read_state_file(source, limits)
    if file is None or file.state is None:
        return
    said = file.state
    paths = (said.model_checkpoint_path or "", *said.all_model_checkpoint_paths)
    if prefix in map(os.path.basename, paths):
        mend = f"ckpttool state {shlex.quote(source.path)} --fix"
        yield f"{file.path} names {prefix}, which is elsewhere now: {mend}"


def _require_elsewhere(
    source: LocalDirectory, directory: LocalDirectory, found: Resolved, where: Destination
) -> None:
    one, other = source.itself(), directory.itself()
    if (one.device, one.inode, prefix_of(found)) == (other.device, other.inode, where.prefix):
        raise RefusedError(
            f"{found.location} is the source and the destination",
            why="a checkpoint cannot be put in its own place",
            hint="choose another name",
            id="same-place",
        )


def _require_checkpoint(found: Resolved) -> None:
    """Check that it is something whose files this command knows.

    Raises:
        UnsupportedError: id ``not-a-checkpoint``.
    """
    if found.kind not in {"checkpoint", "run", "savedmodel", "tf-v1"}:
        raise UnsupportedError(
            f"{found.address} is no checkpoint of several files",
            why="it is one file, which the system copies as well",
            hint=f"cp {shlex.quote(found.address)} …; or ckpttool repartition makes a "
            "checkpoint of it",
            id="not-a-checkpoint",
        )


def _salvage(found: Resolved) -> str:
    if found.version == "v1":
        return "bring all files of one save together first"
    return f"ckpttool cp --salvage {shlex.quote(found.address)} DST copies what is intact"


def _require_healthy(found: Resolved, options: Options) -> None:
    from ckpttool.ops.verify import verify

    address = found.address
    result = verify(address, limits=options.limits, progress=options.progress)
    if not result.healthy:
        first = result.findings[0] if result.findings else None
        raise CorruptError(
            f"{address} is not healthy, and was not copied",
            why=f"{first.object}: {first.message}" if first else "not all of it could be checked",
            hint=_salvage(found),
            id="source-damaged",
        )
