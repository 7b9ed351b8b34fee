"""What the frozen graph of a function says about its inputs and its arithmetic.

For the check: which rows an integer input can pick, how exact the arithmetic is, and which
operations give other values each time. Knows nothing that is not in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from ckpttool.conversion.worker.graph_edit import operation, split
from ckpttool.conversion.worker.program import Frozen, Function
from ckpttool.errors import CkpttoolError
from ckpttool.formats.dtypes import BY_NAME

__all__ = ["GraphFacts", "facts_of"]

#: Weights of so many bytes or more are not needed to know this.
_KEEP_OUT = 1024
#: What hands integers on to a lookup, unchanged or fewer of them.
_HANDS_ON = {
    "Cast",
    "ConcatV2",
    "ExpandDims",
    "GatherV2",
    "Identity",
    "Pack",
    "Reshape",
    "Slice",
    "Squeeze",
    "StridedSlice",
    "Tile",
    "Transpose",
    "Unpack",
}
_LOOKUPS = {"Gather": 0, "GatherV2": 0, "ResourceGather": 0, "OneHot": 1}
#: Generators that keep a state, or take their seed from the clock.
_RANDOM = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal", "Stateful")
_STATEFUL_CALLS = {"StatefulPartitionedCall"}
#: What computes nothing: a weight that is stored narrow and widened is computed with wide.
_NO_ARITHMETIC = {"Const", "Cast", "Identity", "Placeholder", "Reshape", "ReadVariableOp"}
_NARROW = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """What a graph says.

    Attributes:
        rows: input → the size of the smallest table, or depth, in which it picks.
        precision: ``bfloat16`` or ``float16`` where the graph computes with them; empty
            elsewhere.
        random: operations that give other values each time (``dropout/random (RandomUniform)``).
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    precision: str = ""
    random: tuple[str, ...] = ()


def facts_of(function: Function) -> GraphFacts:
    """What the graph of a function says; nothing where it cannot be frozen."""
    try:
        frozen = function.frozen(keep_out=_KEEP_OUT)
    except CkpttoolError:
        return GraphFacts()
    return GraphFacts(_rows(frozen), _precision(frozen.graph), _random(frozen.graph))


def _rows(frozen: Frozen) -> dict[str, int]:
    nodes = {node.name: node for node in frozen.graph.node}
    inputs = {operation(port.tensor): port.name for port in frozen.signature.inputs}
    found: dict[str, int] = {}
    for node in frozen.graph.node:
        if node.op not in _LOOKUPS:
            continue
        table, indices = node.input[_LOOKUPS[node.op]], node.input[1 - _LOOKUPS[node.op]]
        axis = _constant(node.input[2], nodes) if node.op == "GatherV2" else 0
        size = _size(table, nodes, frozen, is_depth=node.op == "OneHot", axis=axis)
        if not size:
            continue
        for name in _inputs_of(indices, nodes, inputs):
            found[name] = min(size, found.get(name, size))
    return found


def _inputs_of(tensor: str, nodes: Mapping[str, Any], inputs: Mapping[str, str]) -> Iterator[str]:
    """The inputs whose values arrive at a tensor."""
    waiting, seen = [split(tensor)[0]], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in inputs:
            yield inputs[name]
            continue
        node = nodes.get(name)
        if node is not None and node.op in _HANDS_ON:
            # The other inputs of these are axes and shapes, or more of the same.
            several = len(node.input) if node.op in {"ConcatV2", "Pack"} else 1
            waiting += [split(one)[0] for one in node.input[:several]]


def _size(
    tensor: str, nodes: Mapping[str, Any], frozen: Frozen, *, is_depth: bool, axis: int | None
) -> int:
    """The places along an axis of a table, or a constant's depth; 0 where neither is known."""
    if is_depth:
        return _constant(tensor, nodes) or 0
    name = _origin(tensor, nodes)
    node = nodes.get(name)
    if name in frozen.weights:
        shape = frozen.weights[name].shape
    elif node is not None and node.op == "Const":
        dims = node.attr["value"].tensor.tensor_shape.dim
        shape = tuple(dim.size for dim in dims)
    else:
        return 0
    return shape[axis] if axis is not None and -len(shape) <= axis < len(shape) else 0


def _constant(tensor: str, nodes: Mapping[str, Any]) -> int | None:
    """The number that a constant is; None where it is none."""
    node = nodes.get(_origin(tensor, nodes))
    if node is None or node.op != "Const":
        return None
    array = tf.make_ndarray(node.attr["value"].tensor)
    return int(array) if array.ndim == 0 else None


def _origin(tensor: str, nodes: Mapping[str, Any]) -> str:
    """The operation behind a tensor, past identities."""
    name = split(tensor)[0]
    node = nodes.get(name)
    while node is not None and node.op == "Identity":
        name = split(node.input[0])[0]
        node = nodes.get(name)
    return name


def _all_nodes(graph: Any) -> Iterator[Any]:  # noqa: ANN401
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _precision(graph: Any) -> str:  # noqa: ANN401
    computed = {
        node.attr["T"].type
        for node in _all_nodes(graph)
        if "T" in node.attr and node.op not in _NO_ARITHMETIC
    }
    return next((name for name in _NARROW if BY_NAME[name].number in computed), "")


def _random(graph: Any) -> tuple[str, ...]:  # noqa: ANN401
    return tuple(
        f"{node.name} ({node.op})"
        for node in _all_nodes(graph)
        if node.op.startswith(_RANDOM) and node.op not in _STATEFUL_CALLS
    )
