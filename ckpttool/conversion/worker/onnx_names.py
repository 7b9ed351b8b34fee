"""Names in an ONNX model that are the same from run to run: values, nodes and dimensions.

tf2onnx numbers what it makes through all that a process converts (``Relu__57``), and open
dimensions too (``unk__12``). Here inputs and outputs get their signature's names, the rest
is numbered from 1, and an open dimension is called ``batch``, or by its input or output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.worker.program import Frozen

__all__ = ["Dimension", "all_graphs", "dimension_names", "port_names", "rename", "set_shapes"]

#: A size, or the name of a dimension that may have any.
Dimension = int | str
_NUMBERED = re.compile(r"__(\d+)")
#: Sizes that open dimensions have for a moment: primes, so that no other comes out so.
_PRIMES = (7919, 7927, 7933, 7937, 7949, 7951, 7963, 7993, 8009, 8011, 8017, 8039, 8053, 8059)


def all_graphs(graph: Any) -> Iterator[Any]:  # noqa: ANN401
    """A GraphProto and the graphs inside its nodes, outer ones first."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        yield one
        for node in one.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)


def port_names(signature: Signature) -> Signature:
    """The signature with names that differ: in ONNX an output is no input of that name."""
    taken: set[str] = set()

    def claimed(port: Port) -> Port:
        name, number = port.name, 0
        while name in taken:
            number += 1
            name = f"{port.name}_{number}"
        taken.add(name)
        return replace(port, name=name)

    return replace(
        signature,
        inputs=tuple(map(claimed, signature.inputs)),
        outputs=tuple(map(claimed, signature.outputs)),
    )


def dimension_names(frozen: Frozen) -> dict[str, tuple[Dimension, ...]]:
    """Port → its dimensions; a port whose rank is unknown is left out.

    An output's dimension has an input's name where TensorFlow finds, with odd sizes in the
    place of the open ones, that it is that one.
    """
    signature = frozen.signature
    found = {
        port.name: _own_names(port, "batch") for port in signature.inputs if port.shape is not None
    }
    named = (one for dims in found.values() for one in dims if _is_name(one))
    names = ["batch", *(one for one in dict.fromkeys(named) if one != "batch")]
    sizes = dict(zip(names, _PRIMES, strict=False))
    by_size = {size: name for name, size in sizes.items()}
    # Other dimensions than the batch may have to agree with each other; then they stay open.
    shapes = _inferred(frozen, found, sizes) or _inferred(frozen, found, {"batch": _PRIMES[0]})
    for port in signature.outputs:
        if port.shape is None:
            continue
        own = _own_names(port, f"{port.name}_0")
        seen = shapes.get(port.name) or (None,) * len(own)
        found[port.name] = tuple(
            by_size.get(size or 0, mine) if _is_name(mine) else mine
            for mine, size in zip(own, seen, strict=True)
        )
    return found


def set_shapes(model: Any, dimensions: Mapping[str, Iterable[Dimension]]) -> None:  # noqa: ANN401
    """Name the dimensions of inputs and outputs, and no others."""
    for graph in all_graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.HasField("shape"):
                for dim in value.type.tensor_type.shape.dim:
                    dim.ClearField("dim_param")
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in dimensions:
            continue
        shape = value.type.tensor_type.shape
        shape.SetInParent()  # also of a scalar, which has no dimensions
        del shape.dim[:]
        for one in dimensions[value.name]:
            if isinstance(one, str):
                shape.dim.add().dim_param = one
            else:
                shape.dim.add().dim_value = one


def rename(model: Any, fixed: Mapping[str, str]) -> None:  # noqa: ANN401
    """Give values and nodes names that do not depend on what was converted before.

    Args:
        model: a ModelProto; changed in place.
        fixed: value → the name that it must have.
    """
    values = _Names(fixed)
    nodes = _Names({})
    for graph in all_graphs(model.graph):
        for one in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            one.name = values.new(one.name)
        for node in graph.node:
            node.name = nodes.new(node.name)
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    names[at] = values.new(name)


class _Names:
    """Old names → new ones, in the order in which they are met."""

    def __init__(self, fixed: Mapping[str, str]) -> None:
        self._known = dict(fixed)
        self._taken = set(fixed.values())
        self._numbers: dict[str, int] = {}

    def new(self, old: str) -> str:
        """The new name of an old one; of no name (an input that is left out) none."""
        if not old:
            return old
        if old not in self._known:
            base = _NUMBERED.sub(self._renumbered, old)
            name, number = base, 0
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._known[old] = name
            self._taken.add(name)
        return self._known[old]

    def _renumbered(self, match: re.Match[str]) -> str:
        return f"__{self._numbers.setdefault(match[1], len(self._numbers) + 1)}"


def _is_name(dimension: Dimension) -> bool:
    return isinstance(dimension, str)


def _own_names(port: Port, first: str) -> tuple[Dimension, ...]:
    assert port.shape is not None, "its rank is known"
    return tuple(
        (f"{port.name}_{at}" if at else first) if size is None else size
        for at, size in enumerate(port.shape)
    )


def _inferred(
    frozen: Frozen,
    dimensions: Mapping[str, tuple[Dimension, ...]],
    sizes: Mapping[Dimension, int],
) -> dict[str, tuple[int | None, ...] | None]:
    """Output → its shape where open dimensions of inputs have these sizes; {}: none fits."""
    import tensorflow as tf

    graph_def = type(frozen.graph)()
    graph_def.CopyFrom(frozen.graph)
    nodes = {node.name: node for node in graph_def.node}
    for port in frozen.signature.inputs:
        shape = nodes[port.tensor.partition(":")[0]].attr["shape"].shape
        if port.name in dimensions:
            for dim, one in zip(shape.dim, dimensions[port.name], strict=True):
                dim.size = one if isinstance(one, int) else sizes.get(one, -1)
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except ValueError:
        return {}  # dimensions that have to be equal, and are not
    found = {}
    for port in frozen.signature.outputs:
        shape = graph.get_tensor_by_name(port.tensor).shape
        found[port.name] = None if shape.rank is None else tuple(shape.as_list())
    return found
