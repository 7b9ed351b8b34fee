"""``convert --like``: an export with the values of a newer checkpoint, without TensorFlow.

The graph, the signatures, the object graph and everything else of the export stay as they
are, to the byte; its variables are written anew from the source and compared with it.
Writes where ``Staging`` says; ``refresh_match.py`` finds what belongs where.
"""

from __future__ import annotations

import os
import shlex
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from ckpttool.conversion.check import CheckResult, not_run
from ckpttool.conversion.job import Made, Origin
from ckpttool.conversion.stored import INIT_SIGNATURE, of_stored
from ckpttool.errors import LimitError, RefusedError, UnsafeError, UsageError
from ckpttool.formats.graph_file import read_graph_file
from ckpttool.formats.saved_model import patch_checkpoint_hash
from ckpttool.ops.convert_child import of_running
from ckpttool.ops.diff.values import Operand, equal
from ckpttool.ops.edit.contents import read_contents
from ckpttool.ops.edit.like import take_values
from ckpttool.ops.edit.mapping_file import read_map
from ckpttool.ops.refresh_match import pair_up
from ckpttool.ops.rewrite.destination import FINGERPRINT
from ckpttool.ops.rewrite.from_source import written_as
from ckpttool.ops.rewrite.run import require_same
from ckpttool.ops.rewrite.tensors import Input
from ckpttool.ops.rewrite.write import write_bundle
from ckpttool.sources.address import resolve
from ckpttool.sources.filenames import SAVED_MODEL_FILES, index_name, split_part
from ckpttool.sources.registry import open_resolved, open_source
from ckpttool.sources.v2 import BundleSource
from ckpttool.storage import open_directory, stat_path
from ckpttool.storage.local_files import OWN_PREFIX

if TYPE_CHECKING:
    from ckpttool.conversion.request import Request
    from ckpttool.limits import Limits
    from ckpttool.ops.edit.contents import Contents
    from ckpttool.ops.refresh_match import Refill
    from ckpttool.sources.base import Source
    from ckpttool.storage.local import LocalDirectory

__all__ = ["refresh", "refresh_origin"]

_VARIABLES = "variables"
#: Of a larger index the hash takes longer than all the rest.
_MOST_HASHED = 4 * 2**20
#: Variables that a message names; the rest are counted.
_NAMED = 5
#: Folders inside each other that an export may have; each takes two descriptors.
_MOST_LEVELS = 64


def refresh_origin(request: Request, limits: Limits) -> Origin:
    """Where graph and values of a refreshed export come from.

    Raises:
        UsageError: id ``target-setting``: an option that a finished graph has no use for;
            id ``like-no-export``: ``like`` is no SavedModel, or has no graph.
        CkpttoolError: as ``resolve``.
    """
    _require_alone(request)
    assert request.like is not None, "the caller asked"
    folder = request.like.rstrip("/") or "/"
    graph = next((one for one in SAVED_MODEL_FILES if stat_path(os.path.join(folder, one))), None)
    if graph is None:
        raise _no_export(request.like, f"there is no {SAVED_MODEL_FILES[0]} in it")
    resolved = resolve(request.source, limits)
    values = resolved.location
    if resolved.kind == "savedmodel":
        values = os.path.dirname(resolved.directory) or "."
    with open_directory(folder) as directory, closing(directory.open(graph)) as file:
        metas = read_graph_file(file, limits, "SavedModel").metas
    if not metas:
        raise _no_export(request.like, f"{graph} has no graph")
    meta = next((one for one in metas if "serve" in one.tags), metas[0])
    signatures = tuple(of_stored(one) for one in meta.signatures if one.name != INIT_SIGNATURE)
    return Origin("export", folder, values, signatures, meta.tags, resolved.notes)


def _no_export(folder: str, why: str) -> UsageError:
    return UsageError(
        f"--like {folder} is no SavedModel that can be refreshed",
        why=why,
        hint="give the directory of an export that was made of the same model",
        id="like-no-export",
    )


def _require_alone(request: Request) -> None:
    given: dict[str, object] = {
        "--graph": request.graph,
        "--model": request.model,
        "--model-arg": request.model_args,
        "--root": request.root,
        "--input": request.inputs,
        "--output": request.outputs,
        "--signature": request.signatures,
        "--freeze-input": request.freeze,
        "--allow-training-graph": request.allow_training_graph,
        "--batch": request.settings.batch,
        "--check-only": request.check.only,
    }
    if not request.check.execute:
        given |= of_running(request)
    if request.target != "savedmodel":
        given = {"--like": request.like}
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} means nothing for {request.target}"
                if option == "--like"
                else f"{option} means nothing with --like",
                why="it is about running the result: its values are compared byte by byte"
                if option in of_running(request)
                else "the graph and the signatures of the export stay as they are",
                hint="add --check run, or leave it out"
                if option in of_running(request)
                else "leave it out; what is to be converted further: refresh it first, then "
                "convert the result",
                id="target-setting",
            )


def refresh(
    request: Request, origin: Origin, path: str, limits: Limits
) -> tuple[Made, CheckResult]:
    """Write the refreshed export to a new directory, and compare its values.

    Args:
        request: has ``like``, and maps of names.
        origin: as ``refresh_origin`` found it.
        path: the directory to make.
        limits: bounds on what files may claim.

    Raises:
        RefusedError: id ``refresh-unmatched``; id ``bundles-differ``: byte orders.
        UsageError: id ``like-no-export``: the export has no variables.
        UnsafeError: id ``unsafe-link``: the export has a link in it.
        LimitError: id ``limit-export-depth``: too many folders inside each other.
        ChangedError: a file was changed meanwhile.
        CorruptError: values of the source are damaged.
        CkpttoolError: as reading and writing.
    """
    assert origin.values is not None, "an export has them from a source"
    started = time.monotonic()
    with ExitStack() as stack:
        source = stack.enter_context(open_source(origin.values, limits))
        export = stack.enter_context(open_resolved(resolve(origin.graph, limits), limits))
        if not isinstance(export, BundleSource):
            raise _no_export(origin.graph, "it has no variables")
        have, want = read_contents(source, limits), read_contents(export, limits)
        _require_one_order(have, want)
        refill = pair_up(have, want, _maps(request, have))
        for key, other in refill.pairs.items():
            take_values(want.items[key], have.items[other])
        bundle = want.bundle()
        inputs = bundle.inputs = (*have.inputs, *want.inputs)
        warnings = [*_words(refill, want, origin.graph)]
        with open_directory(os.path.dirname(path)) as above:
            made = stack.enter_context(above.directory(os.path.basename(path), create=True))
        with open_directory(origin.graph) as old:
            inputs += tuple(_copy(old, made, ()))
        with made.directory(_VARIABLES, create=True) as place:
            write_bundle(bundle, place, _VARIABLES, check=True)
            warnings += _renew_fingerprint(origin.graph, made, place)
        require_same(inputs)
        written = time.monotonic()
        seconds = {"write": round(written - started, 3)}
        checked = not_run("no check was asked for")
        if request.check.run:
            checked = _compared(path, source, export, refill, limits)
            seconds["check"] = round(time.monotonic() - written, 3)
    facts: dict[str, object] = {
        "refreshed": len(refill.pairs),
        "kept": list(refill.kept),
        "unused": list(refill.unused),
    }
    return Made(origin.signatures, tuple(warnings), seconds=seconds, facts=facts), checked


def _require_one_order(have: Contents, want: Contents) -> None:
    if have.big_endian != want.big_endian:
        raise RefusedError(
            f"{want.location} cannot take the values of {have.location}",
            why="one is little-endian and the other big-endian",
            hint="export the model anew on this machine",
            id="bundles-differ",
        )


def _maps(request: Request, have: Contents) -> dict[str, str]:
    known = {name for item in have.items.values() for name in (item.name, *item.present_names())}
    pairs: dict[str, str] = {}
    for path in request.maps:
        pairs.update(read_map(path).towards(known).pairs)
    return pairs


def _words(refill: Refill, want: Contents, folder: str) -> list[str]:
    said = []
    kept = [want.items[key].name for key in refill.kept]
    if kept:
        what, stay = "1 variable that is not served has", "stays as it is"
        if len(kept) > 1:
            what, stay = f"{len(kept)} variables that are not served have", "stay as they are"
        said.append(f"{what} no value there, and {stay} in {folder}: {_some(kept)}")
    if refill.unused:
        what = "1 variable of the model is"
        if len(refill.unused) > 1:
            what = f"{len(refill.unused)} variables of the model are"
        said.append(f"{what} not in {folder}: {_some(refill.unused)}")
    return said


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _copy(old: LocalDirectory, new: LocalDirectory, inside: tuple[str, ...]) -> list[Input]:
    """Copy all files but those of the variables; what they were.

    Places of our own are no part of an export: one is the result's, where it is made inside.
    """
    if len(inside) > _MOST_LEVELS:
        raise LimitError(
            f"the folder {inside[0]} of the export is too deep to be copied",
            why=f"more than {_MOST_LEVELS} folders lie inside each other",
            hint="no export has that: remove what does not belong to it",
            id="limit-export-depth",
        )
    copied: list[Input] = []
    for entry in sorted(old.scan()):
        if entry.name.startswith(OWN_PREFIX):
            continue
        if entry.kind == "directory":
            with (
                old.directory(entry.name) as below,
                new.directory(entry.name, create=True) as made,
            ):
                copied += _copy(below, made, (*inside, entry.name))
        elif entry.kind == "file":
            part = split_part(entry.name) if inside == (_VARIABLES,) else None
            if part is not None and part.prefix == _VARIABLES:
                continue
            with closing(old.open(entry.name)) as file, new.create(entry.name) as copy:
                copy.copy(file, 0, file.stat.size)
                copy.commit()
                copied.append(Input.of(file.path, file.stat))
        else:
            raise UnsafeError(
                f"{os.path.join(old.path, entry.name)} is a link or a device",
                why="an export is copied as files, so that nothing outside it becomes part of it",
                hint=f"cp -rL {shlex.quote(old.path)} …, and give the copy",
                id="unsafe-link",
            )
    return copied


def _renew_fingerprint(export: str, made: LocalDirectory, variables: LocalDirectory) -> list[str]:
    """Make the fingerprint that was copied from the export true of the new index."""
    found = made.stat(FINGERPRINT)
    if found is None:
        return []
    with closing(variables.open(index_name(_VARIABLES))) as file:
        index = file.pread(0, file.stat.size) if file.stat.size <= _MOST_HASHED else None
    if index is None:
        made.remove(found)
        return [f"{FINGERPRINT} was of the old variables, and was left out: the index is large"]
    from ckpttool.formats.farmhash import fingerprint64

    with closing(made.open(FINGERPRINT)) as file:
        data = file.pread(0, file.stat.size)
    # What is wrong with it is wrong with the export's, of which it is a copy.
    data = patch_checkpoint_hash(data, os.path.join(export, FINGERPRINT), fingerprint64(index))
    with made.create(FINGERPRINT, overwrite=True) as copy:
        copy.write(data)
        copy.commit()
    return []


def _compared(
    path: str,
    source: Source,
    export: BundleSource,
    refill: Refill,
    limits: Limits,
) -> CheckResult:
    """Read the result again, and compare every variable with what it was made of."""
    old = {one.key: one for one in export.variables(named=False)}
    written = {} if isinstance(source, BundleSource) else written_as(source)
    values = {written.get(one.key, one.key): one for one in source.variables(named=False)}
    different = []
    with open_resolved(resolve(path, limits), limits) as result:
        new = {one.key: one for one in result.variables(named=False)}
        for key, variable in old.items():
            other = refill.pairs.get(key)
            right = Operand(export, variable) if other is None else Operand(source, values[other])
            left = new.get(key)
            if left is None or not equal(Operand(result, left), right):
                different.append(key)
    if different or new.keys() != old.keys():
        return CheckResult("failed", "bytes", why=f"other values: {_some(different)}")
    return CheckResult("passed", "bytes")
