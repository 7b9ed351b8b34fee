"""Graph files (``.meta``, ``.pb``, ``.pbtxt``), with values from any source → a program.

What serves is cut out of what trained: chosen inputs become placeholders, frozen ones
constants, conditions that these decide are taken out, and nothing else is imported, so an
operation that TensorFlow no longer has does not matter where no output needs it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from ckpttool.conversion.job import Job
from ckpttool.conversion.ports import Signature
from ckpttool.conversion.worker.graph_edit import (
    fold_branches,
    fold_defaults,
    modernise,
    operation,
    put_placeholders,
    reachable,
)
from ckpttool.conversion.worker.graph_program import (
    GraphProgram,
    complete,
    decided_by,
    freeze_inputs,
)
from ckpttool.conversion.worker.graph_variables import graph_variables, match_source, saved_names
from ckpttool.conversion.worker.sessions import Saver, quiet, restored
from ckpttool.conversion.worker.values import LiveValues, SourceValues, Values
from ckpttool.formats.graph_file import read_graph_file
from ckpttool.limits import default_limits
from ckpttool.sources.address import resolve
from ckpttool.sources.registry import open_source
from ckpttool.storage import open_directory

__all__ = ["open_graph"]

_TABLES = "table_initializer"
_VARIABLES = ("variables", "trainable_variables", "model_variables", "local_variables")


class _Read(NamedTuple):
    """A graph file: its graph, and the MetaGraphDef around it, if there is one."""

    graph: Any
    meta: Any | None


def open_graph(job: Job) -> GraphProgram:
    """The program of a graph file.

    Raises:
        IncompleteError: ids ``graph-variables-missing``, ``graph-variables-differ``.
        NotFoundError: id ``tensor-not-found``. UsageError: ids ``port-dtype``, ``freeze-value``.
    """
    quiet()
    request, origin = job.request, job.origin
    graph, meta = _read(origin.graph)
    modernise(graph, graph.versions.producer)
    names = saved_names(graph, _listed(meta))
    saver = _saver(meta, origin.values)
    tables = _initializers(meta)
    freeze_inputs(graph, request.freeze, origin.graph)
    fold_branches(graph, decided_by(request.freeze))
    (signature,) = origin.signatures
    signature = put_placeholders(graph, signature)
    fold_defaults(graph, {operation(port.tensor) for port in signature.inputs})
    graph, tables = _serving(graph, signature, tables, saver)
    signature = complete(graph, signature, origin.graph)
    nodes = {node.name: node for node in graph.node}
    needed = reachable(nodes, [*(port.tensor for port in signature.outputs), *tables])
    variables = [one for one in graph_variables(graph, names) if one.node in needed]
    stack = ExitStack()
    values: Values = LiveValues({})
    if origin.values is not None:
        source = stack.enter_context(open_source(origin.values, default_limits()))
        variables = match_source(variables, source, origin.graph)
        values = SourceValues(source)
    return GraphProgram(
        graph,
        [signature],
        {one.node: one for one in variables},
        values,
        tables,
        lambda: restored(graph, variables, values, saver, tables),
        stack.close,
        origin.warnings,
    )


def _read(path: str) -> _Read:
    """The messages of a graph file, in TensorFlow's own classes."""
    folder, base = os.path.split(path)
    with open_directory(folder or ".") as directory, closing(directory.open(base)) as file:
        kind = read_graph_file(file, default_limits())
        data = file.pread(0, file.stat.size)
    message = graph_pb2.GraphDef() if kind.graph is not None else meta_graph_pb2.MetaGraphDef()
    if kind.text:
        text_format.Parse(data, message, allow_unknown_field=True)
    else:
        message.ParseFromString(data)
    if kind.graph is not None:
        return _Read(message, None)
    return _Read(message.graph_def, message)


def _listed(meta: Any | None) -> list[Any]:  # noqa: ANN401
    """The VariableDefs of a MetaGraphDef."""
    found: list[Any] = []
    if meta is None:
        return found
    for name in _VARIABLES:
        if name in meta.collection_def:
            raw = meta.collection_def[name].bytes_list.value
            found.extend(variable_pb2.VariableDef.FromString(one) for one in raw)
    return found


def _saver(meta: Any | None, values: str | None) -> Saver | None:  # noqa: ANN401
    """The graph's own saver, where the values are of a TensorFlow checkpoint."""
    if meta is None or values is None or not meta.saver_def.restore_op_name:
        return None
    if resolve(values).kind not in {"checkpoint", "run", "tf-v1"}:
        return None
    definition = meta.saver_def
    return Saver(definition.restore_op_name, definition.filename_tensor_name, values)


def _initializers(meta: Any | None) -> list[str]:  # noqa: ANN401
    if meta is None or _TABLES not in meta.collection_def:
        return []
    return [operation(one) for one in meta.collection_def[_TABLES].node_list.value]


def _serving(
    graph: Any,  # noqa: ANN401
    signature: Signature,
    tables: list[str],
    saver: Saver | None,
) -> tuple[Any, list[str]]:
    """What the outputs need, with the operations that fill their tables and restore it."""
    nodes = {node.name: node for node in graph.node}
    targets = [port.tensor for port in signature.outputs]
    needed = reachable(nodes, targets) | {operation(port.tensor) for port in signature.inputs}
    used = [name for name in tables if _is_of(nodes, name, needed)]
    needed |= reachable(nodes, used)
    if saver is not None:
        needed |= reachable(nodes, [saver.operation, saver.filename])
    made = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    for node in graph.node:
        if node.name in needed:
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.device = ""
            copy.attr.pop("_class", None)
    return made, used


def _is_of(nodes: Any, initializer: str, needed: set[str]) -> bool:  # noqa: ANN401
    """Whether what an operation fills is a table that is needed."""
    return any(operation(one) in needed for one in nodes[initializer].input[:1])
