"""Which weights stay outside while a graph is converted, and in which layout they are written.

tf2onnx holds and copies what it converts some fifty times. So large weights are inputs of
the graph that it gets, and become initializers of what it makes, written piece by piece.
It lays out convolution kernels anew, with nodes for those that are inputs; these are
applied to the weight while it is written instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.worker.graph_edit import split
from ckpttool.conversion.worker.program import Frozen, Weight
from ckpttool.formats.dtypes import BY_NAME, BY_NUMBER
from ckpttool.model import numel

if TYPE_CHECKING:
    import numpy as np

__all__ = ["KEEP_OUT", "LaidOut", "absorb_layouts", "with_constants_outside"]

#: Weights of so many bytes stay outside. Shapes and axes, which a converter has to know,
#: are far smaller.
KEEP_OUT = 64 * 2**10
#: Weights of loops and branches are given back where they have no more than this together:
#: tf2onnx finds an LSTM or GRU only where its kernel is a constant.
_GIVEN_BACK_BYTES = 32 * 2**20
_CONTROL_FLOW = {"Enter", "RefEnter", "Switch", "RefSwitch"}
_WITH_BODIES = {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"}
_HANDS_ON = {"Identity", "Snapshot", "StopGradient", "ReadVariableOp"}
_CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class _Constant:
    """A constant that was taken out of a graph."""

    tensor: Any

    @property
    def dtype(self) -> str:
        return BY_NUMBER[self.tensor.dtype].name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim.size for dim in self.tensor.tensor_shape.dim)

    @property
    def nbytes(self) -> int:
        return numel(self.shape) * BY_NAME[self.dtype].size

    def chunks(self) -> Iterator[bytes]:
        content = self.tensor.tensor_content
        if len(content) != self.nbytes:  # one value for all elements, or a list of them
            content = self.array().tobytes()
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    def array(self) -> np.ndarray:
        import tensorflow as tf

        found: np.ndarray = tf.make_ndarray(self.tensor)
        return found


def with_constants_outside(frozen: Frozen, *, give_back: int = _GIVEN_BACK_BYTES) -> Frozen:
    """The function with large constants outside too, and what loops and branches use inside.

    Args:
        frozen: weights of ``KEEP_OUT`` bytes or more are outside already; its graph is
            changed in place. Constants that are no numbers stay inside.
        give_back: how many bytes loops and branches get.
    """
    nodes = {node.name: node for node in frozen.graph.node}
    weights = dict(frozen.weights)
    for node in frozen.graph.node:
        if node.op == "Const" and (constant := _large(node)) is not None:
            weights[node.name] = constant
    consumers: defaultdict[str, list[Any]] = defaultdict(list)
    for node in frozen.graph.node:
        for one in node.input:
            consumers[split(one)[0]].append(node)
    left = give_back
    for name in [name for name in weights if _is_of_control_flow(name, consumers)]:
        if weights[name].nbytes <= left:
            weight = weights.pop(name)
            left -= weight.nbytes
            if nodes[name].op != "Const":
                _to_constant(nodes[name], weight)
    for name, weight in weights.items():
        if nodes[name].op == "Const":
            _to_placeholder(nodes[name], weight)
    return Frozen(frozen.graph, frozen.signature, weights)


def _large(node: Any) -> _Constant | None:  # noqa: ANN401
    tensor = node.attr["value"].tensor
    known = BY_NUMBER.get(tensor.dtype)
    if known is None or not known.name.startswith(("float", "int", "uint", "bool")):
        return None
    if numel(tuple(dim.size for dim in tensor.tensor_shape.dim)) * known.size < KEEP_OUT:
        return None
    held = type(tensor)()
    held.CopyFrom(tensor)
    return _Constant(held)


def _is_of_control_flow(name: str, consumers: Mapping[str, Sequence[Any]]) -> bool:
    waiting = [name]
    while waiting:
        for node in consumers.get(waiting.pop(), ()):
            if node.op in _CONTROL_FLOW or node.op in _WITH_BODIES:
                return True
            if node.op in _HANDS_ON:
                waiting.append(node.name)
    return False


def _to_constant(node: Any, weight: Weight) -> None:  # noqa: ANN401
    import tensorflow as tf

    proto = tf.make_tensor_proto(weight.array())
    node.op = "Const"
    node.attr.clear()
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)


def _to_placeholder(node: Any, weight: Weight) -> None:  # noqa: ANN401
    del node.input[:]
    node.op = "Placeholder"
    node.attr.clear()
    node.attr["dtype"].type = BY_NAME[weight.dtype].number
    shape = node.attr["shape"].shape
    for size in weight.shape:
        shape.dim.add().size = size


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A weight in the layout in which it is written.

    Attributes:
        name: of its placeholder in the graph.
        weight: as it is stored.
        shape: as it is written.
        before: the shape in which it is transposed; None: it is not.
        perm: how.
    """

    name: str
    weight: Weight
    shape: tuple[int, ...]
    before: tuple[int, ...] | None = None
    perm: tuple[int, ...] = ()

    @property
    def dtype(self) -> str:
        return self.weight.dtype

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in C order, little-endian; only of a transposed one the whole is held."""
        if self.before is None:
            yield from self.weight.chunks()
            return
        array = self.weight.array().reshape(self.before).transpose(self.perm)
        rows = max(1, _CHUNK_BYTES * max(1, len(array)) // max(1, array.nbytes))
        for start in range(0, len(array), rows):
            yield array[start : start + rows].tobytes()


def absorb_layouts(model: Any, weights: Mapping[str, Weight]) -> dict[str, LaidOut]:  # noqa: ANN401
    """Apply what only lays out a weight to the weight itself, and take those nodes away.

    Args:
        model: a ModelProto whose inputs the weights are; changed in place.
        weights: operation → weight, for the inputs that are called ``operation:0``.

    Returns:
        Value → the weight as it is to be written there; weights that nothing uses are gone.
    """
    graph = model.graph
    found = {f"{name}:0": LaidOut(name, one, one.shape) for name, one in weights.items()}
    constants = {one.name: one for one in graph.initializer}
    outputs = {one.name for one in graph.output}
    while True:
        uses = _uses(graph)
        absorbed = set()
        for node in graph.node:
            name = node.input[0] if node.input else ""
            if name in found and uses[name] == 1 and node.output[0] not in outputs:
                after = _absorbed(found[name], node, constants)
                if after is not None:
                    found[node.output[0]] = after
                    del found[name]
                    absorbed.add(node.output[0])
        if not absorbed:
            break
        kept = [one for one in graph.node if not (one.output and one.output[0] in absorbed)]
        del graph.node[:]
        graph.node.extend(kept)
    used = uses.keys() | outputs
    return {name: one for name, one in found.items() if name in used}


def _uses(graph: Any) -> defaultdict[str, int]:  # noqa: ANN401
    """Value → how many times a node, also one of an inner graph, takes it."""
    found: defaultdict[str, int] = defaultdict(int)
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        for node in one.node:
            for name in node.input:
                found[name] += 1
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append(attribute.g)
                waiting.extend(attribute.graphs)
        if one is not graph:
            for output in one.output:
                found[output.name] += 1
    return found


def _absorbed(weight: LaidOut, node: Any, constants: Mapping[str, Any]) -> LaidOut | None:  # noqa: ANN401
    """The weight after a node; None where that does more than lay it out."""
    if node.domain:
        return None
    if node.op_type == "Identity":
        return weight
    if node.op_type == "Transpose" and weight.before is None:
        given = [tuple(one.ints) for one in node.attribute if one.name == "perm"]
        perm = given[0] if given else tuple(reversed(range(len(weight.shape))))
        after = tuple(weight.shape[at] for at in perm)
        return replace(weight, shape=after, before=weight.shape, perm=perm)
    if node.op_type == "Reshape" and len(node.input) > 1 and node.input[1] in constants:
        shape = _reshaped(weight.shape, constants[node.input[1]])
        return None if shape is None else replace(weight, shape=shape)
    return None


def _reshaped(shape: tuple[int, ...], wanted: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    """What ONNX's Reshape makes of a shape: 0 keeps a size, -1 is what is left."""
    from onnx import numpy_helper

    sizes = [int(one) for one in numpy_helper.to_array(wanted)]
    if any(size == 0 and at >= len(shape) for at, size in enumerate(sizes)):
        return None
    sizes = [shape[at] if size == 0 else size for at, size in enumerate(sizes)]
    rest = numel(tuple(size for size in sizes if size != -1))
    if -1 in sizes and rest:
        sizes[sizes.index(-1)] = numel(shape) // rest
    found = tuple(sizes)
    return found if numel(found) == numel(shape) and -1 not in found else None
