"""Where the graph of a conversion comes from, found and refused without TensorFlow.

``find_origin`` answers: which file has the graph, which source the values, what goes in
and comes out. What cannot be converted is said here, before TensorFlow is started.
"""

from __future__ import annotations

import os
import shlex
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from ckpttool.conversion.job import Origin
from ckpttool.errors import NoGraphError, UnsupportedError, UsageError
from ckpttool.limits import Limits
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.filenames import SAVED_MODEL_FILES, graph_name, join
from ckpttool.storage import open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.conversion.request import Request

__all__ = ["find_origin"]

_MADE = {"tflite": "a TensorFlow Lite model", "onnx": "an ONNX model", "tfjs": "a TF.js model"}


def find_origin(request: Request, limits: Limits) -> Origin:
    """Find out which graph goes with a source, and what it is to compute.

    Raises:
        NoGraphError: there is none; the hint says what would help.
        NotFoundError: id ``tensor-not-found``, ``signature-not-found``, or as ``resolve``.
        RefusedError: id ``training-graph``.
        IncompleteError: ids ``graph-without-values``, ``graph-variables-missing``.
        CkpttoolError: the source or the graph cannot be read.
    """
    from ckpttool.conversion.graph_origin import of_file
    from ckpttool.conversion.saved_model_origin import of_saved_model

    _require_sense(request)
    if request.model is not None:
        resolved = resolve(request.source, limits)
        return Origin("model", request.model, _values(resolved), notes=resolved.notes)
    if request.graph is not None:
        folder = _saved_model(request.graph)
        if folder is not None:
            raise UnsupportedError(
                f"--graph {request.graph} is a SavedModel",
                why="its graph names its variables in a way of its own",
                hint=f"take its graph and the values of the checkpoint: --like {folder}",
                id="graph-saved-model",
            )
        resolved = resolve(request.source, limits)
        return _noted(of_file(request, request.graph, _values(resolved), limits), resolved)
    folder = _saved_model(request.source)
    if folder is not None:
        return of_saved_model(request, folder, limits)
    resolved = resolve(request.source, limits)
    if resolved.kind == "savedmodel":
        return of_saved_model(request, os.path.dirname(resolved.directory) or ".", limits)
    if resolved.kind == "graph":
        return of_file(request, resolved.location, None, limits)
    if resolved.kind in {"keras-v3", "hdf5"} and not _is_weights(resolved, limits):
        return Origin("keras", resolved.location, None, notes=resolved.notes)
    if resolved.kind in _MADE:
        raise UnsupportedError(
            f"{request.source} is {_MADE[resolved.kind]}",
            why="it was made for one runtime, and is no source of a graph for another",
            hint="convert what it was made of; its values: --to safetensors or npz",
            id="convert-source",
        )
    beside = _graph_beside(resolved)
    if beside is None:
        raise _no_graph(resolved)
    return _noted(of_file(request, beside, _values(resolved), limits), resolved)


def _require_sense(request: Request) -> None:
    """Check that no option is given that would do nothing.

    Raises:
        UsageError: ids ``options-contradict``, ``asked-twice``.
    """
    _require_once(request)
    of_model = [name for name, value in _of_model(request) if value]
    why = "the graph comes from one place: a file, or the code that builds the model"
    if request.model is None and of_model:
        said = f"{of_model[0]} means nothing without --model"
    elif request.model is not None and request.graph is not None:
        said = "--model and --graph exclude each other"
    elif request.model is not None and request.allow_training_graph:
        said = "--allow-training-graph means nothing with --model"
        why = "the code is called as for serving (training=False); no graph was made before"
    elif request.check.execute:
        said = "--check run means nothing without --like"
        why = "what is made with a graph is always run, unless --no-check leaves that out"
    else:
        return
    raise UsageError(said, why=why, hint="ckpttool convert --help", id="options-contradict")


def _require_once(request: Request) -> None:
    """Check that nothing is named twice: one of the two would be lost without a word.

    Raises:
        UsageError: id ``asked-twice``.
    """
    named = {
        "--input": [one.name for one in request.inputs],
        "--output": [one.name for one in request.outputs],
        "--signature": request.signatures,
        "--freeze-input": [one.name for one in request.freeze],
        "--model-arg": [one.name for one in request.model_args],
    }
    taken = [f"{one.tensor}:{one.index or 0}" for one in request.inputs]
    for option, names in (*named.items(), ("--input", taken)):
        twice = [name for at, name in enumerate(names) if name in names[:at]]
        if twice:
            raise UsageError(
                f"{option} names {twice[0]} twice",
                why="only one of the two would be in the result",
                hint=f"give each a name of its own: {option} OTHER={twice[0]}"
                if option in {"--input", "--output"}
                else "leave one of them out",
                id="asked-twice",
            )


def _of_model(request: Request) -> tuple[tuple[str, object], ...]:
    return ("--model-arg", request.model_args), ("--root", request.root)


def _noted(origin: Origin, resolved: Resolved) -> Origin:
    return replace(origin, notes=(*resolved.notes, *origin.notes))


def _values(resolved: Resolved) -> str:
    """The address under which the child opens the values: no run that may change meanwhile."""
    if resolved.kind == "savedmodel":
        return os.path.dirname(resolved.directory) or "."
    return resolved.location


def _saved_model(path: str) -> str | None:
    """The directory of a SavedModel that a path names; None where it names none.

    Without looking for variables, which not every SavedModel has.
    """
    folder, base = os.path.split(path)
    if base in SAVED_MODEL_FILES and stat_path(path) is not None:
        return folder or "."
    found = any(stat_path(os.path.join(path, name)) is not None for name in SAVED_MODEL_FILES)
    return (path.rstrip("/") or "/") if path and found else None


def _graph_beside(resolved: Resolved) -> str | None:
    with open_directory(resolved.directory) as directory:
        name = graph_name(resolved.prefix)
        found = directory.stat(name)
        return None if found is None else join(directory.path, name)


def _is_weights(resolved: Resolved, limits: Limits) -> bool:
    """Whether a Keras file has values only."""
    from ckpttool.sources.registry import open_resolved

    with closing(open_resolved(resolved, limits)) as source:
        return source.kind not in {"keras-v3", "keras-h5"}


def _no_graph(resolved: Resolved) -> NoGraphError:
    """The error, with what lies near by that would help."""
    what = shlex.quote(resolved.address)
    with open_directory(resolved.directory) as directory:
        near = [
            join(directory.path, entry.name)
            for entry in directory.scan()
            if entry.kind == "file" and entry.name.endswith((".pbtxt", ".pb", ".meta"))
        ]
    hint = "give one: --graph FILE (.meta, .pb, .pbtxt), --model FILE.py:FUNCTION, or --like EXPORT"
    if near:
        hint = f"ckpttool convert {what} … --graph {shlex.quote(min(near))}"
    missing = f"there is no {graph_name(resolved.prefix)} beside it"
    return NoGraphError(
        f"{resolved.location} has values, and no graph to convert with",
        why=missing
        if resolved.kind in {"checkpoint", "run", "tf-v1"}
        else "a file of weights says nothing of what is computed with them",
        hint=hint,
    )
