"""``convert --to checkpoint``: any source as a V2 checkpoint, compared byte by byte.

It is written beside its place first, read back and compared; only then its files are
linked into their place, by the way that every writing command takes.
"""

from __future__ import annotations

import os
import shlex
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from ckpttool.conversion.check import CheckResult, not_run, require_proof
from ckpttool.conversion.job import Made
from ckpttool.conversion.staging import Output, Staging
from ckpttool.conversion.weights import array_of
from ckpttool.errors import RefusedError, UsageError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.ops.rewrite.destination import (
    Destination,
    destination,
    in_the_way,
    prefix_of,
)
from ckpttool.ops.rewrite.reading import bundle_from
from ckpttool.ops.rewrite.run import Options, carry_out, finish_pending, open_graph
from ckpttool.ops.same_bytes import same_bytes
from ckpttool.policy.words import count
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.filenames import graph_name, index_name, join
from ckpttool.sources.registry import open_resolved
from ckpttool.sources.v2 import BundleSource
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from ckpttool.conversion.request import Request
    from ckpttool.conversion.targets import Target
    from ckpttool.limits import Limits
    from ckpttool.sources.base import NameStyle, Source

__all__ = ["write_checkpoint"]

#: Variables that a failed check names.
_NAMED = 5


def write_checkpoint(
    request: Request,
    target: Target,
    limits: Limits,
    replacing: Callable[[], None] | None,
    *,
    dry_run: bool,
) -> tuple[Made, CheckResult, tuple[Output, ...]]:
    """Write a checkpoint of all variables of a source; with ``dry_run`` only find out.

    A V2 checkpoint keeps its keys, whatever names are asked for: its object graph holds them.
    ``replacing`` is called before one that is there is replaced.

    Raises:
        UsageError: id ``target-setting``: variables are chosen; id ``destination-form``: a
            SavedModel is there.
        RefusedError: id ``exists``; id ``output-is-source``.
        ResultDiffersError: nothing is in place.
        CkpttoolError: as reading the source and ``carry_out``.
    """
    _require_whole(request)
    pending = [] if dry_run else finish_pending(request.destination)
    started = time.monotonic()
    with ExitStack() as stack:
        found = resolve(request.source, limits)
        where = destination(request.destination, prefix_of(found))
        _require_no_saved_model(request, where)
        _require_elsewhere(found, where)
        with open_directory(where.directory) as directory:
            old = in_the_way(directory, where.prefix, overwrite=request.overwrite)
        source = stack.enter_context(open_resolved(found, limits))
        bundle = bundle_from(source, request.choice.names)
        facts: dict[str, object] = {"variables": bundle.variables}
        if dry_run:
            return Made((), tuple(pending), facts=facts), not_run("this is a plan"), ()
        if old and replacing is not None:
            replacing()
        graph = None if found.kind == "savedmodel" else open_graph(found, stack)
        staging = stack.enter_context(Staging(where.location, overwrite=request.overwrite))
        folder, prefix = os.path.split(staging.artefact)
        staged = Destination(folder, prefix)
        options = Options(check=True, limits=limits)
        carry_out(source.location, bundle, staged, (), options, graph=graph)
        written = time.monotonic()
        seconds = {"write": round(written - started, 3)}
        checked = not_run("no check was asked for")
        if request.check.run:
            checked = _compared(source, request.choice.names, staging.artefact, limits)
            seconds["check"] = round(time.monotonic() - written, 3)
        require_proof(checked, request, target)
        outputs = _put_in_place(staged, where, request, limits)
    return Made((), tuple(pending), seconds=seconds, facts=facts), checked, outputs


def _require_whole(request: Request) -> None:
    choice = replace(request.choice, names="full")
    if choice != type(choice)():
        raise UsageError(
            "a checkpoint is made of all variables of its source",
            why="--include, --exclude, --regex and --kind choose what goes into a file of weights",
            hint=f"ckpttool edit {shlex.quote(request.source)} "
            f"{shlex.quote(request.destination)} --keep or --drop",
            id="target-setting",
        )


def _require_no_saved_model(request: Request, where: Destination) -> None:
    if where.saved_model:
        raise UsageError(
            f"{request.destination} is a SavedModel",
            why="its graph asks for its variables by their keys",
            hint=f"ckpttool convert {shlex.quote(request.source)} NEW --to savedmodel --like "
            f"{shlex.quote(where.saved_model)}",
            id="destination-form",
        )


def _require_elsewhere(found: Resolved, where: Destination) -> None:
    """Check that a checkpoint is not written over itself, however the two are spelled."""
    here = os.path.join(found.directory, found.prefix)
    if found.version == "v2" and os.path.realpath(here) == os.path.realpath(where.location):
        raise RefusedError(
            f"{where.location} is not replaced",
            why="it is the source",
            hint="give another name, or use ckpttool edit or repartition, which write in place",
            id="output-is-source",
        )


def _compared(source: Source, names: NameStyle, path: str, limits: Limits) -> CheckResult:
    """Read the result back, and compare every variable with what its source says once more."""
    different = []
    opaque = 0
    with open_resolved(resolve(path, limits), limits) as result:
        new = {one.key: one for one in result.variables(named=False)}
        keeps = isinstance(source, BundleSource) or names == "key"
        number = 0
        for variable in source.variables(named=not keeps):
            number += 1
            name = variable.key if keeps else source.name_of(variable, names)
            copy = new.get(name) or new.get(variable.key)
            known = BY_NAME.get(variable.dtype)
            if variable.dtype != "string" and (known is None or not known.size):
                opaque += 1
            elif (
                copy is None
                or (copy.dtype, copy.shape) != (variable.dtype, variable.shape)
                or not same_bytes(array_of(source, name, variable), result, copy)
            ):
                different.append(name)
        if number != len(new):
            different.append(f"{len(new)} instead of {count(number, 'variable')}")
    if different:
        more = f" and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
        return CheckResult(
            "failed", "bytes", why=f"other values: {', '.join(different[:_NAMED])}{more}"
        )
    were = "was" if opaque == 1 else "were"
    said = f"{count(opaque, 'opaque variable')} {were} compared by checksums only"
    return CheckResult("passed", "bytes", notes=(said,) if opaque else ())


def _put_in_place(
    staged: Destination, where: Destination, request: Request, limits: Limits
) -> tuple[Output, ...]:
    """Link what was written into its place, over what may be there."""
    with ExitStack() as stack:
        found = resolve(staged.location, limits)
        source = stack.enter_context(open_resolved(found, limits))
        options = Options(overwrite=request.overwrite, link=True, limits=limits)
        graph = open_graph(found, stack)
        result = carry_out(source.location, bundle_from(source), where, (), options, graph=graph)
    paths = [one.path for one in result.shards]
    paths.append(join(where.directory, index_name(where.prefix)))
    if graph is not None:
        paths.append(join(where.directory, graph_name(where.prefix)))
    return tuple(Output(path, os.stat(path).st_size) for path in sorted(paths))
