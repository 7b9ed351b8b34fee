"""A SavedModel → a program: by TensorFlow 2's loader, or by TensorFlow 1's.

The v2 loader brings a model's objects back to life, and fails on those whose classes have
changed (the optimizer slots of Keras 2: ``add_slot``). The v1 loader needs only the graph
and the values, which is all that serving needs, and all that a model of TensorFlow 1 has.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model.loader_impl import parse_saved_model

from ckpttool.convert.job import Job
from ckpttool.convert.ports import Port, Signature
from ckpttool.convert.worker.graph_edit import modernise
from ckpttool.convert.worker.graph_program import GraphProgram, complete
from ckpttool.convert.worker.graph_variables import graph_variables, saved_names
from ckpttool.convert.worker.program import Program
from ckpttool.convert.worker.sessions import new_session, quiet
from ckpttool.convert.worker.traced_program import TracedProgram, traced
from ckpttool.convert.worker.values import LiveValues
from ckpttool.errors import ConversionError

__all__ = ["open_saved_model"]

tf1 = tf.compat.v1


def open_saved_model(job: Job) -> Program:
    """The program of a SavedModel, with the signatures that were chosen.

    Raises:
        ConversionError: id ``saved-model-unloadable``: neither loader takes it.
    """
    reason = ""
    if _has_objects(job.origin.graph):
        try:
            return _by_v2(job)
        except Exception as first:  # noqa: BLE001 - its errors are of every class
            traceback.print_exc()
            reason = f"{type(first).__name__}: {first}".split("\n")[0][:200]
    try:
        return _by_v1(job, reason)
    except Exception as second:
        raise ConversionError(
            f"{job.origin.graph} cannot be loaded",
            why="; ".join(filter(None, (reason, str(second))))[:700],
            hint="ckpttool inspect --graph shows operations that TensorFlow has no more",
            id="saved-model-unloadable",
        ) from second


def _has_objects(path: str) -> bool:
    """Whether it was written by TensorFlow 2, which describes objects beside the graph."""
    (meta, *_) = parse_saved_model(path).meta_graphs
    return bool(meta.HasField("object_graph_def"))


def _by_v2(job: Job) -> TracedProgram:
    loaded = tf.saved_model.load(job.origin.graph, tags=list(job.origin.tags) or None)
    functions = []
    for wanted in job.origin.signatures:
        function = loaded.signatures[wanted.name]
        specs: Mapping[str, Any] = function.structured_input_signature[1]
        inputs = tuple(
            Port(name, spec.dtype.name, _sizes(spec.shape)) for name, spec in sorted(specs.items())
        )
        functions.append(traced(wanted.name, inputs, _body(function, [one.name for one in inputs])))
    return TracedProgram(functions, loaded)


def _body(function: Any, names: list[str]) -> Callable[..., Mapping[str, Any]]:  # noqa: ANN401
    def body(*tensors: Any) -> Mapping[str, Any]:  # noqa: ANN401
        outputs: Mapping[str, Any] = function(**dict(zip(names, tensors, strict=True)))
        return outputs

    return body


def _sizes(shape: Any) -> tuple[int | None, ...] | None:  # noqa: ANN401
    return None if shape.rank is None else tuple(shape.as_list())


def _by_v1(job: Job, reason: str) -> GraphProgram:
    quiet()
    graph = tf.Graph()
    session = new_session(graph)
    with graph.as_default():
        meta = tf1.saved_model.loader.load(session, list(job.origin.tags), job.origin.graph)
    graph_def = graph.as_graph_def()
    modernise(graph_def, meta.graph_def.versions.producer)
    readers = {}
    variables = {}
    for variable in graph_variables(graph_def, saved_names(graph_def)):
        readers[variable.node] = _reader(session, variable.node, variable.dtype, variable.is_handle)
        variables[variable.node] = variable
    signatures = [
        _complete(graph_def, meta, one, job.origin.graph) for one in job.origin.signatures
    ]
    return GraphProgram(
        graph_def,
        signatures,
        variables,
        LiveValues(readers),
        _initializers(meta),
        lambda: session,
        session.close,
        (f"TensorFlow 2 cannot load it ({reason}): loaded as TensorFlow 1 does",) if reason else (),
    )


def _complete(graph_def: Any, meta: Any, wanted: Signature, path: str) -> Signature:  # noqa: ANN401
    """The signature with its tensors, as the loaded graph names them."""
    stored = meta.signature_def[wanted.name]

    def ports(infos: Mapping[str, Any]) -> tuple[Port, ...]:
        return tuple(Port(name, "", None, infos[name].name) for name in sorted(infos))

    return complete(
        graph_def, Signature(wanted.name, ports(stored.inputs), ports(stored.outputs)), path
    )


def _reader(session: Any, node: str, dtype: str, is_handle: bool) -> Callable[[], Any]:  # noqa: ANN401
    def read() -> Any:  # noqa: ANN401
        tensor = session.graph.get_tensor_by_name(f"{node}:0")
        if is_handle:
            with session.graph.as_default():
                tensor = tf.raw_ops.ReadVariableOp(resource=tensor, dtype=dtype)
        return session.run(tensor)

    return read


def _initializers(meta: Any) -> list[str]:  # noqa: ANN401
    name = "table_initializer"
    if name not in meta.collection_def:
        return []
    return [one.partition(":")[0] for one in meta.collection_def[name].node_list.value]
