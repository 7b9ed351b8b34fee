"""The target TensorFlow.js: a directory with ``model.json`` and files of weights.

The form that ``tf.loadGraphModel`` loads (tfjs-core/src/io/types.ts, ``ModelJSON``). Large
weights go from where they are stored into the files, a piece at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.request import Quantization, Settings
from ckpttool.conversion.tfjs_weights import PlannedWeight, plan_numbers, plan_texts, write_files
from ckpttool.conversion.worker.program import Function, Program, Weight, Written
from ckpttool.conversion.worker.tfjs_graph import JsGraph, Texts, js_graph
from ckpttool.errors import UsageError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.storage import open_directory
from ckpttool.version import __version__

__all__ = ["write"]

#: Weights of so many bytes or more are written as they are read. Below, constants that
#: others are folded into.
_KEEP_OUT = 4096


def write(program: Program, path: str, settings: Settings) -> Written:
    """Write the directory of a model.

    Args:
        program: what is converted; it has one signature.
        path: the directory, which does not exist yet.
        settings: ``quantize``, ``batch``, ``shard_bytes``.

    Raises:
        UsageError: ids ``tfjs-signatures``, ``shard-bytes``.
        UnsupportedError: ids ``stateful-graph``, ``tfjs-op-unknown``, ``tfjs-loop``,
            ``training-norm``, ``dtype-not-representable``, ``number-too-large``.
    """
    function = _the_only(program.functions)
    graph = js_graph(function.frozen(batch=settings.batch, keep_out=_KEEP_OUT))
    weights = [_planned(name, one, settings.quantize) for name, one in graph.weights.items()]
    folder, name = os.path.split(path)
    with open_directory(folder) as above, above.directory(name, create=True) as directory:
        manifest = write_files(weights, directory, settings.shard_bytes)
        with directory.create("model.json") as file:
            file.write(json.dumps(_model(graph, manifest), separators=(",", ":")).encode())
            file.commit()
    quantised = [one.weight.name for one in weights if one.weight.quantisation is not None]
    facts = {"weights": len(weights), "weight_bytes": sum(one.nbytes for one in weights)}
    if settings.quantize is not None:
        facts["quantized_weights"] = len(quantised)
    return Written((graph.signature,), _warnings(graph, settings, quantised), facts)


def _the_only(functions: Sequence[Function]) -> Function:
    if len(functions) > 1:
        names = [one.signature.name for one in functions]
        raise UsageError(
            f"a TensorFlow.js model has one signature, and this has {len(names)}",
            why=f"they are {', '.join(names)}",
            hint=f"convert one at a time: --signature {names[0]}",
            id="tfjs-signatures",
        )
    return functions[0]


def _planned(name: str, stored: Weight | Texts, quantize: Quantization | None) -> PlannedWeight:
    if isinstance(stored, Texts):
        return plan_texts(name, stored.shape, stored.texts)
    return plan_numbers(name, stored, quantize)


def _warnings(graph: JsGraph, settings: Settings, quantised: Sequence[str]) -> tuple[str, ...]:
    found = graph.warnings
    if settings.quantize is not None and not quantised:
        found += (f"no weight is large enough to be stored as {settings.quantize}",)
    return found


def _model(graph: JsGraph, manifest: Sequence[dict[str, object]]) -> dict[str, Any]:
    signature = graph.signature
    names = [port.name for port in signature.outputs]
    model: dict[str, Any] = {
        "format": "graph-model",
        "generatedBy": tf.__version__,
        "convertedBy": f"ckpttool {__version__}",
        "signature": _signature(signature),
    }
    # With these, predict() answers by name. JavaScript puts names that are numbers first.
    if len(names) > 1 and not any(name.isdecimal() for name in names):
        model["userDefinedMetadata"] = {"structuredOutputKeys": names}
    model["modelTopology"] = _sorted(graph.topology)
    model["weightsManifest"] = manifest
    return model


def _signature(signature: Signature) -> dict[str, Any]:
    return {
        "inputs": {port.name: _tensor(port) for port in signature.inputs},
        "outputs": {port.name: _tensor(port) for port in signature.outputs},
    }


def _tensor(port: Port) -> dict[str, Any]:
    shape: dict[str, Any] = {"unknownRank": True}
    if port.shape is not None:
        shape = {"dim": [{"size": str(-1 if size is None else size)} for size in port.shape]}
    dtype = types_pb2.DataType.Name(BY_NAME[port.dtype].number)
    return {"name": port.tensor, "dtype": dtype, "tensorShape": shape}


def _sorted(value: Any) -> Any:  # noqa: ANN401
    """The same with the members of every object sorted: maps have no order of their own."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    return value
