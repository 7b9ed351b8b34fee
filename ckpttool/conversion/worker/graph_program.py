"""A ``Program`` out of a graph of TensorFlow 1's kind: nodes, variables, and their values.

It is run in a session in which it was restored; frozen by ``freezing.py``; saved by
``graph_saving.py``. Where the graph and the values come from is its maker's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ckpttool.conversion.ports import Port, Signature, require_dtype, require_shape
from ckpttool.conversion.specs import NamedValue
from ckpttool.conversion.worker.freezing import Computation, freeze
from ckpttool.conversion.worker.graph_edit import operation
from ckpttool.conversion.worker.graph_variables import GraphVariable
from ckpttool.conversion.worker.program import Frozen
from ckpttool.conversion.worker.values import Values
from ckpttool.errors import UsageError
from ckpttool.sources.graph_analysis import tensor_not_found

if TYPE_CHECKING:
    import numpy as np

__all__ = ["GraphFunction", "GraphProgram", "complete", "decided_by", "freeze_inputs"]


@dataclass(slots=True)
class GraphProgram:
    """A restored graph.

    Attributes:
        graph: a GraphDef that has what every signature needs.
        signatures: complete ones: dtype, shape and tensor of every port.
        variables: operation → variable, of all that the signatures need.
        values: their values.
        initializers: operations that fill the tables that the signatures need.
        open_session: makes the session in which it is restored; called once, when first
            something is run.
        warnings: what a person should know.
    """

    graph: Any
    signatures: Sequence[Signature]
    variables: Mapping[str, GraphVariable]
    values: Values
    initializers: Sequence[str]
    open_session: Callable[[], Any]
    on_close: Callable[[], None]
    warnings: Sequence[str] = ()
    _session: Any = None

    @property
    def functions(self) -> Sequence[GraphFunction]:
        return [GraphFunction(self, signature) for signature in self.signatures]

    @property
    def session(self) -> Any:  # noqa: ANN401
        """The session in which the graph is restored."""
        if self._session is None:
            self._session = self.open_session()
        return self._session

    def save(self, path: str, *, batch: int | None = None) -> None:
        from ckpttool.conversion.worker.graph_saving import save_graph

        save_graph(self, path, batch=batch)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self.on_close()


@dataclass(frozen=True, slots=True)
class GraphFunction:
    """A signature of a graph."""

    program: GraphProgram
    signature: Signature

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        inputs = {port.tensor: feeds[port.name] for port in self.signature.inputs}
        outputs = {port.name: port.tensor for port in self.signature.outputs}
        found: dict[str, np.ndarray] = self.program.session.run(outputs, inputs)
        return found

    def frozen(self, *, batch: int | None = None, keep_out: int | None = None) -> Frozen:
        program = self.program
        work = Computation(program.graph, self.signature, program.variables, program.values)
        return freeze(work, batch=batch, keep_out=keep_out)


def freeze_inputs(graph: Any, frozen: Sequence[NamedValue], path: str) -> None:  # noqa: ANN401
    """Make constants of placeholders; ``path`` is what the graph is called in errors.

    Raises:
        NotFoundError: id ``tensor-not-found``: there is no such placeholder; names near ones.
        UsageError: id ``freeze-value``: the value does not fit its dtype.
    """
    import numpy as np

    nodes = {node.name: node for node in graph.node}
    for name, value in frozen:
        node = nodes.get(operation(name))
        if node is None or not node.op.startswith("Placeholder"):
            placeholders = [one.name for one in graph.node if one.op.startswith("Placeholder")]
            raise tensor_not_found(name, path, placeholders)
        dtype = tf.dtypes.as_dtype(node.attr["dtype"].type)
        try:
            proto = tf.make_tensor_proto(np.array(value, dtype.as_numpy_dtype))
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"--freeze-input {name}={value!r} does not fit",
                why=f"the placeholder is {dtype.name}: {error}",
                hint="give a value of that dtype, in JSON where it is a list",
                id="freeze-value",
            ) from None
        node.op = "Const"
        del node.input[:]
        node.attr.clear()
        node.attr["dtype"].type = proto.dtype
        node.attr["value"].tensor.CopyFrom(proto)


def decided_by(frozen: Sequence[NamedValue]) -> dict[str, bool]:
    """Operation → its value, of the frozen inputs that can decide a condition."""
    return {operation(one.name): one.value for one in frozen if isinstance(one.value, bool)}


def complete(graph_def: Any, signature: Signature, path: str) -> Signature:  # noqa: ANN401
    """A signature with the dtype and shape of every port, as TensorFlow infers them.

    A shape that was asked for stays. ``path`` is what the graph is called in errors.

    Raises:
        NotFoundError: id ``tensor-not-found``.
        UsageError: ids ``port-dtype``, ``port-shape``: another one was asked for.
    """
    names = [node.name for node in graph_def.node]
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")

    def filled(port: Port) -> Port:
        try:
            tensor = graph.get_tensor_by_name(port.tensor)
        except (KeyError, ValueError):
            raise tensor_not_found(port.tensor, path, names) from None
        dtype = tensor.dtype.base_dtype.name
        require_dtype(port.name, dtype, port.dtype)
        known = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
        require_shape(port.name, known, port.shape, may_open=True)
        return replace(port, dtype=dtype, shape=known if port.shape is None else port.shape)

    return Signature(
        signature.name, tuple(map(filled, signature.inputs)), tuple(map(filled, signature.outputs))
    )
