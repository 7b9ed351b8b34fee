"""A graph of TensorFlow 1's kind as a SavedModel: what its signatures need, and no more.

Optimizer slots, savers and the training graph stay behind. Variables stay variables under
the names they had, parts of one as slices of it, so that an export can be refreshed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.python.framework.ops import get_from_proto_function

from ckpttool.conversion.assets import asset_missing
from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.worker.freezing import with_batch
from ckpttool.conversion.worker.graph_edit import reachable, unique
from ckpttool.conversion.worker.graph_variables import GraphVariable
from ckpttool.conversion.worker.sessions import new_session

if TYPE_CHECKING:
    from ckpttool.conversion.worker.graph_program import GraphProgram

__all__ = ["save_graph"]

tf1 = tf.compat.v1

#: What fills a table from a file, whose name is the second input.
_FROM_FILES = {"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"}


def save_graph(program: GraphProgram, path: str, *, batch: int | None) -> None:
    """Write the SavedModel of a program; ``path`` must not exist yet.

    Raises:
        IncompleteError: id ``asset-missing``: a file that fills a table is not there.
    """
    signatures = [with_batch(one, batch) for one in program.signatures]
    graph_def = _needed(program, signatures)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
        nodes = {node.name for node in graph_def.node}
        variables = [one for one in program.variables.values() if one.node in nodes]
        saved = [_restorable(graph, one) for one in variables]
        cut = {one.key for one in variables if one.full_shape is not None}
        by_key: defaultdict[str, list[Any]] = defaultdict(list)
        for variable, one in zip(variables, saved, strict=True):
            by_key[variable.key].append(one)
        saver = tf1.train.Saver(
            {key: parts if key in cut else parts[0] for key, parts in by_key.items()} or None,
            allow_empty=True,
        )
        tables = [graph.get_operation_by_name(name) for name in program.initializers]
        main = tf.group(*tables, name=unique("init_tables", _names(graph))) if tables else None
        with new_session(graph) as session:
            for variable, one in zip(variables, saved, strict=True):
                array = program.values.array(variable)
                session.run(one.initializer, {one.initial_value: array})
            builder = tf1.saved_model.Builder(path)
            builder.add_meta_graph_and_variables(
                session,
                [tf.saved_model.SERVING],
                {one.name: _definition(graph, one) for one in signatures},
                assets_collection=_files(tables) or None,
                main_op=main,
                strip_default_attrs=True,
                clear_devices=True,
                saver=saver,
            )
            builder.save()


def _files(initializers: Sequence[Any]) -> list[Any]:
    """The names of the files that tables are filled from, as tensors: these go with the model."""
    found = {}
    waiting, seen = list(initializers), set(initializers)
    while waiting:
        operation = waiting.pop()
        if operation.type in _FROM_FILES:
            tensor = _constant(operation.inputs[1])
            if tensor is not None:
                found[tensor.name] = tensor
        before = {*(one.op for one in operation.inputs), *operation.control_inputs} - seen
        seen |= before
        waiting += before
    for name in sorted(found):
        value = found[name].op.get_attr("value").string_val
        path = value[0].decode("utf-8", "surrogateescape") if value else ""
        if not os.path.isfile(path):
            raise asset_missing("the graph", path)
    return [found[name] for name in sorted(found)]


def _constant(tensor: Any) -> Any:  # noqa: ANN401
    """The constant behind a tensor; None: it is computed."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor if tensor.op.type == "Const" else None


def _needed(program: GraphProgram, signatures: Sequence[Signature]) -> Any:  # noqa: ANN401
    """The graph with the operations that the outputs and the tables depend on."""
    nodes = {node.name: node for node in program.graph.node}
    targets = [port.tensor for one in signatures for port in one.outputs]
    targets += [port.tensor for one in signatures for port in one.inputs]
    kept = reachable(nodes, [*targets, *program.initializers])
    made = type(program.graph)()
    made.versions.CopyFrom(program.graph.versions)
    made.library.CopyFrom(program.graph.library)
    shapes = {port.tensor: port for one in signatures for port in one.inputs}
    for node in program.graph.node:
        if node.name in kept:
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.device = ""
            copy.attr.pop("_class", None)
            port = shapes.get(f"{node.name}:0")
            if port is not None and node.op == "Placeholder":
                _set_shape(copy, port)
    return made


def _set_shape(node: Any, port: Port) -> None:  # noqa: ANN401
    shape = tf.TensorShape(port.shape).as_proto()
    node.attr["shape"].shape.CopyFrom(shape)


def _restorable(graph: Any, variable: GraphVariable) -> Any:  # noqa: ANN401
    """The variable as an object that a saver takes, with operations to set and read it.

    ``initial_value`` is what is fed; unfed it is zeros, so nothing is left in the graph
    that would have to be.
    """
    tensor = graph.get_tensor_by_name(f"{variable.node}:0")
    names = _names(graph)

    def fresh(part: str) -> str:
        return unique(f"{variable.node}/{part}", names)

    initial = tf.zeros(variable.shape, variable.dtype, name=fresh("Initializer/zeros"))
    if variable.is_handle:
        assign = tf.raw_ops.AssignVariableOp(resource=tensor, value=initial, name=fresh("Assign"))
        read = tf.raw_ops.ReadVariableOp(
            resource=tensor, dtype=variable.dtype, name=fresh("Read/ReadVariableOp")
        )
    else:
        assign = tf.raw_ops.Assign(ref=tensor, value=initial, name=fresh("Assign")).op
        read = tf.raw_ops.Identity(input=tensor, name=fresh("read"))
    definition = variable_pb2.VariableDef(
        variable_name=tensor.name,
        initial_value_name=initial.name,
        initializer_name=assign.name,
        snapshot_name=read.name,
        is_resource=variable.is_handle,
        trainable=True,
    )
    if variable.full_shape is not None and variable.offset is not None:
        info = definition.save_slice_info_def
        info.full_name = variable.key
        info.full_shape.extend(variable.full_shape)
        info.var_offset.extend(variable.offset)
        info.var_shape.extend(variable.shape or ())
    made = get_from_proto_function(tf1.GraphKeys.GLOBAL_VARIABLES)(definition)
    tf1.add_to_collection(tf1.GraphKeys.GLOBAL_VARIABLES, made)
    return made


def _names(graph: Any) -> set[str]:  # noqa: ANN401
    return {operation.name for operation in graph.get_operations()}


def _definition(graph: Any, signature: Signature) -> Any:  # noqa: ANN401
    def infos(ports: Sequence[Port]) -> dict[str, Any]:
        return {
            port.name: tf1.saved_model.build_tensor_info(graph.get_tensor_by_name(port.tensor))
            for port in ports
        }

    return tf1.saved_model.signature_def_utils.build_signature_def(
        infos(signature.inputs),
        infos(signature.outputs),
        tf1.saved_model.signature_constants.PREDICT_METHOD_NAME,
    )
