"""TensorFlow operations that tf2onnx has no word for, in ONNX's own words.

A formula makes the nodes that stand in the place of one and gives the name of the result.
Where the plain formula loses digits near zero, another is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["handlers"]

#: tf2onnx's interface of custom operations: its graph, the node, its name, arguments.
_Handler = Callable[[Any, Any, str, Any], None]


class _Maker:
    """Makes nodes beside one that they replace."""

    def __init__(self, graph: Any, node: Any) -> None:  # noqa: ANN401
        self._graph = graph
        self._node = node
        self.inputs: list[str] = list(node.input)

    def make(self, op: str, *inputs: str, **attributes: object) -> str:
        """A node with one output; the name of that."""
        name = self._node.name
        made = self._graph.make_node(op, list(inputs), attr=attributes, op_name_scope=name)
        output: str = made.output[0]
        return output

    def constant(self, value: float) -> str:
        """A scalar of the dtype of the first input."""
        import numpy as np
        from tf2onnx import utils

        kind = utils.map_onnx_to_numpy_type(self._graph.get_dtype(self.inputs[0]))
        name = utils.make_name(self._node.name)
        output: str = self._graph.make_const(name, np.array(value, kind)).output[0]
        return output

    @property
    def dtype(self) -> int:
        """Of the node's output, in ONNX's number."""
        number: int = self._graph.get_dtype(self._node.output[0])
        return number

    def put(self, result: str) -> None:
        """Let the node's output be that."""
        output = self._node.output[0]
        shapes, dtypes = [self._graph.get_shape(output)], [self.dtype]
        self._graph.remove_node(self._node.name)
        self._graph.make_node("Identity", [result], outputs=[output], shapes=shapes, dtypes=dtypes)


def handlers() -> dict[str, tuple[_Handler, list[str]]]:
    """Operation → what tf2onnx takes as ``custom_op_handlers``."""
    return {op: (_handler(formula), []) for op, formula in _FORMULAS.items()}


def _handler(formula: Callable[[_Maker], str]) -> _Handler:
    def replace(graph: Any, node: Any, name: str, arguments: Any) -> None:  # noqa: ANN401, ARG001
        maker = _Maker(graph, node)
        maker.put(formula(maker))

    return replace


def _erfc(m: _Maker) -> str:
    return m.make("Sub", m.constant(1), m.make("Erf", *m.inputs))


def _expm1(m: _Maker) -> str:
    """``tanh(x/2) * (exp(x) + 1)`` is the same, and loses nothing near zero."""
    (x,) = m.inputs
    half = m.make("Tanh", m.make("Mul", x, m.constant(0.5)))
    return m.make("Mul", half, m.make("Add", m.make("Exp", x), m.constant(1)))


def _log1p(m: _Maker, x: str = "") -> str:
    """Near zero ``log(u) * x / (u - 1)`` with ``u = 1 + x``, which mends u's rounding."""
    x = x or m.inputs[0]
    one = m.constant(1)
    u = m.make("Add", x, one)
    plain = m.make("Log", u)
    step = m.make("Sub", u, one)
    is_lost = m.make("Equal", step, m.constant(0))
    mended = m.make("Mul", plain, m.make("Div", x, m.make("Where", is_lost, one, step)))
    near = m.make("Where", is_lost, x, mended)
    is_near = m.make("Less", m.make("Abs", x), m.constant(0.5))
    return m.make("Where", is_near, near, plain)


def _unless_zero(m: _Maker, watched: str, result: str) -> str:
    """0 where ``watched`` is 0, whatever the result is there."""
    zero = m.constant(0)
    return m.make("Where", m.make("Equal", watched, zero), zero, result)


def _xlogy(m: _Maker) -> str:
    x, y = m.inputs
    return _unless_zero(m, x, m.make("Mul", x, m.make("Log", y)))


def _xlog1py(m: _Maker) -> str:
    x, y = m.inputs
    return _unless_zero(m, x, m.make("Mul", x, _log1p(m, y)))


def _xdivy(m: _Maker) -> str:
    x, y = m.inputs
    return _unless_zero(m, x, m.make("Div", x, y))


def _mul_no_nan(m: _Maker) -> str:
    x, y = m.inputs
    return _unless_zero(m, y, m.make("Mul", x, y))


def _l2_loss(m: _Maker) -> str:
    squares = m.make("ReduceSumSquare", *m.inputs, keepdims=0)
    return m.make("Mul", squares, m.constant(0.5))


def _rank(m: _Maker) -> str:
    return m.make("Cast", m.make("Size", m.make("Shape", *m.inputs)), to=m.dtype)


def _truncated_mod(m: _Maker) -> str:
    return m.make("Mod", *m.inputs, fmod=1)


def _same(m: _Maker) -> str:
    return m.inputs[0]


def _as(op: str) -> Callable[[_Maker], str]:
    return lambda m: m.make(op, *m.inputs)


_FORMULAS: dict[str, Callable[[_Maker], str]] = {
    "AccumulateNV2": _as("Sum"),
    "DeepCopy": _same,
    "Erfc": _erfc,
    "Expm1": _expm1,
    "Inv": _as("Reciprocal"),
    "L2Loss": _l2_loss,
    "Log1p": _log1p,
    "Mod": _truncated_mod,
    "MulNoNan": _mul_no_nan,
    "PreventGradient": _same,
    "Rank": _rank,
    "Snapshot": _same,
    "TruncateMod": _truncated_mod,
    "Xdivy": _xdivy,
    "Xlog1py": _xlog1py,
    "Xlogy": _xlogy,
}
