"""A frozen graph as TensorFlow.js reads it: JSON without values, and the weights apart.

Refuses what would load and then fail, or compute something else. Writes no file, and knows
not how weights are stored (``conversion/tfjs_weights.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.tfjs_ops import js_ops, js_version
from ckpttool.conversion.tfjs_weights import js_dtype
from ckpttool.conversion.worker.graph_edit import operation, unique
from ckpttool.conversion.worker.program import Frozen, Weight
from ckpttool.conversion.worker.tfjs_functions import name_constants, name_functions
from ckpttool.conversion.worker.tfjs_loops import keep_items
from ckpttool.conversion.worker.tfjs_rewrites import rewrite
from ckpttool.errors import UnsupportedError
from ckpttool.formats.dtypes import BY_NAME, dtype_name
from ckpttool.model import numel

if TYPE_CHECKING:
    import numpy as np

__all__ = ["JsGraph", "Texts", "js_graph"]

#: What grappler may do: fold what is constant, drop what serves nothing. It leaves no
#: operation that was not there (tensorflow/core/grappler/optimizers/meta_optimizer.cc).
_OPTIMIZERS = ("debug_stripper", "constfold", "dependency", "pruning")
#: Operations, or nodes, that are spelled out in an error or warning.
_NAMED = 5
_CONVOLUTIONS = {"Conv2D", "Conv3D"}
_NORMS = {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}
#: Arithmetic whose result may be too large for int32 where its operands are not.
_GROWING = {"Add", "AddN", "AddV2", "Cumprod", "Cumsum", "Mul", "Pow", "Prod", "Sub", "Sum"}
_WIDE = {"int64", "uint32", "uint64"}


@dataclass(frozen=True, slots=True)
class Texts:
    """A constant of strings."""

    shape: tuple[int, ...]
    texts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Inline:
    """A ``Weight`` whose value is in the graph."""

    value: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def nbytes(self) -> int:
        return self.value.nbytes

    def chunks(self) -> Iterator[bytes]:
        yield self.value.tobytes()

    def array(self) -> np.ndarray:
        return self.value


@dataclass(frozen=True, slots=True)
class JsGraph:
    """What a model is made of.

    Attributes:
        topology: the graph, for JSON: a ``GraphDef`` whose constants have no values.
        signature: its ports, with the dtypes that they have in TensorFlow.js.
        weights: constant → its value, in the order of the graph.
        warnings: where a number may come out otherwise than in TensorFlow.
    """

    topology: Mapping[str, Any]
    signature: Signature
    weights: Mapping[str, Weight | Texts]
    warnings: tuple[str, ...]


def js_graph(frozen: Frozen) -> JsGraph:
    """Make the graph of a model; the frozen one is used up.

    Raises:
        UnsupportedError: ids ``tfjs-op-unknown``, ``tfjs-loop``, ``training-norm``,
            ``dtype-not-representable``: TensorFlow.js could not run it.
    """
    graph = _optimised(frozen)
    _require_whole_convolutions(frozen)
    _pass_constants_on(graph, frozen.signature)
    used = {node.name for node in graph.node}
    outside = {name: one for name, one in frozen.weights.items() if name in used}
    for nodes in _node_lists(graph):
        rewrite(nodes)
    _require_ops(graph, frozen.signature.name)
    name_functions(graph)
    keep_items(graph, frozen.signature.name)
    warnings = _narrowing(graph)
    weights: dict[str, Weight | Texts] = {}
    for node in graph.node:
        if node.name in outside:
            _to_empty_constant(node, outside[node.name])
            weights[node.name] = outside[node.name]
        elif node.op == "Const":
            weights[node.name] = _taken_out(node)
    for function in graph.library.function:
        name_constants(function)
        for node in function.node_def:
            if node.op == "Const":
                weights[node.name] = _taken_out(node)
    _replace_dtypes(graph)
    signature = replace(
        frozen.signature,
        inputs=tuple(map(_js_port, frozen.signature.inputs)),
        outputs=tuple(map(_js_port, frozen.signature.outputs)),
    )
    return JsGraph(_topology(graph), signature, weights, warnings)


def _optimised(frozen: Frozen) -> Any:  # noqa: ANN401
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.grappler import tf_optimizer

    signature = frozen.signature
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(frozen.graph)
    for nodes in _node_lists(meta.graph_def):
        for node in nodes:
            node.attr.pop("_lower_using_switch_merge", None)
    for node in meta.graph_def.node:
        if node.name in frozen.weights:
            # Of a placeholder whose shape it knows, grappler makes a tensor to feed.
            node.attr["shape"].shape.Clear()
            node.attr["shape"].shape.unknown_rank = True
    wanted = meta.collection_def["train_op"].node_list
    wanted.value.extend(port.tensor for port in (*signature.inputs, *signature.outputs))
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1  # small graphs too
    options.optimizers.extend(_OPTIMIZERS)
    return tf_optimizer.OptimizeGraph(config, meta)


def _node_lists(graph: Any) -> Iterator[Any]:  # noqa: ANN401
    yield graph.node
    for function in graph.library.function:
        yield function.node_def


def _all_nodes(graph: Any) -> Iterator[Any]:  # noqa: ANN401
    for nodes in _node_lists(graph):
        yield from nodes


def _pass_constants_on(graph: Any, signature: Signature) -> None:  # noqa: ANN401
    """Put an identity behind every output that is a constant.

    A page disposes of the outputs that it got; that would be the weight itself.
    """
    ends = {operation(port.tensor) for port in signature.outputs}
    taken = {node.name for node in graph.node}
    for node in list(graph.node):
        if node.op == "Const" and node.name in ends:
            name = node.name
            node.name = unique(f"{name}/value", taken)
            identity = graph.node.add()
            identity.name, identity.op = name, "Identity"
            identity.input.append(node.name)
            identity.attr["T"].type = node.attr["dtype"].type


def _require_whole_convolutions(frozen: Frozen) -> None:
    """Check that a kernel of a convolution takes all channels: TensorFlow.js knows no groups."""
    if not any(node.op in _CONVOLUTIONS for node in _all_nodes(frozen.graph)):
        return
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(frozen.graph, name="")
    grouped = []
    for one in graph.get_operations():
        if one.type in _CONVOLUTIONS:
            data, kernel = (tensor.shape for tensor in one.inputs)
            last = one.get_attr("data_format").decode().endswith("C")
            channels = data[-1 if last else 1] if data.rank else None
            if channels and kernel.rank and kernel[-2] not in {None, channels}:
                grouped.append(one.name)
    if grouped:
        raise UnsupportedError(
            f"the signature {frozen.signature.name} cannot run in TensorFlow.js",
            why=f"{js_version()} has no convolution in groups ({_some(grouped)})",
            hint="build the model with groups=1, or one convolution for each group",
            id="tfjs-op-unknown",
        )


def _require_ops(graph: Any, name: str) -> None:  # noqa: ANN401
    nodes = list(_all_nodes(graph))
    unknown = sorted({node.op for node in nodes} - js_ops())
    if unknown:
        raise UnsupportedError(
            f"the signature {name} cannot run in TensorFlow.js",
            why=f"{js_version()} does not have {_some(unknown)}"
            f" ({_some([node.name for node in nodes if node.op in unknown])})",
            hint="end before it, or start after it (--output, --input), or write it with other "
            "operations",
            id="tfjs-op-unknown",
        )
    norms = [node for node in nodes if node.op in _NORMS and _is_training(node)]
    if norms:
        raise UnsupportedError(
            f"the signature {name} cannot run in TensorFlow.js",
            why=f"{_some([node.name for node in norms])} normalises by the batch, as in training",
            hint="call the model with training=False, or --freeze-input the switch",
            id="training-norm",
        )


def _is_training(node: Any) -> bool:  # noqa: ANN401
    # True is the default (tensorflow/core/ops/nn_ops.cc).
    return "is_training" not in node.attr or bool(node.attr["is_training"].b)


def _narrowing(graph: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Where arithmetic with wide integers may give what int32 does not hold."""
    found = [
        f"{node.name} ({node.op})"
        for node in _all_nodes(graph)
        if node.op in _GROWING and "T" in node.attr and dtype_name(node.attr["T"].type) in _WIDE
    ]
    if not found:
        return ()
    text = (
        "integers are int32 in TensorFlow.js, and the check tries no large ones: the result of "
        f"{_some(found)} must stay below 2147483648"
    )
    return (text,)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _to_empty_constant(node: Any, weight: Weight) -> None:  # noqa: ANN401
    """Make a constant without a value of the placeholder of a weight that was left out."""
    node.op = "Const"
    node.attr.clear()
    number = BY_NAME[weight.dtype].number
    node.attr["dtype"].type = number
    tensor = node.attr["value"].tensor
    tensor.dtype = number
    for size in weight.shape:
        tensor.tensor_shape.dim.add().size = size
    tensor.tensor_shape.SetInParent()


def _taken_out(node: Any) -> Weight | Texts:  # noqa: ANN401
    """The value of a constant, which then has none."""
    tensor = node.attr["value"].tensor
    array = tf.make_ndarray(tensor)
    dtype = dtype_name(tensor.dtype)
    shape = tuple(array.shape)
    number = tensor.dtype
    tensor.Clear()
    tensor.dtype = number
    for size in shape:
        tensor.tensor_shape.dim.add().size = size
    tensor.tensor_shape.SetInParent()
    if dtype == "string":
        return Texts(shape, tuple(array.reshape(numel(shape)).tolist()))
    js_dtype(dtype, f"the constant {node.name}")
    return _Inline(array, dtype)


def _replace_dtypes(graph: Any) -> None:  # noqa: ANN401
    """Say of every tensor the dtype that it has in TensorFlow.js."""
    for node in _all_nodes(graph):
        node.device = ""
        node.ClearField("experimental_debug_info")
        for attr in [key for key in node.attr if key.startswith("_")]:
            del node.attr[attr]  # hints to TensorFlow's own runtime
        for value in node.attr.values():
            kind = value.WhichOneof("value")
            if kind == "type":
                value.type = _js_number(value.type, node.name)
            elif kind == "tensor":
                value.tensor.dtype = _js_number(value.tensor.dtype, node.name)
            elif kind == "list" and value.list.type:
                numbers = [_js_number(one, node.name) for one in value.list.type]
                del value.list.type[:]
                value.list.type.extend(numbers)
    for function in graph.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            if argument.type:
                argument.type = _js_number(argument.type, function.signature.name)


def _js_number(number: int, name: str) -> int:
    word = dtype_name(number)
    if word in {"resource", "variant"}:  # an array or a list of tensors
        return number
    return BY_NAME[js_dtype(word, name)].number


def _js_port(port: Port) -> Port:
    return replace(port, dtype=js_dtype(port.dtype, port.name))


def _topology(graph: Any) -> Mapping[str, Any]:  # noqa: ANN401
    from google.protobuf.json_format import MessageToDict

    found: dict[str, Any] = MessageToDict(graph)
    for function in found.get("library", {}).get("function", ()):
        # Where an argument stands in the function that it was traced from; of no use.
        function.pop("argAttr", None)
        function.pop("attr", None)
    return found
