"""Models for the table of conversions that the other tests do not need.

As in ``tf_models.py``: written by TensorFlow in this process, with the code that a person
who trained them would have, ``table.py``.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

__all__ = ["write_table_models"]

BUILD = '''
import tensorflow as tf


def cnn():
    """A picture: convolutions, batch normalisation, pooling."""
    import keras

    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Conv2D(8, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
            keras.layers.DepthwiseConv2D(3, strides=2),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def unrolled():
    """Recurrence of a fixed length, written out: no loop is left in the graph."""
    import keras

    return keras.Sequential(
        [
            keras.Input((5, 8)),
            keras.layers.LSTM(6, return_sequences=True, unroll=True),
            keras.layers.GRU(4, unroll=True),
            keras.layers.Dense(3),
        ]
    )


class ControlFlow(tf.Module):
    """TensorFlow 2: a loop as often as the data say, and a condition on them."""

    def __init__(self):
        self.weights = tf.Variable(tf.random.stateless_normal([4, 4], [1, 2], stddev=0.5))

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        state = x
        steps = tf.constant(0)
        while steps < 3:
            state = tf.tanh(tf.matmul(state, self.weights))
            steps += 1
        if tf.reduce_sum(x) > 0.0:
            state = state + 1.0
        else:
            state = state * 2.0
        return {"y": state}


class Brain(tf.Module):
    """bfloat16, as a TPU trains it."""

    def __init__(self):
        normal = tf.random.stateless_normal
        self.one = tf.Variable(tf.cast(normal([8, 16], [3, 4]), tf.bfloat16), name="one")
        self.two = tf.Variable(tf.cast(normal([16, 4], [5, 6]), tf.bfloat16), name="two")

    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
    def __call__(self, x):
        hidden = tf.nn.relu(tf.matmul(tf.cast(x, tf.bfloat16), self.one))
        return tf.cast(tf.matmul(hidden, self.two), tf.float32)


class Dice(tf.Module):
    """Other values each time: nothing can be compared with it."""

    def __init__(self):
        self.scale = tf.Variable(2.0, name="scale")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        return x * self.scale + tf.random.uniform([4])
'''


def write_table_models(folder: Path) -> None:
    """Write every model into a folder of its own in ``folder``."""
    import numpy as np
    import tensorflow as tf

    (folder / "table.py").write_text(BUILD)
    build = _load(folder / "table.py")
    generator = np.random.default_rng(7)
    for name, shape, classes in (("cnn", (16, 16, 3), 10), ("unrolled", (5, 8), 3)):
        tf.keras.utils.set_random_seed(8)
        model = getattr(build, name)()
        model.compile("adam", "mse")
        data = generator.random((16, *shape)), generator.random((16, classes))
        model.fit(*data, epochs=2, verbose=0)
        whole = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        whole.write(str(folder / name / "ckpt"))
    for name in ("ControlFlow", "Brain", "Dice"):
        module = getattr(build, name)()
        tf.train.Checkpoint(model=module).write(str(folder / name.lower() / "ckpt"))


def _load(path: Path) -> Any:
    spec = spec_from_file_location("table_models_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
