"""One run of a command that writes a checkpoint: read, change, show or write, look again.

Every such command is a function that changes a ``Bundle``; what is the same for all of
them is here: where it goes and what is in the way, the lock, work that a killed run left,
the graph beside the checkpoint, the SavedModel around it, and the result.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from ckpttool.errors import ChangedError, CorruptError, LimitError
from ckpttool.limits import Limits
from ckpttool.ops.rewrite.data_files import ShardWritten
from ckpttool.ops.rewrite.destination import FINGERPRINT, Destination, folder_of, in_the_way
from ckpttool.ops.rewrite.recipes import recipes
from ckpttool.ops.rewrite.tensors import Bundle, Input, require_present
from ckpttool.ops.rewrite.write import planned_shards, write_bundle
from ckpttool.sources.address import Resolved
from ckpttool.sources.filenames import (
    graph_name,
    index_name,
    join,
    shard_name,
    split_part,
)
from ckpttool.sources.v1_files import is_v1
from ckpttool.storage import open_directory, stat_path
from ckpttool.storage.base import ReadableFile
from ckpttool.storage.fileset import COMMIT_JOURNAL, Recipe, finish_interrupted
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.lock import DirectoryLock

__all__ = [
    "Change",
    "Options",
    "RewriteResult",
    "ShardResult",
    "carry_out",
    "finish_pending",
    "forget_fingerprint",
    "open_graph",
    "recover",
    "require_same",
    "verify_result",
]

Progress = Callable[[int, int], None]


class Change(NamedTuple):
    """One thing that is different in the destination: which variable, what, and why."""

    variable: str
    what: str
    reason: str = ""


class ShardResult(NamedTuple):
    """A data file that was written, or would be.

    ``variables`` counts its entries: whole variables, and slices of others.
    """

    path: str
    nbytes: int
    variables: int


class RewriteResult(NamedTuple):
    """What a writing command did, or would do.

    Attributes:
        source: the prefix that was read (several, separated by spaces).
        destination: the prefix that was written.
        shards: its data files.
        nbytes: bytes of them together.
        variables: how many there are; one in several slices is one.
        changes: what is different from the source.
        applied: false for a plan.
        warnings: what a person should know.
        notes: how the source's address was understood.
        inputs: the files that were read, as they were: what a saved plan depends on.
    """

    source: str
    destination: str
    shards: tuple[ShardResult, ...]
    nbytes: int
    variables: int
    changes: Sequence[Change]
    applied: bool
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()


class Options(NamedTuple):
    """How a writing command is run.

    Attributes:
        dry_run: make the plan and write nothing.
        overwrite: replace a checkpoint that is there.
        check: compare what is read with its checksums on the way.
        link: take in data files that stay as they are by hard links.
        jobs: so many data files are written at the same time.
        verify: read the result back and compare all its checksums.
        confirm: asked with the destination before something is replaced there; it raises
            where that should not be.
        progress: told of bytes done and their total.
        limits: bounds on what files may claim.
    """

    dry_run: bool = False
    overwrite: bool = False
    check: bool = False
    link: bool = False
    jobs: int = 1
    verify: bool = False
    confirm: Callable[[str], None] | None = None
    progress: Progress | None = None
    limits: Limits = Limits()


def carry_out(
    source: str,
    bundle: Bundle,
    where: Destination,
    changes: Sequence[Change],
    options: Options,
    *,
    graph: ReadableFile | None = None,
    notes: Sequence[str] = (),
) -> RewriteResult:
    """Write a bundle, or say what would be written.

    Args:
        source: the prefix or prefixes it was made of, for the result.
        bundle: what to write.
        where: its destination.
        changes: what is different from the source.
        options: how.
        graph: a ``.meta`` that goes with it.
        notes: how the source's address was understood.

    Raises:
        RefusedError: id ``exists``, id ``duplicate-key``.
        ChangedError: id ``locked``: another ckpttool writes there; id ``changed``: a file
            was replaced or written to while it was read.
        CorruptError: a checksum does not match; id ``written-wrong`` when it is one of the
            result's own; id ``shard-out-of-range``.
        IncompleteError: ids ``shard-missing``, ``shard-short``.
        LimitError: id ``limit-shards``.
        NoSpaceError, PermissionDeniedError, StorageError: as the system says.
    """
    warnings: list[str] = []
    variables = bundle.variables
    _require_shards(source, bundle, options.limits)
    require_present(bundle)
    with open_directory(where.directory) as directory:
        if options.dry_run or options.confirm is not None:
            old = in_the_way(directory, where.prefix, overwrite=options.overwrite)
            if old and not options.dry_run and options.confirm is not None:
                options.confirm(where.location)
        if options.dry_run:
            written = planned_shards(bundle, where.prefix)
        else:
            with DirectoryLock(directory) as lock:
                wanted = recipes(bundle, where.prefix).values()
                warnings += recover(directory, lock, wanted)
                written = _write(directory, where, bundle, options, graph, warnings)
                if options.verify:
                    verify_result(where, options)
        shards = tuple(
            ShardResult(join(directory.path, shard.name), shard.nbytes, shard.variables)
            for shard in written
        )
    return RewriteResult(
        source,
        where.location,
        shards,
        sum(shard.nbytes for shard in shards),
        variables,
        changes,
        not options.dry_run,
        tuple(warnings),
        tuple(notes),
        bundle.inputs,
    )


def _require_shards(source: str, bundle: Bundle, limits: Limits) -> None:
    """Check what an index claims of data files, before one is made for each of them."""
    if bundle.shards > limits.shards:
        raise LimitError(
            f"{source} is over a limit",
            why=f"its index claims {bundle.shards} data files, and the limit is {limits.shards}",
            hint="if the file is trusted, raise shards in CKPTTOOL_LIMITS",
            id="limit-shards",
        )
    worst = max((tensor.shard for tensor in bundle.tensors), default=-1)
    if worst >= bundle.shards:
        raise CorruptError(
            f"the index of {source} contradicts itself",
            why=f"a variable lies in data file {worst}, and there are {bundle.shards}",
            hint=f"ckpttool verify {shlex.quote(source)}",
            id="shard-out-of-range",
        )


def _write(
    directory: LocalDirectory,
    where: Destination,
    bundle: Bundle,
    options: Options,
    graph: ReadableFile | None,
    warnings: list[str],
) -> list[ShardWritten]:
    old = in_the_way(directory, where.prefix, overwrite=options.overwrite)
    beside = {} if graph is None else {graph_name(where.prefix): graph}
    names = {shard_name(where.prefix, shard, bundle.shards) for shard in range(bundle.shards)}
    new = names | beside.keys()
    stale = [name for name in old if name not in new and name != index_name(where.prefix)]
    if graph_name(where.prefix) in stale:
        warnings.append(f"{graph_name(where.prefix)} went with what was overwritten: removed")

    def ready() -> None:
        require_same(bundle.inputs)
        forget_fingerprint(where, warnings)

    written = write_bundle(
        bundle,
        directory,
        where.prefix,
        check=options.check,
        link=options.link,
        jobs=options.jobs,
        overwrite=options.overwrite,
        remove=stale,
        beside=beside,
        before_commit=ready,
        progress=options.progress,
    )
    if options.link and not any(shard.linked for shard in written):
        warnings.append("all was copied: no data file stays as it is on one file system")
    return written


def open_graph(found: Resolved, opened: ExitStack) -> ReadableFile | None:
    """The ``.meta`` beside a source, open for as long as ``opened`` is; None without one."""
    directory = opened.enter_context(open_directory(found.directory))
    if directory.stat(graph_name(found.prefix)) is None:
        return None
    return opened.enter_context(closing(directory.open(graph_name(found.prefix))))


def require_same(inputs: Sequence[Input]) -> None:
    """Check that the files that were read are still what they were.

    Raises:
        ChangedError: id ``changed``.
    """
    for one in inputs:
        now = stat_path(one.path)
        if now is None or (now.size, now.mtime_ns, now.inode) != one[1:]:
            raise ChangedError(
                f"{one.path} was changed while it was read",
                why="it has gone"
                if now is None
                else f"it was replaced or written to: {now.size} bytes now, {one.size} before",
                hint="nothing was written; run the command again when its writer has finished",
            )


def forget_fingerprint(where: Destination, warnings: list[str]) -> None:
    """Remove a SavedModel's fingerprint: it holds a hash of the index that now changes.

    TensorFlow loads a model without one, and makes one when it saves.
    """
    if not where.saved_model:
        return
    with open_directory(where.saved_model) as above:
        found = above.stat(FINGERPRINT)
        if found is not None:
            above.remove(found)
            warnings.append(
                f"{join(where.saved_model, FINGERPRINT)} was of the old variables: removed"
            )


def finish_pending(to: str) -> list[str]:
    """Finish a write that was killed at a destination, before anything is read.

    A checkpoint that was being replaced in its own place has no index until this is done,
    so a command that is run again has to come by here before it looks for its source.

    Returns:
        What a person should be told.
    """
    folder = folder_of(to)
    if folder is None:
        return []
    with open_directory(folder) as directory:
        if directory.stat(COMMIT_JOURNAL) is None:
            return []
        with DirectoryLock(directory) as lock:
            return recover(directory, lock)


def recover(
    directory: LocalDirectory, lock: DirectoryLock, wanted: Iterable[Recipe] = ()
) -> list[str]:
    """Finish what a killed ckpttool left in a locked directory, and say so.

    Files that it had finished and that are ``wanted`` are left there; others go.
    """
    said = []
    if lock.taken_over:
        said.append(f"the lock of {lock.taken_over}, which has died, was taken over")
    made = [recipe for recipe in wanted if recipe.is_made(directory)]
    if finish_interrupted(directory, lambda name: _may_be_written(directory, name), made):
        said.append(f"a write that was interrupted in {directory.path} has been finished first")
    if made:
        nbytes = sum(recipe.nbytes for recipe in made)
        files = "1 data file" if len(made) == 1 else f"{len(made)} data files"
        said.append(f"{files} of an interrupted write, {nbytes} bytes, need not be written again")
    return said


def _may_be_written(directory: LocalDirectory, name: str) -> bool:
    """Whether a commit of ours can concern a file of this name.

    A V1 checkpoint may have any name; one that is free, or is a V1 checkpoint's, is no loss
    to anybody else.
    """
    if split_part(name) is not None:
        return True
    return directory.stat(name) is None or is_v1(directory, name)


def verify_result(where: Destination, options: Options) -> None:
    """Read the result back.

    Raises:
        CorruptError: id ``written-wrong``: the disk or memory is faulty, or the source's
            bytes were damaged before.
    """
    from ckpttool.ops.verify import verify

    result = verify(where.location, limits=options.limits, progress=options.progress)
    if not result.healthy:
        first = result.findings[0]
        raise CorruptError(
            f"{where.location} was written, and is not healthy",
            why=f"{first.object}: {first.message}",
            hint=f"ckpttool verify {shlex.quote(where.location)}; and the same of the source",
            id="written-wrong",
        )
