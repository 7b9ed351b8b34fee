"""Small models for the tests of conversion, written by TensorFlow in the test's process.

``write_models(folder)`` writes all of them, with the file ``build.py`` that a person who
trained them would have; a session fixture calls it once.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["BUILD", "load_build", "write_models"]

#: The code of the person who trained the models, for ``--model``.
BUILD = '''
import os

import tensorflow as tf


def subclass(units=16):
    """Keras 3, without a build() of its own: it has no variables before its first call."""
    import keras

    class Subclass(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(units, activation="gelu")
            self.head = keras.layers.Dense(4)

        def call(self, x):
            hidden = self.hidden(x)
            return {"logits": self.head(hidden), "features": hidden}

    return Subclass()


def recurrent():
    import keras

    return keras.Sequential(
        [
            keras.Input((5, 8)),
            keras.layers.LSTM(6, return_sequences=True),
            keras.layers.Dropout(0.5),
            keras.layers.GRU(4),
            keras.layers.Dense(3),
        ]
    )


class Embedding(tf.Module):
    """Two signatures, and integers that pick rows."""

    def __init__(self):
        self.table = tf.Variable(tf.random.stateless_normal([30, 4], [1, 2]), name="table")
        self.weights = tf.Variable(tf.random.stateless_normal([4, 2], [3, 4]), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.int64, name="ids")])
    def __call__(self, ids):
        return {"score": tf.matmul(tf.reduce_mean(tf.gather(self.table, ids), 1), self.weights)}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="vector")])
    def head(self, vector):
        return tf.matmul(vector, self.weights)


class Words(tf.Module):
    """A table of strings, which only a SavedModel can keep."""

    def __init__(self):
        keys = tf.constant(["alpha", "beta"])
        values = tf.constant([1, 2], tf.int64)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, values), 0
        )
        self.weights = tf.Variable(tf.random.stateless_normal([3, 2], [5, 6]), name="weights")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def __call__(self, words):
        return tf.gather(self.weights, self.table.lookup(tf.strings.lower(words)))


class Narrow(tf.Module):
    """bfloat16, and a scalar."""

    def __init__(self):
        self.weights = tf.Variable(
            tf.cast(tf.random.stateless_normal([4, 3], [7, 8]), tf.bfloat16), name="weights"
        )
        self.scale = tf.Variable(tf.constant(0.5, tf.bfloat16), name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.bfloat16, name="x")])
    def __call__(self, x):
        return tf.matmul(x, self.weights) * self.scale


class Counter(tf.Module):
    """It counts how often it is called: no constant can do that."""

    def __init__(self):
        self.count = tf.Variable(0.0, name="count")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def __call__(self, x):
        return x + self.count.assign_add(1.0)


def keras2():
    import tf_keras

    return tf_keras.Sequential(
        [tf_keras.layers.Dense(7, activation="relu", input_shape=(5,)), tf_keras.layers.Dense(2)]
    )


def keras3_of_keras2():
    """What a person may think of as the same model."""
    import keras

    return keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(7, activation="relu"), keras.layers.Dense(2)]
    )


def nothing():
    pass


def broken():
    raise RuntimeError("no data set here")


def aborting():
    os.write(2, b"the last words\\n")
    os.abort()


def hanging():
    import time

    time.sleep(3600)
'''


def load_build(folder: Path) -> Any:
    """The module ``build.py`` of a folder that `write_models` made."""
    spec = importlib.util.spec_from_file_location("tf_models_build", folder / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_models(folder: Path) -> None:
    """Write every model into a folder of its own in ``folder``."""
    (folder / "build.py").write_text(BUILD)
    for name, use_resource in (("mlp-ref", False), ("mlp-resource", True)):
        _write_mlp(folder / name, use_resource=use_resource)
    _write_conditional(folder / "conditional")
    _write_partitioned(folder / "partitioned")
    _write_loop(folder / "loop", functional=False)
    _write_loop(folder / "loop-2", functional=True)
    _write_tables(folder / "tables")
    _write_keras3(folder)
    _write_modules(folder)


def _write_mlp(folder: Path, *, use_resource: bool) -> None:
    """The 784×200 matrix product with the placeholder ``input``, after a step of Adam."""
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    generator = np.random.default_rng(0)
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [None, 784], name="input")
        labels = tf1.placeholder(tf.float32, [None, 200], name="labels")
        initial = generator.normal(0, 0.05, (784, 200)).astype(np.float32)
        weights = tf1.get_variable("weights", initializer=initial, use_resource=use_resource)
        biases = tf1.get_variable(
            "biases", initializer=np.full(200, 0.1, np.float32), use_resource=use_resource
        )
        output = tf.nn.relu(tf.matmul(x, weights) + biases, name="output")
        loss = tf.reduce_mean((output - labels) ** 2, name="loss")
        step = tf1.train.AdamOptimizer().minimize(loss)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            feeds = {x: generator.random((8, 784)), labels: generator.random((8, 200))}
            session.run(step, feeds)
            tf1.train.Saver().save(session, str(folder / "model.ckpt"), global_step=3)
        tf1.train.write_graph(graph, str(folder), "graph.pbtxt")


def _write_conditional(folder: Path) -> None:
    """Dropout by a rate that is fed, and statistics by a switch that is fed."""
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    generator = np.random.default_rng(1)
    tf1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x = tf1.placeholder(tf.float32, [None, 6], name="x")
            training = tf1.placeholder(tf.bool, [], name="is_training")
            keep = tf1.placeholder_with_default(0.5, [], name="keep_prob")
            weights = tf1.get_variable(
                "dense/kernel", initializer=generator.normal(size=(6, 3)).astype(np.float32)
            )
            mean = tf1.get_variable(
                "norm/mean", initializer=generator.normal(size=3).astype(np.float32)
            )
            variance = tf1.get_variable(
                "norm/variance", initializer=generator.random(3).astype(np.float32) + 0.5
            )
            logits = tf.matmul(tf1.nn.dropout(x, rate=1 - keep, name="dropout"), weights)
            batch_mean, batch_variance = tf1.cond(
                training,
                lambda: tuple(tf1.nn.moments(logits, [0])),
                lambda: (tf.identity(mean), tf.identity(variance)),
            )
            normal = tf.nn.batch_normalization(logits, batch_mean, batch_variance, None, None, 1e-3)
            tf.nn.softmax(normal, name="probs")
            with tf1.Session() as session:
                session.run(tf1.global_variables_initializer())
                tf1.train.Saver().save(session, str(folder / "model.ckpt"))
    finally:
        tf1.enable_control_flow_v2()


def _write_partitioned(folder: Path) -> None:
    """Variables in two parts; beside the ``.meta`` a graph in which no saver says how."""
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    generator = np.random.default_rng(2)
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [None, 10], name="x")
        with tf1.variable_scope("net", partitioner=tf1.fixed_size_partitioner(2, axis=1)):
            wide = tf1.get_variable("wide", [10, 7])
        with tf1.variable_scope("net", partitioner=tf1.fixed_size_partitioner(3)):
            tall = tf1.get_variable("tall", [7, 2])
        tf.matmul(tf.matmul(x, wide), tall, name="y")
        tf1.train.write_graph(graph, str(folder), "no-saver.pb", as_text=False)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            for name, shape in (("net/wide", (10, 7)), ("net/tall", (7, 2))):
                _fill(session, name, generator.normal(size=shape).astype(np.float32))
            tf1.train.Saver().save(session, str(folder / "model.ckpt"))


def _fill(session: Any, name: str, whole: Any) -> None:
    """Give the parts of a partitioned variable their places of an array."""
    import tensorflow as tf

    for part in tf.compat.v1.global_variables():
        info = part._get_save_slice_info()
        if info.full_name == name:
            place = tuple(
                slice(start, start + size)
                for start, size in zip(info.var_offset, info.var_shape, strict=True)
            )
            part.load(whole[place], session)


def _write_loop(folder: Path, *, functional: bool) -> None:
    """A loop that reads a variable inside.

    That of TensorFlow 1 is Enter, Merge, Switch and Exit, the functional one a While.
    """
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    if not functional:
        tf1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            initial = np.random.default_rng(3).normal(0, 0.5, (4, 4)).astype(np.float32)
            weights = tf1.get_variable("weights", initializer=initial, use_resource=True)
            _, result = tf1.while_loop(
                lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, weights))), (0, x)
            )
            tf.identity(result, name="result")
            with tf1.Session() as session:
                session.run(tf1.global_variables_initializer())
                tf1.train.Saver().save(session, str(folder / "model.ckpt"))
    finally:
        tf1.enable_control_flow_v2()


def _write_tables(folder: Path) -> None:
    """A table of strings in front of a variable, in TensorFlow 1's way."""
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        words = tf1.placeholder(tf.string, [None], name="words")
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(["alpha", "Beta"]), tf.constant([1, 2], tf.int64)
            ),
            0,
        )
        initial = np.random.default_rng(4).normal(size=(3, 2)).astype(np.float32)
        weights = tf1.get_variable("weights", initializer=initial)
        tf.gather(weights, table.lookup(words), name="rows")
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.tables_initializer()])
            tf1.train.Saver().save(session, str(folder / "model.ckpt"))


def _write_keras3(folder: Path) -> None:
    import keras
    import numpy as np
    import tensorflow as tf

    build = load_build(folder)
    keras.utils.set_random_seed(5)
    subclass = build.subclass()
    subclass(np.zeros((1, 12), np.float32))
    tf.train.Checkpoint(model=subclass).write(str(folder / "subclass" / "ckpt"))
    recurrent = build.recurrent()
    recurrent.compile("adam", "mse")
    generator = np.random.default_rng(6)
    recurrent.fit(generator.random((8, 5, 8)), generator.random((8, 3)), verbose=0)
    whole = tf.train.Checkpoint(model=recurrent, optimizer=recurrent.optimizer)
    whole.write(str(folder / "recurrent" / "ckpt"))
    recurrent.save(folder / "recurrent.keras")
    recurrent.save_weights(folder / "recurrent.weights.h5")


def _write_modules(folder: Path) -> None:
    import tensorflow as tf

    build = load_build(folder)
    tf.train.Checkpoint(net=build.Embedding()).write(str(folder / "embedding" / "ckpt"))
    tf.train.Checkpoint(build.Words()).write(str(folder / "words" / "ckpt"))
    tf.train.Checkpoint(build.Narrow()).write(str(folder / "narrow" / "ckpt"))
    tf.train.Checkpoint(build.Counter()).write(str(folder / "counter" / "ckpt"))
