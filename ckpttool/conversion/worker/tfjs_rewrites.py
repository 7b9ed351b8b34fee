"""Operations that TensorFlow.js does not have, made of those that it has.

Only where the result is the same number, up to rounding; whatever is left is refused by
``tfjs_graph.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["rewrite"]


def rewrite(nodes: Any) -> None:  # noqa: ANN401
    """Rewrite the operations of a graph or a function in their places."""
    for node in list(nodes):
        if node.op in _REWRITES:
            _REWRITES[node.op](node, nodes)


def _erfc(node: Any, nodes: Any) -> None:  # noqa: ANN401
    """Is 1 - erf(x), which exact GELU is made of."""
    dtype = node.attr["T"].type
    erf = _added(nodes, f"{node.name}/erf", "Erf", [node.input[0]])
    erf.attr["T"].type = dtype
    node.op = "Sub"
    node.input[0] = _one(nodes, node.name, dtype)
    node.input.insert(1, erf.name)


def _softsign(node: Any, nodes: Any) -> None:  # noqa: ANN401
    """Is x / (1 + abs(x))."""
    dtype = node.attr["T"].type
    size = _added(nodes, f"{node.name}/abs", "Abs", [node.input[0]])
    below = _added(nodes, f"{node.name}/below", "AddV2", [_one(nodes, node.name, dtype), size.name])
    for one in (size, below):
        one.attr["T"].type = dtype
    node.op = "RealDiv"
    node.input.insert(1, below.name)


def _batch_matmul(node: Any, nodes: Any) -> None:  # noqa: ANN401, ARG001
    """Version 3 says three dtypes where version 2 says one; all are one in TensorFlow.js."""
    node.op = "BatchMatMulV2"
    node.attr["T"].type = node.attr["Tout"].type
    for name in ("Ta", "Tb", "Tout"):
        node.attr.pop(name, None)


def _added(nodes: Any, name: str, op: str, inputs: list[str]) -> Any:  # noqa: ANN401
    node = nodes.add()
    node.name, node.op = name, op
    node.input.extend(inputs)
    return node


def _one(nodes: Any, name: str, dtype: int) -> str:  # noqa: ANN401
    node = _added(nodes, f"{name}/one", "Const", [])
    node.attr["dtype"].type = dtype
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(1, dtype))
    return str(node.name)


_REWRITES: dict[str, Callable[[Any, Any], None]] = {
    "BatchMatMulV3": _batch_matmul,
    "Erfc": _erfc,
    "Softsign": _softsign,
}
