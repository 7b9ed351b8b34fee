"""Inputs for the check: seeded, of a wanted batch size, in ranges that a graph allows.

An integer that picks a row of a table has to lie inside it, or TensorFlow refuses to run
and other runtimes read past the end; the frozen graph says how many rows there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpttool.convert.ports import Port
from ckpttool.convert.worker.graph_edit import operation, split
from ckpttool.convert.worker.program import Function
from ckpttool.errors import CkpttoolError
from ckpttool.formats.dtypes import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

__all__ = ["make_feeds"]

#: The size of dimensions, other than the first, that may be any.
_OPEN = 8
#: Integers that are no index that we know of: small enough to be one all the same.
_SMALL = 2
#: What hands integers on to a lookup.
_HANDS_ON = {"Identity", "Cast", "Reshape", "ExpandDims", "Squeeze", "StridedSlice", "Transpose"}
_LOOKUPS = {"GatherV2", "Gather", "ResourceGather", "OneHot"}
_STEPS = 16


def make_feeds(function: Function, batch: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs by name.

    Args:
        function: what they are for.
        batch: the first dimension of every input where it is open; of an input of unknown
            rank the only one.
        seed: the same seed gives the same inputs.
    """
    import numpy as np

    generator = np.random.default_rng([seed, batch])
    ports = function.signature.inputs
    whole = any(port.dtype.startswith(("int", "uint")) for port in ports)
    rows = _rows(function) if whole else {}
    return {port.name: _values(port, batch, rows.get(port.name), generator) for port in ports}


def _values(port: Port, batch: int, rows: int | None, generator: np.random.Generator) -> np.ndarray:
    import numpy as np

    shape = tuple(
        (batch if at == 0 else _OPEN) if size is None else size
        for at, size in enumerate((None,) if port.shape is None else port.shape)
    )
    if port.dtype == "string":
        words = [b"alpha", b"Beta", b"gamma delta", b""]
        return np.array(words, object)[generator.integers(0, len(words), shape)]
    if port.dtype == "bool":
        return np.asarray(generator.integers(0, 2, shape) > 0)
    kind = numpy_dtype(port.dtype)
    if port.dtype == "uint8" and rows is None:
        rows = 256  # a picture, most often
    if port.dtype.startswith(("int", "uint", "qint", "quint")):
        return generator.integers(0, rows or _SMALL, shape).astype(kind)
    if port.dtype.startswith("complex"):
        pair = generator.standard_normal((2, *shape))
        return np.asarray(pair[0] + 1j * pair[1]).astype(kind)
    return generator.standard_normal(shape).astype(kind)


def _rows(function: Function) -> dict[str, int]:
    """Input → the size of the smallest table in which it picks rows."""
    try:
        frozen = function.frozen()
    except CkpttoolError:
        return {}
    nodes = {node.name: node for node in frozen.graph.node}
    inputs = {operation(port.tensor): port.name for port in frozen.signature.inputs}
    found: dict[str, int] = {}
    for node in frozen.graph.node:
        if node.op not in _LOOKUPS:
            continue
        table, indices = (node.input[1], node.input[0]) if node.op == "OneHot" else node.input[:2]
        name = _input_of(indices, nodes, inputs)
        size = _size(table, nodes, is_depth=node.op == "OneHot")
        if name is not None and size:
            found[name] = min(size, found.get(name, size))
    return found


def _input_of(tensor: str, nodes: Mapping[str, Any], inputs: Mapping[str, str]) -> str | None:
    for _ in range(_STEPS):
        name = split(tensor)[0]
        if name in inputs:
            return inputs[name]
        node = nodes.get(name)
        if node is None or node.op not in _HANDS_ON:
            return None
        tensor = node.input[0]
    return None


def _size(tensor: str, nodes: Mapping[str, Any], *, is_depth: bool) -> int:
    """The rows of a table, or the depth that a constant says; 0 where neither is known."""
    node = nodes.get(split(tensor)[0])
    for _ in range(_STEPS):
        if node is None or node.op != "Identity":
            break
        node = nodes.get(split(node.input[0])[0])
    if node is None or node.op != "Const":
        return 0
    value = node.attr["value"].tensor
    if is_depth:
        return int(value.int_val[0]) if value.int_val else 0
    sizes = value.tensor_shape.dim
    return int(sizes[0].size) if sizes else 0
