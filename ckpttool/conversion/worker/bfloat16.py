"""bfloat16 → float32 in a frozen graph, for a target that has no bfloat16.

float32 holds every bfloat16 exactly, so weights stay what they are; what is computed is
rounded less than the source rounds it, which the check measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.ports import Port
from ckpttool.conversion.worker.program import Frozen, Weight
from ckpttool.formats.dtypes import BY_NAME

if TYPE_CHECKING:
    import numpy as np

__all__ = ["widened"]

_NARROW, _WIDE = BY_NAME["bfloat16"].number, BY_NAME["float32"].number


@dataclass(frozen=True, slots=True)
class _Widened:
    """A bfloat16 weight as float32."""

    narrow: Weight
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.narrow.shape

    @property
    def nbytes(self) -> int:
        return 2 * self.narrow.nbytes

    def chunks(self) -> Iterator[bytes]:
        """The upper half of a float32 is a bfloat16."""
        import numpy as np

        for piece in self.narrow.chunks():
            upper = np.frombuffer(piece, "<u2").astype("<u4") << np.uint32(16)
            yield upper.tobytes()

    def array(self) -> np.ndarray:
        import numpy as np

        return self.narrow.array().astype(np.float32)


def widened(frozen: Frozen) -> Frozen:
    """The function with float32 where it has bfloat16; the same object where it has none.

    The graph of a function that has some is changed in place.
    """
    graph = frozen.graph
    nodes = [*graph.node, *(node for one in graph.library.function for node in one.node_def)]
    found = [_widen_node(node) for node in nodes]
    for function in graph.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            if argument.type == _NARROW:
                argument.type = _WIDE
    if not any(found):
        return frozen
    signature = frozen.signature
    return Frozen(
        graph,
        replace(
            signature,
            inputs=tuple(map(_port, signature.inputs)),
            outputs=tuple(map(_port, signature.outputs)),
        ),
        {name: _weight(one) for name, one in frozen.weights.items()},
    )


def _widen_node(node: Any) -> bool:  # noqa: ANN401
    """Widen what a node says of types and values; whether there was anything."""
    found = False
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "type" and value.type == _NARROW:
            value.type = _WIDE
            found = True
        elif kind == "list" and _NARROW in value.list.type:
            types = [_WIDE if one == _NARROW else one for one in value.list.type]
            del value.list.type[:]
            value.list.type.extend(types)
            found = True
        elif kind == "tensor" and value.tensor.dtype == _NARROW:
            value.tensor.CopyFrom(_tensor(value.tensor))
            found = True
    return found


def _tensor(tensor: Any) -> Any:  # noqa: ANN401
    import numpy as np
    import tensorflow as tf

    return tf.make_tensor_proto(tf.make_ndarray(tensor).astype(np.float32))


def _port(port: Port) -> Port:
    return replace(port, dtype="float32") if port.dtype == "bfloat16" else port


def _weight(weight: Weight) -> Weight:
    return _Widened(weight) if weight.dtype == "bfloat16" else weight
