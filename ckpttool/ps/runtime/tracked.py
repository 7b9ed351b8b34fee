"""The objects of a training → what a checkpoint of them holds, without reading a variable.

TensorFlow's own serialisation is asked (``tensorflow/python/checkpoint/save_util.py``), with
a stand-in for every variable: it gives keys and object graph as ``tf.train.Checkpoint``
would write them, so that it restores what is made here. Of a sharded variable the object is
one, so its parts come together under its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.checkpoint.graph_view import ObjectGraphView
from tensorflow.python.checkpoint.save_util import serialize_graph_view

from ckpttool.formats.object_graph import parse_object_graph
from ckpttool.limits import Limits
from ckpttool.ps.runtime.live import LivePart, LiveVariable
from ckpttool.ps.runtime.placement import Table, keras3_partitioned
from ckpttool.sources.naming import GraphNames

__all__ = ["Layout", "ps_of", "walk"]

OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Layout(NamedTuple):
    """What a checkpoint of the objects holds.

    Attributes:
        variables: all that have values in tensors.
        parts: the ``tf.Variable`` of each of their parts, by key.
        strings: scalar strings by key: the object graph, Python states.
        tensors: values that no variable has (of tables), by key.
    """

    variables: tuple[LiveVariable, ...]
    parts: Mapping[str, tuple[tf.Variable, ...]]
    strings: Mapping[str, bytes]
    tensors: Mapping[str, tf.Tensor]


class _StandIn(tf.__internal__.tracking.Trackable):  # type: ignore[misc]
    """In the place of a variable while its checkpoint is laid out."""

    def __init__(self, name: str, parts: tuple[tf.Variable, ...]) -> None:
        super().__init__()
        self.name = name
        self.parts = parts

    def _serialize_to_tensors(self) -> dict[str, object]:
        return {"VARIABLE_VALUE": self}


class _StandIns(dict[Any, Any]):
    """The object map of ``serialize_graph_view``, answered as it is asked.

    A list made beforehand would lack the slots of ``tf.compat.v1.train`` optimizers and
    ``tf_keras.optimizers.legacy``: no object has them as a child, and a slot of a variable in
    parts is put together anew each time (``serialize_slot_variables`` in
    ``tensorflow/python/checkpoint/util.py``).
    """

    def get(self, trackable: Any, default: Any = None) -> Any:
        """The stand-in of a variable; ``default`` of anything else."""
        found = _stand_in(trackable)
        return default if found is None else found


def walk(root: Any) -> Layout:
    """Lay out the checkpoint of everything that ``root`` (a ``tf.train.Checkpoint``) has.

    Raises:
        UnsupportedError: id ``keras3-partitioned``.
    """
    serialized, _, _, graph = serialize_graph_view(ObjectGraphView(root), _StandIns())
    parts: dict[str, tuple[tf.Variable, ...]] = {}
    full_names: dict[str, str] = {}
    strings: dict[str, bytes] = {}
    tensors: dict[str, tf.Tensor] = {}
    for key, value in _values(serialized):
        if isinstance(value, _StandIn):
            parts[key] = value.parts
            full_names[key] = value.name
        elif value.dtype == tf.string and value.shape.rank == 0:
            strings[key] = value.numpy()
        else:
            tensors[key] = value
    for node in graph.nodes:
        for attribute in node.attributes:
            attribute.full_name = full_names.get(attribute.checkpoint_key, attribute.full_name)
    strings[OBJECT_GRAPH_KEY] = graph.SerializeToString(deterministic=True)
    names = GraphNames(parse_object_graph(strings[OBJECT_GRAPH_KEY], Limits()))
    variables = [_variable(key, parts[key], names) for key in parts]
    variables += [_constant(key, tensors[key], names) for key in tensors]
    return Layout(tuple(variables), parts, strings, tensors)


def ps_of(device: str) -> int | None:
    """The number of the parameter server in a device's name; None of any other device."""
    spec = tf.DeviceSpec.from_string(device or "")
    return spec.task if spec.job == "ps" else None


def _stand_in(node: Any) -> _StandIn | None:
    if isinstance(node, tf.Variable):
        return _StandIn(_plain_name(node.name), (node,))
    if isinstance(node, Table):
        return _StandIn(node.name, tuple(node.parts))
    if _is_sharded(node):
        # Its own name says nothing: the strategy gives it none.
        name = _plain_name(node.variables[0].name).removesuffix("/part_0")
        return _StandIn(name, tuple(node.variables))
    inner = getattr(node, "_value", None)  # a variable of Keras 3 holds one of TensorFlow
    if _is_sharded(inner):
        raise keras3_partitioned(str(getattr(node, "path", node.name)))
    if isinstance(inner, tf.Variable):
        return _StandIn(_plain_name(inner.name), (inner,))
    return None


def _is_sharded(node: Any) -> bool:
    """Whether it is one of tf.distribute's variables in parts (no public class has them all)."""
    return type(node).__name__ == "ShardedVariable" and hasattr(node, "variables")


def _plain_name(name: str) -> str:
    return name.rpartition(":")[0] or name


def _values(serialized: Any) -> Iterator[tuple[str, Any]]:
    for tensors in serialized.values():
        for key, value in tensors.items():
            if isinstance(value, dict):
                for spec, one in value.items():
                    if spec:
                        raise AssertionError(f"{key} has a slice that is no variable's")
                    yield key, one
            else:
                yield key, value


def _variable(key: str, parts: tuple[tf.Variable, ...], names: GraphNames) -> LiveVariable:
    first = parts[0]
    rows = sum(int(part.shape[0]) for part in parts) if len(parts) > 1 else None
    shape = tuple(first.shape.as_list())
    placed = []
    row = 0
    for part in parts:
        extent = tuple(part.shape.as_list())
        start = (row, *(0,) * (len(extent) - 1)) if extent else ()
        placed.append(LivePart(ps_of(part.device), start, extent))
        row += extent[0] if extent else 0
    if rows is not None:
        shape = (rows, *shape[1:])
    name, kind = names.label(key)
    return LiveVariable(name, key, first.dtype.name, shape, kind, tuple(placed))


def _constant(key: str, tensor: tf.Tensor, names: GraphNames) -> LiveVariable:
    name, kind = names.label(key)
    shape = tuple(tensor.shape.as_list())
    part = LivePart(ps_of(tensor.device), (0,) * len(shape), shape)
    return LiveVariable(name, key, tensor.dtype.name, shape, kind, (part,))
