"""Inputs that may have any number of dimensions: ONNX has to be told, and they get one.

tf2onnx takes such an input for a scalar, and folds what asks for its shape accordingly.
"""

from __future__ import annotations

from dataclasses import replace

from ckpttool.conversion.ports import Port
from ckpttool.conversion.worker.graph_edit import operation
from ckpttool.conversion.worker.program import Frozen
from ckpttool.errors import UsageError

__all__ = ["with_ranks"]


def with_ranks(frozen: Frozen) -> Frozen:
    """The function with inputs of one open dimension where any number was possible.

    The same object where none is; else its graph is changed in place.

    Raises:
        UsageError: id ``onnx-rank``: it cannot be computed with that.
    """
    import tensorflow as tf

    signature = frozen.signature
    unknown = [port for port in signature.inputs if port.shape is None]
    if not unknown:
        return frozen
    nodes = {node.name: node for node in frozen.graph.node}
    for port in unknown:
        shape = nodes[operation(port.tensor)].attr["shape"].shape
        shape.Clear()
        shape.dim.add().size = -1
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(frozen.graph, name="")
    except ValueError as error:
        names = ", ".join(port.name for port in unknown)
        raise UsageError(
            f"the number of dimensions is not known of {names}",
            why=f"ONNX has to be told, and it is not one: {' '.join(str(error).split())[:200]}",
            hint=f"say the shape: --input {unknown[0].name}:{unknown[0].dtype}[?,…]",
            id="onnx-rank",
        ) from None

    def known(port: Port) -> Port:
        shape = graph.get_tensor_by_name(port.tensor).shape
        if port.shape is not None or shape.rank is None:
            return port
        return replace(port, shape=tuple(shape.as_list()))

    inputs, outputs = tuple(map(known, signature.inputs)), tuple(map(known, signature.outputs))
    return replace(frozen, signature=replace(signature, inputs=inputs, outputs=outputs))
