"""A ``Program`` out of functions of TensorFlow 2: a model in memory, a loaded SavedModel.

A function takes its inputs in the order of its signature and gives its outputs by name.
Where the model comes from, and how it was restored, is its maker's affair.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ckpttool.conversion.ports import Port, Signature
from ckpttool.conversion.specs import NamedValue
from ckpttool.conversion.stored import require_no_python
from ckpttool.conversion.worker.freezing import Computation, freeze, with_batch
from ckpttool.conversion.worker.graph_variables import GraphVariable
from ckpttool.conversion.worker.program import Frozen
from ckpttool.conversion.worker.values import LiveValues
from ckpttool.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["TracedFunction", "TracedProgram", "constant_of", "require_names", "spec_of", "traced"]

_ARGUMENT = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
#: What a function computes: tensors in the order of the inputs → outputs by name.
Body = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A signature of a model.

    Attributes:
        signature: its ports.
        concrete: the traced function.
        body: what was traced, to trace it for other shapes.
    """

    signature: Signature
    concrete: Any
    body: Body

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = [tf.constant(feeds[port.name], port.dtype) for port in self.signature.inputs]
        return {name: tensor.numpy() for name, tensor in self.concrete(*inputs).items()}

    def frozen(self, *, batch: int | None = None, keep_out: int | None = None) -> Frozen:
        fixed = self.with_batch(batch)
        return freeze(_computation(fixed), batch=None, keep_out=keep_out)

    def with_batch(self, batch: int | None) -> TracedFunction:
        """The same function for inputs whose open first dimensions are fixed."""
        signature = with_batch(self.signature, batch)
        if signature == self.signature:
            return self
        return traced(signature.name, signature.inputs, self.body)


@dataclass(slots=True)
class TracedProgram:
    """A restored model.

    Attributes:
        functions: its signatures.
        root: what holds its variables and tables; kept alive.
        warnings: what a person should know.
    """

    functions: Sequence[TracedFunction]
    root: Any
    warnings: Sequence[str] = ()
    on_close: Callable[[], None] = field(default=lambda: None)

    def save(self, path: str, *, batch: int | None = None) -> None:
        """Write the functions, and of the model only the resources that they use.

        Raises:
            UnsupportedError: id ``op-python``: a function of Python is in none of these.
            UsageError: id ``port-name``.
        """
        functions = [one.with_batch(batch) for one in self.functions]
        for one in functions:
            require_names(one.signature)
            graph = one.concrete.graph.as_graph_def()
            bodies = (body.node_def for body in graph.library.function)
            nodes = [node for source in (graph.node, *bodies) for node in source]
            require_no_python(f"the signature {one.signature.name}", nodes)
        module = tf.Module()
        module.held = _resources(self.root, [one.concrete for one in functions])
        tf.saved_model.save(
            module, path, signatures={one.signature.name: one.concrete for one in functions}
        )

    def close(self) -> None:
        self.on_close()


def spec_of(port: Port) -> Any:  # noqa: ANN401
    """What TensorFlow calls an input."""
    return tf.TensorSpec(port.shape, port.dtype, name=port.name)


def require_names(signature: Signature) -> None:
    """Check that TensorFlow 2 keeps the names of the inputs when it saves the signature.

    They are names of arguments there: ``a/b`` would become ``a_b`` without a word.

    Raises:
        UsageError: id ``port-name``.
    """
    for port in signature.inputs:
        if not _ARGUMENT.fullmatch(port.name) or keyword.iskeyword(port.name):
            usable = re.sub(r"[^A-Za-z0-9]+", "_", port.name).strip("_")
            raise UsageError(
                f"an input of {signature.name} cannot be called {port.name!r}",
                why="TensorFlow 2 calls inputs as arguments of a function: letters, digits and _",
                hint=f"give it another name: --input input_{usable}={port.name}",
                id="port-name",
            )


def traced(name: str, inputs: Sequence[Port], body: Body) -> TracedFunction:
    """Trace a function for inputs of these dtypes and shapes.

    Args:
        name: of the signature.
        inputs: in the order in which ``body`` takes them.
        body: what it computes.
    """
    function = tf.function(
        lambda *tensors: dict(body(*tensors)),
        input_signature=[spec_of(port) for port in inputs],
        autograph=False,
    )
    concrete = function.get_concrete_function()
    outputs = tuple(
        Port(key, tensor.dtype.base_dtype.name, _sizes(tensor.shape))
        for key, tensor in concrete.structured_outputs.items()
    )
    return TracedFunction(Signature(name, tuple(inputs), outputs), concrete, body)


def constant_of(value: NamedValue, dtype: Any) -> Any:  # noqa: ANN401
    """A fixed input as a tensor.

    Raises:
        UsageError: id ``freeze-value``: the value does not fit the dtype.
    """
    try:
        return tf.constant(value.value, dtype)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"--freeze-input {value.name}={value.value!r} does not fit",
            why=f"the input is {dtype.name}: {error}",
            hint="give a value of that dtype, in JSON where it is a list",
            id="freeze-value",
        ) from None


def _sizes(shape: Any) -> tuple[int | None, ...] | None:  # noqa: ANN401
    return None if shape.rank is None else tuple(shape.as_list())


def _computation(function: TracedFunction) -> Computation:
    """The function's graph, with what it captured as variables and constants in it."""
    concrete = function.concrete
    graph_def = concrete.graph.as_graph_def()
    nodes = {node.name: node for node in graph_def.node}
    handles = {id(one.handle): one for one in concrete.variables}
    variables: dict[str, GraphVariable] = {}
    readers: dict[str, Callable[[], Any]] = {}
    for outer, inner in concrete.graph.captures:
        node = nodes[inner.op.name]
        variable = handles.get(id(outer))
        if variable is not None:
            _to_handle(node, variable)
            variables[node.name] = GraphVariable(
                node.name,
                True,
                variable.dtype.base_dtype.name,
                tuple(variable.shape),
                variable.name,
            )
            readers[node.name] = variable.numpy
        elif outer.dtype not in {tf.resource, tf.variant}:
            _to_constant(node, outer.numpy())
    captured = {id(inner) for _, inner in concrete.graph.captures}
    tensors = [one.name for one in concrete.inputs if id(one) not in captured]
    ports = function.signature
    return Computation(
        graph_def,
        Signature(
            ports.name,
            _placed(ports.inputs, tensors),
            # A dict's members are flattened in the order of their sorted names.
            _placed(
                sorted(ports.outputs, key=lambda one: one.name),
                [one.name for one in concrete.outputs],
            ),
        ),
        variables,
        LiveValues(readers),
    )


def _placed(ports: Sequence[Port], tensors: Sequence[str]) -> tuple[Port, ...]:
    return tuple(
        Port(port.name, port.dtype, port.shape, tensor)
        for port, tensor in zip(ports, tensors, strict=True)
    )


def _to_handle(node: Any, variable: Any) -> None:  # noqa: ANN401
    """A placeholder that stands for a captured variable becomes its handle."""
    node.op = "VarHandleOp"
    node.attr.clear()
    node.attr["dtype"].type = variable.dtype.base_dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    node.attr["shared_name"].s = node.name.encode()


def _to_constant(node: Any, array: np.ndarray) -> None:  # noqa: ANN401
    proto = tf.make_tensor_proto(array)
    node.op = "Const"
    node.attr.clear()
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)


def _resources(root: Any, functions: Sequence[Any]) -> list[Any]:  # noqa: ANN401
    """The variables and tables that functions use, each once."""
    from tensorflow.python.checkpoint.graph_view import ObjectGraphView

    used = {id(outer) for one in functions for outer, _ in one.graph.captures}
    found = {id(one): one for function in functions for one in function.variables}
    for one in ObjectGraphView(root).breadth_first_traversal()[0]:
        handle = getattr(one, "resource_handle", None)
        if handle is not None and id(handle) in used:
            found[id(one)] = one
    return list(found.values())
