"""Variables → constants, one function at a time.

Where a variable is simply read, its operation is rewritten here: to a constant, or to a
placeholder for a weight that is large and stays outside. Where its handle goes into
control flow or functions, TensorFlow's own freezer does it
(tensorflow/python/framework/convert_to_constants.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.worker.graph_edit import ORIGINAL, called_functions, cut, operation, split
from ckpttool.conversion.worker.graph_variables import HANDLES, REFERENCES, GraphVariable
from ckpttool.conversion.worker.program import Frozen
from ckpttool.conversion.worker.values import Values, VariableWeight
from ckpttool.errors import LimitError, UnsupportedError
from ckpttool.formats.dtypes import BY_NAME

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Computation", "freeze", "with_batch"]

#: What reads a handle → what does the same to a value.
_READS = {
    "ReadVariableOp": "Identity",
    "ResourceGather": "GatherV2",
    "ResourceGatherNd": "GatherNd",
}
#: What hands a handle on, unchanged, within one graph.
_CARRIERS = {"Identity", "Enter", "Switch"}
#: What takes a reference and gives one → the same for a value.
_OF_REFERENCES = {"RefSwitch": "Switch", "RefEnter": "Enter", "RefIdentity": "Identity"}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
#: What keeps a function from being inlined: that it may be replaced by another implementation
#: (grappler/optimizers/implementation_selector.h), that it is to be compiled as a whole, as
#: Keras has it with convolutions in groups, or simply that somebody said so.
_KEPT_WHOLE = ("api_implements", "_XlaMustCompile", "_XlaCompile", "_noinline")
#: What changes a variable (core/ops/{state,resource_variable,training,stateful_random}_ops.cc);
#: ScatterNd, and what begins with Tensor, makes a new tensor instead.
_CHANGES = re.compile(
    r"Assign\w*|(?:Resource)?StridedSliceAssign|(?:Resource)?(?:Sparse)?Apply[A-Z]\w*"
    r"|(?:Resource)?Scatter(?:Nd)?(?:Update|Add|Sub|Mul|Div|Min|Max)|(?:Resource)?CountUpTo"
    r"|Rng(?:ReadAnd)?Skip|Stateful(?:Uniform|StandardNormal|TruncatedNormal|RandomBinomial)\w*"
)
_TABLES = (
    "HashTable",
    "HashTableV2",
    "MutableHashTable",
    "MutableHashTableV2",
    "AnonymousHashTable",
)
#: A protocol message cannot have 2 GB (google/protobuf/message_lite.h).
_MESSAGE_BYTES = 2**31 - 2**20


@dataclass(frozen=True, slots=True)
class Computation:
    """A function before it is frozen: its graph, and where its variables have their values.

    The graph may be larger than the function; ports have dtype, shape and tensor.
    """

    graph: Any
    signature: Signature
    variables: Mapping[str, GraphVariable]
    values: Values


def freeze(computation: Computation, *, batch: int | None, keep_out: int | None) -> Frozen:
    """Freeze a function; arguments and errors as ``program.Function.frozen``."""
    signature = with_batch(computation.signature, batch)
    graph, signature = cut(computation.graph, signature)
    if any(node.op in _CALLS for node in graph.node) or _calls_by_name(graph):
        graph = _inlined(graph, signature)
    _require_stateless(graph, signature.name)
    renamed = _renamed_variables(graph, computation)
    _require_size(renamed.values(), keep_out)
    weights: dict[str, VariableWeight] = {}
    values = computation.values
    for name, readers in _simple(graph, renamed).items():
        variable = renamed.pop(name)
        node = readers[0]
        weight = VariableWeight(variable, values)
        if keep_out is not None and variable.dtype != "string" and weight.nbytes >= keep_out:
            _to_placeholder(node, variable)
            weights[name] = weight
        else:
            _to_constant(node, values.array(variable))
        for reader in readers[1:]:
            _to_value_reader(graph, reader, variable)
    if renamed:
        graph = _by_tensorflow(graph, signature, renamed, values)
    return Frozen(graph, signature, weights)


def with_batch(signature: Signature, batch: int | None) -> Signature:
    """The signature with its open first dimensions fixed; unchanged where batch is None."""
    if batch is None:
        return signature

    def fixed(port: Port) -> Port:
        if port.shape and port.shape[0] is None:
            return replace(port, shape=(batch, *port.shape[1:]))
        return port

    return replace(signature, inputs=tuple(map(fixed, signature.inputs)))


def _renamed_variables(graph: Any, computation: Computation) -> dict[str, GraphVariable]:  # noqa: ANN401
    """Operation of the cut graph → variable; cutting may have renamed it."""
    found = {}
    for node in graph.node:
        original = node.attr[ORIGINAL].s.decode() or node.name
        del node.attr[ORIGINAL]
        if node.op in REFERENCES or node.op in HANDLES:
            found[node.name] = computation.variables[original]
    return found


def _calls_by_name(graph: Any) -> bool:  # noqa: ANN401
    known = {function.signature.name for function in graph.library.function}
    return any(node.op in known for node in graph.node)


def _inlined(graph: Any, signature: Signature) -> Any:  # noqa: ANN401
    """The graph with the bodies of called functions in their places; loops stay functions."""
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
    from tensorflow.python.grappler import tf_optimizer

    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            for name in ("_lower_using_switch_merge", *_KEPT_WHOLE):
                node.attr.pop(name, None)
    for function in graph.library.function:
        for name in _KEPT_WHOLE:
            function.attr.pop(name, None)
    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.CopyFrom(graph)
    wanted = meta.collection_def["train_op"].node_list
    wanted.value.extend(port.tensor for port in (*signature.inputs, *signature.outputs))
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1  # small graphs too
    options.optimizers.append("function")
    options.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    return tf_optimizer.OptimizeGraph(config, meta)


def _require_stateless(graph: Any, name: str) -> None:  # noqa: ANN401
    """Check that nothing in a function changes a variable or needs a table."""
    bodies = (one.node_def for one in called_functions(graph, graph.node))
    nodes = [node for source in (graph.node, *bodies) for node in source]
    changing = sorted({f"{one.name} ({one.op})" for one in nodes if _CHANGES.fullmatch(one.op)})
    tables = sorted({f"{one.name} ({one.op})" for one in nodes if one.op.startswith(_TABLES)})
    tables += _captured(graph)
    if changing or tables:
        found = changing or tables
        what = "changes variables while it runs" if changing else "needs tables or other resources"
        raise UnsupportedError(
            f"the signature {name} cannot be frozen",
            why=f"it {what}: {', '.join(found[:5])}",
            hint="convert it --to savedmodel, which keeps them",
            id="stateful-graph",
        )


def _captured(graph: Any) -> list[str]:  # noqa: ANN401
    """What uses the resources that a function takes from outside: these have only numbers."""
    resource = BY_NAME["resource"].number
    found = {
        node.name
        for node in graph.node
        if node.op == "Placeholder" and node.attr["dtype"].type == resource
    }
    users = set()
    waiting = list(found)
    while waiting:
        place = waiting.pop()
        for node in graph.node:
            if not any(split(one)[0] == place for one in node.input):
                continue
            if node.op == "Identity" and node.name not in found:
                waiting.append(node.name)
            elif node.op != "Identity":
                users.add(f"{node.name} ({node.op})")
            found.add(node.name)
    return sorted(users or found)


def _require_size(variables: Any, keep_out: int | None) -> None:  # noqa: ANN401
    sizes = [VariableWeight(one, _NO_VALUES).nbytes for one in variables if one.shape is not None]
    inside = sum(size for size in sizes if keep_out is None or size < keep_out)
    if inside > _MESSAGE_BYTES:
        raise LimitError(
            "the graph is too large with its weights as constants",
            why=f"they have {inside} bytes, and a graph can have 2 GB",
            hint="convert --to savedmodel, or --to onnx, which keep weights outside",
            id="graph-too-large",
        )


class _NoValues:
    """Stands where only the size of a weight is asked for."""

    def array(self, variable: GraphVariable) -> np.ndarray:
        raise NotImplementedError

    def chunks(self, variable: GraphVariable) -> Iterator[bytes]:
        raise NotImplementedError


_NO_VALUES = _NoValues()


def _simple(graph: Any, variables: Mapping[str, GraphVariable]) -> dict[str, list[Any]]:  # noqa: ANN401
    """Variable → its node, and the nodes that its handle or reference goes to.

    Only of those whose handle goes nowhere but to reads, which all are known here.
    """
    nodes = {node.name: node for node in graph.node}
    consumers: defaultdict[tuple[str, int], list[Any]] = defaultdict(list)
    for node in graph.node:
        for one in node.input:
            consumers[split(one)].append(node)
    found = {}
    for name, variable in variables.items():
        readers = _readers(name, variable, nodes, consumers)
        if readers is not None:
            found[name] = readers
    return found


def _readers(
    name: str,
    variable: GraphVariable,
    nodes: Mapping[str, Any],
    consumers: Mapping[tuple[str, int], Sequence[Any]],
) -> list[Any] | None:
    found = [nodes[name]]
    waiting = [(name, 0)]
    while waiting:
        for node in consumers.get(waiting.pop(), ()):
            if any(node is one for one in found):
                continue
            if variable.is_handle:
                if node.op in _CARRIERS:
                    waiting.extend((node.name, index) for index in range(2))
                elif node.op not in _READS:
                    return None
                found.append(node)
            elif node.op in _OF_REFERENCES:
                waiting.extend((node.name, index) for index in range(2))
                found.append(node)
    return found


def _to_constant(node: Any, array: np.ndarray) -> None:  # noqa: ANN401
    import tensorflow as tf

    proto = tf.make_tensor_proto(array)
    node.op = "Const"
    node.attr.clear()
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)


def _to_placeholder(node: Any, variable: GraphVariable) -> None:  # noqa: ANN401
    node.op = "Placeholder"
    node.attr.clear()
    node.attr["dtype"].type = BY_NAME[variable.dtype].number
    shape = node.attr["shape"].shape
    shape.SetInParent()
    for size in variable.shape or ():
        shape.dim.add().size = size


def _to_value_reader(graph: Any, node: Any, variable: GraphVariable) -> None:  # noqa: ANN401
    """Make what read or handed on a handle do the same with the value."""
    number = BY_NAME[variable.dtype].number
    if node.op in _OF_REFERENCES:
        node.op = _OF_REFERENCES[node.op]
        return
    if node.op in _CARRIERS:
        node.attr["T"].type = number
        node.attr.pop("_handle_dtypes", None)
        return
    old = node.op
    node.op = _READS[old]
    kept = {name: node.attr[name].i for name in ("batch_dims",) if name in node.attr}
    indices = node.attr["Tindices"].type if "Tindices" in node.attr else 0
    node.attr.clear()
    if old == "ReadVariableOp":
        node.attr["T"].type = number
        return
    node.attr["Tparams"].type = number
    node.attr["Tindices"].type = indices
    if old == "ResourceGather":
        batch_dims = kept.get("batch_dims", 0)
        node.attr["batch_dims"].i = batch_dims
        node.attr["Taxis"].type = BY_NAME["int32"].number
        axis = graph.node.add()
        axis.name = f"{node.name}/ckpttool_axis"
        _to_constant(axis, _int32(batch_dims))
        data = [one for one in node.input if not one.startswith("^")]
        control = [one for one in node.input if one.startswith("^")]
        del node.input[:]
        node.input.extend([*data, axis.name, *control])


def _int32(value: int) -> np.ndarray:
    import numpy as np

    return np.array(value, np.int32)


class _Fetcher:
    """What TensorFlow's freezer takes for a session: it asks only for variables' values."""

    def __init__(self, variables: Mapping[str, GraphVariable], values: Values) -> None:
        self._variables = variables
        self._values = values

    def run(self, tensors: Sequence[str]) -> list[np.ndarray]:
        names = [operation(one).removesuffix("/Read/ReadVariableOp") for one in tensors]
        return [self._values.array(self._variables[name]) for name in names]


def _by_tensorflow(
    graph: Any,  # noqa: ANN401
    signature: Signature,
    variables: Mapping[str, GraphVariable],
    values: Values,
) -> Any:  # noqa: ANN401
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_from_session_graph as convert,
    )

    inputs = {operation(port.tensor) for port in signature.inputs}
    ends = [operation(port.tensor) for port in signature.outputs]
    fetcher = _Fetcher(variables, values)
    return convert(
        fetcher, graph, [*ends, *sorted(inputs)], variable_names_allowlist=set(variables)
    )
