"""Makes a large MetaGraph: one block of a model, built by TensorFlow, over and over.

Run as a child by `benchmarks.data`. The block is what a TF 1.x layer makes: variables with
initialisers, a matrix product, batch normalisation, dropout, a cast; nodes carry devices and
output shapes as a distributed job's do, so a node has some 330 bytes, as in large real ones.
"""

from __future__ import annotations

from typing import Any

__all__ = ["write_metagraph"]

#: Width of the layers.
_UNITS = 64


def write_metagraph(path: str, nodes: int) -> None:
    """A ``.meta`` of at least so many nodes, which TensorFlow can import."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    meta, output = _block(tf)
    meta.collection_def.clear()  # it names variables without their scope
    graph = meta.graph_def
    block = type(graph)()
    block.CopyFrom(graph)
    del graph.node[:]
    start = graph.node.add()
    start.CopyFrom(block.node[0])
    before, number = start.name, 0
    while len(graph.node) < nodes:
        stack, layer = divmod(number, 100)
        scope = f"training/network/encoder/stack_{stack:04d}/transformer_layer_{layer:02d}"
        for original in block.node[1:]:
            node = graph.node.add()
            node.CopyFrom(original)
            node.name = f"{scope}/{original.name}"
            del node.input[:]
            node.input.extend(_moved(text, scope, before, start.name) for text in original.input)
            if "_class" in node.attr:
                names = node.attr["_class"].list.s
                names[:] = [f"loc:@{scope}/".encode() + name[5:] for name in names]
        before, number = f"{scope}/{output}", number + 1
    with open(path, "wb") as file:
        file.write(meta.SerializeToString())


def _moved(text: str, scope: str, before: str, fed: str) -> str:
    """An input of a block's node, in the scope of one of its copies."""
    if text == fed:
        return before
    return f"^{scope}/{text[1:]}" if text.startswith("^") else f"{scope}/{text}"


def _block(tf: Any) -> tuple[Any, str]:
    """A MetaGraph whose first node is a placeholder, and the name of its output."""
    tf1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default(), graph.device("/job:worker/replica:0/task:0/device:CPU:0"):
        fed = tf1.placeholder(tf.float32, [None, _UNITS], name="input")
        with tf1.variable_scope("dense", use_resource=False):
            kernel = tf1.get_variable("kernel", [_UNITS, _UNITS])
            bias = tf1.get_variable("bias", [_UNITS], initializer=tf1.zeros_initializer())
            hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(fed, kernel), bias))
        with tf1.variable_scope("norm", use_resource=False):
            mean, variance = tf.nn.moments(hidden, [0])
            scale = tf1.get_variable("gamma", [_UNITS], initializer=tf1.ones_initializer())
            hidden = tf.nn.batch_normalization(hidden, mean, variance, None, scale, 1e-3)
        output = tf.nn.dropout(hidden, rate=0.1) + fed
        return tf1.train.export_meta_graph(), output.op.name
