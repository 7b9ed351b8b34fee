"""A model of TensorFlow 1 with its graph: matrix products, 25 MB each; imports TensorFlow."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["write"]

_WIDTH = 2500


def write(prefix: str, count: int) -> None:
    """Write a checkpoint of ``count`` products and its ``.meta``, from ``input`` to ``output``."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, _WIDTH], name="input")
        for number in range(count):
            with tf1.variable_scope(f"layer_{number}"):
                glorot = tf1.glorot_uniform_initializer(seed=number)
                kernel = tf1.get_variable("kernel", [_WIDTH, _WIDTH], initializer=glorot)
                bias = tf1.get_variable("bias", [_WIDTH], initializer=tf1.zeros_initializer())
                x = tf.nn.relu(tf.matmul(x, kernel) + bias)
        tf.identity(x, name="output")
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            tf1.train.Saver().save(session, prefix)
