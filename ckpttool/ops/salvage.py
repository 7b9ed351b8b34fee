"""``cp --salvage``: every intact variable of a damaged checkpoint, and a list of the rest.

What is intact is proven: each entry's bytes are read and match their checksum (of V1 the
block's; of what has none, they can be read). A partitioned variable is intact when all of
its parts are. The object graph, where it is
intact, is kept; TensorFlow then restores what is there and names what is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError, CorruptError, RefusedError
from ckpttool.formats.bundle import BundleIndex
from ckpttool.formats.dtypes import BY_NUMBER, STRING, VARIANT, dtype_name
from ckpttool.model import numel
from ckpttool.ops.rewrite.destination import Destination, destination, is_bundle, prefix_of
from ckpttool.ops.rewrite.from_source import bundle_from
from ckpttool.ops.rewrite.part_sums import check_opaque, check_whole
from ckpttool.ops.rewrite.run import (
    Change,
    Options,
    RewriteResult,
    carry_out,
    finish_pending,
    open_graph,
)
from ckpttool.ops.rewrite.tensors import Bundle, Stored, Tensor, bundle_of, inputs_of
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.filenames import index_name
from ckpttool.sources.registry import open_resolved
from ckpttool.sources.shard_files import ShardFiles
from ckpttool.storage import open_directory

__all__ = ["Lost", "Salvaged", "salvage"]


@dataclass(frozen=True, slots=True)
class Lost:
    """A variable, or a part of the index, that could not be saved, and why."""

    object: str
    why: str


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was written, and what is lost."""

    result: RewriteResult
    lost: tuple[Lost, ...]


def salvage(address: str, to: str, options: Options) -> Salvaged:
    """Copy what is intact.

    Raises:
        CorruptError: the index cannot be read at all, or (id ``nothing-intact``) nothing
            is intact.
        CkpttoolError: as ``carry_out``.
    """
    pending = [] if options.dry_run else finish_pending(to)
    found = resolve(address, options.limits)
    where = destination(to, prefix_of(found))
    if where.saved_model:
        raise RefusedError(
            f"{to} is a SavedModel, and a part of its variables would break it",
            why="a SavedModel needs every variable",
            hint="give a prefix to write to",
            id="salvage-saved-model",
        )
    lost: list[Lost] = []
    notes = (*pending, *found.notes)
    if not is_bundle(found):
        with open_resolved(found, options.limits) as source:
            bundle = bundle_from(source, lambda name, error: lost.append(_lost(name, error)))
            return _write(found, bundle, where, lost, options, notes)
    with (
        open_directory(found.directory) as directory,
        closing(directory.open(index_name(found.prefix))) as file,
    ):
        index = BundleIndex(
            file,
            options.limits,
            damaged=lambda error: lost.append(Lost("index", str(error))),
        )
        if index.found_header is None:
            raise CorruptError(
                f"{found.location} cannot be salvaged",
                why="the header of its index is lost, so that its data files have no names",
                hint=f"ckpttool verify {shlex.quote(address)}",
                id="header-missing",
            )
        files = ShardFiles(directory, found.prefix, index.header.num_shards)
        with closing(files):
            bundle = bundle_of(index, files)
            bundle.inputs = inputs_of(file, files)
            lost += _drop_damaged(bundle)
            return _write(found, bundle, where, lost, options, notes)


def _write(
    found: Resolved,
    bundle: Bundle,
    where: Destination,
    lost: list[Lost],
    options: Options,
    notes: Sequence[str],
) -> Salvaged:
    """Write what is left, with the graph, which asks for more than that."""
    if not bundle.tensors:
        raise CorruptError(
            f"nothing of {found.location} is intact",
            why=f"{lost[0].object}: {lost[0].why}" if lost else "it has no variables",
            hint=f"ckpttool verify {shlex.quote(found.address)}",
            id="nothing-intact",
        )
    changes = [Change(one.object, "lost", one.why) for one in lost]
    with ExitStack() as opened:
        graph = open_graph(found, opened)
        result = carry_out(
            found.location, bundle, where, changes, options, graph=graph, notes=notes
        )
    return Salvaged(result, tuple(lost))


def _lost(name: str, error: CkpttoolError) -> Lost:
    return Lost(name, error.why or error.what)


def _drop_damaged(bundle: Bundle) -> list[Lost]:
    """Take out of the bundle every variable that is not proven intact."""
    why: dict[bytes, str] = {}
    present: set[bytes] = set()
    for tensor in bundle.tensors:
        try:
            _require_intact(tensor, big_endian=bundle.big_endian)
            present.add(tensor.key)
        except CkpttoolError as error:
            why.setdefault(tensor.variable, error.why or error.what)
    for owner in bundle.owners.values():
        if any(spec.key(owner.key) not in present for spec in owner.slices):
            why.setdefault(owner.key, "the index has no entry for one of its slices")
    bundle.tensors = [tensor for tensor in bundle.tensors if tensor.variable not in why]
    bundle.owners = {key: owner for key, owner in bundle.owners.items() if key not in why}
    return [Lost(key.decode("utf-8", "surrogateescape"), why[key]) for key in sorted(why)]


def _require_intact(tensor: Tensor, *, big_endian: bool) -> None:
    content = tensor.content
    assert isinstance(content, Stored), "nothing has been changed yet"
    known = BY_NUMBER.get(tensor.dtype)
    if content.crc32c is None:
        raise CorruptError(
            f"{tensor.key!r} has no checksum", why="no checksum is stored", id="checksum-missing"
        )
    if tensor.dtype in {STRING, VARIANT}:
        check_opaque(content, tensor, big_endian=big_endian)
        return
    if known is not None and known.size and tensor.shape is not None:
        expected = numel(tensor.shape) * known.size
        if content.nbytes != expected:
            raise CorruptError(
                f"{tensor.key!r} has the wrong size",
                why=f"{content.nbytes} bytes are stored, and its shape and "
                f"{dtype_name(tensor.dtype)} make {expected}",
                id="size-mismatch",
            )
    check_whole(content, tensor)
