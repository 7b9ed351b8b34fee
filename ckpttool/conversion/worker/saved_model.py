"""A SavedModel → a program: by TensorFlow 2's loader, or by TensorFlow 1's.

The v2 loader brings a model's objects back to life, and fails on those whose classes have
changed (the optimizer slots of Keras 2: ``add_slot``). The v1 loader needs only the graph
and the values, which is all that serving needs, and all that a model of TensorFlow 1 has.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model.loader_impl import (
    get_asset_tensors,
    get_init_op,
    parse_saved_model,
)

from ckpttool.conversion.job import Job
from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.specs import NamedValue
from ckpttool.conversion.worker.graph_edit import fold_branches, modernise
from ckpttool.conversion.worker.graph_program import (
    GraphProgram,
    complete,
    decided_by,
    freeze_inputs,
)
from ckpttool.conversion.worker.graph_variables import graph_variables, saved_names
from ckpttool.conversion.worker.program import Program
from ckpttool.conversion.worker.sessions import new_session, quiet, restored
from ckpttool.conversion.worker.traced_program import TracedProgram, constant_of, traced
from ckpttool.conversion.worker.values import LiveValues
from ckpttool.errors import CkpttoolError, ConversionError

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
        except CkpttoolError:
            raise
        except Exception as first:  # noqa: BLE001 - its errors are of every class
            traceback.print_exc()
            reason = f"{type(first).__name__}: {first}".split("\n")[0][:200]
    try:
        return _by_v1(job, reason)
    except CkpttoolError:
        raise
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
        frozen = _frozen(job, function.structured_input_signature[1])
        functions.append(traced(wanted.name, wanted.inputs, _body(function, wanted, frozen)))
    return TracedProgram(functions, loaded)


def _frozen(job: Job, specs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that are fixed, as tensors."""
    return {
        one.name: constant_of(one, specs[one.name].dtype)
        for one in job.request.freeze
        if one.name in specs
    }


def _body(
    function: Any,  # noqa: ANN401
    wanted: Signature,
    frozen: Mapping[str, Any],
) -> Callable[..., Mapping[str, Any]]:
    names = [port.tensor for port in wanted.inputs]
    outputs = {port.name: port.tensor for port in wanted.outputs}

    def body(*tensors: Any) -> Mapping[str, Any]:  # noqa: ANN401
        found = function(**dict(zip(names, tensors, strict=True)), **frozen)
        return {name: found[own] for name, own in outputs.items()}

    return body


def _by_v1(job: Job, reason: str) -> GraphProgram:
    quiet()
    graph = tf.Graph()
    session = new_session(graph)
    with graph.as_default():
        meta = tf1.saved_model.loader.load(session, list(job.origin.tags), job.origin.graph)
        tables = _initializers(meta)
    graph_def = graph.as_graph_def()
    modernise(graph_def, meta.graph_def.versions.producer)
    _place_assets(graph_def, get_asset_tensors(job.origin.graph, meta))
    readers = {}
    variables = {}
    for variable in graph_variables(graph_def, saved_names(graph_def)):
        readers[variable.node] = _reader(session, variable.node, variable.dtype, variable.is_handle)
        variables[variable.node] = variable
    values = LiveValues(readers)
    signatures = []
    frozen: list[NamedValue] = []
    for wanted in job.origin.signatures:
        stored = meta.signature_def[wanted.name]
        signatures.append(complete(graph_def, _placed(wanted, stored), job.origin.graph))
        frozen += [_at_tensor(one, stored.inputs) for one in job.request.freeze]
    freeze_inputs(graph_def, frozen, job.origin.graph)
    fold_branches(graph_def, decided_by(frozen))

    def open_session() -> Any:  # noqa: ANN401
        """The session that loaded it; a new one where the graph is another now."""
        if not frozen:
            return session
        return restored(graph_def, variables.values(), values, None, tables)

    said = f"TensorFlow 2 cannot load it ({reason}): loaded as TensorFlow 1 does"
    return GraphProgram(
        graph_def,
        signatures,
        variables,
        values,
        tables,
        open_session,
        session.close,
        (said,) if reason else (),
    )


def _place_assets(graph_def: Any, paths: Mapping[str, str]) -> None:  # noqa: ANN401
    """Let the graph name its files where they are; the loader feeds these names instead."""
    by_operation = {tensor.partition(":")[0]: path for tensor, path in paths.items()}
    for node in graph_def.node:
        if node.op == "Const" and node.name in by_operation:
            path = tf.make_tensor_proto(by_operation[node.name])
            node.attr["value"].tensor.CopyFrom(path)


def _placed(wanted: Signature, stored: Any) -> Signature:  # noqa: ANN401
    """The signature with its tensors, as the loaded graph names them."""

    def ports(given: Sequence[Port], infos: Mapping[str, Any]) -> tuple[Port, ...]:
        return tuple(
            # What a signature says of dtype and shape is a hint; the graph's own is the truth.
            replace(
                port,
                dtype="",
                shape=_asked(port, infos[port.tensor]),
                tensor=infos[port.tensor].name,
            )
            if port.tensor in infos
            else port
            for port in given
        )

    return Signature(
        wanted.name, ports(wanted.inputs, stored.inputs), ports(wanted.outputs, stored.outputs)
    )


def _asked(port: Port, info: Any) -> tuple[int | None, ...] | None:  # noqa: ANN401
    """The shape of a port where another one was asked for than is stored; else None."""
    shape = tf.TensorShape(info.tensor_shape)
    stored = None if shape.rank is None else tuple(shape.as_list())
    return None if port.shape == stored else port.shape


def _at_tensor(value: NamedValue, inputs: Mapping[str, Any]) -> NamedValue:
    """A fixed input by its tensor, where the name is the signature's."""
    return value._replace(name=inputs[value.name].name) if value.name in inputs else value


def _reader(session: Any, node: str, dtype: str, is_handle: bool) -> Callable[[], Any]:  # noqa: ANN401
    def read() -> Any:  # noqa: ANN401
        tensor = session.graph.get_tensor_by_name(f"{node}:0")
        if is_handle:
            with session.graph.as_default():
                tensor = tf.raw_ops.ReadVariableOp(resource=tensor, dtype=dtype)
        return session.run(tensor)

    return read


def _initializers(meta: Any) -> list[str]:  # noqa: ANN401
    """What fills the tables of the loaded graph: as listed, else all that is run at loading."""
    name = "table_initializer"
    if name in meta.collection_def:
        return [one.partition(":")[0] for one in meta.collection_def[name].node_list.value]
    main = get_init_op(meta)
    return [] if main is None else [main.name.partition(":")[0]]
