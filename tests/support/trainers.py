"""Training functions for clusters of tests: what a user of ``serve-ps up --train`` writes."""

from __future__ import annotations

import os
import time
from typing import Any

import tensorflow as tf

ROWS, WIDTH = 1001, 8


class Tearing(tf.Module):  # type: ignore[misc]
    """Counters that every step bumps, first and last: a copy with a != c is torn."""

    def __init__(self, rows: int = ROWS) -> None:
        super().__init__("net")
        self.a = tf.Variable(0, dtype=tf.int64, name="a")
        self.emb = tf.Variable(tf.zeros([rows, WIDTH]), name="emb")
        self.w = tf.Variable(tf.ones([WIDTH, 2]), name="w")
        self.words = tf.Variable([b"one", b"", b"three"], name="words")
        self.half = tf.Variable(tf.ones([4], tf.bfloat16), name="half")
        self.c = tf.Variable(0, dtype=tf.int64, name="c")

    @tf.function  # type: ignore[untyped-decorator]
    def step(self) -> tf.Tensor:
        now = self.a.assign_add(1, read_value=True)
        rows = tf.nn.embedding_lookup(self.emb, tf.random.uniform([16], 0, ROWS, tf.int32))
        self.w.assign_add(tf.ones([WIDTH, 2]))
        with tf.control_dependencies([rows]):
            self.c.assign_add(1)
        return tf.cast(now, tf.float32)


def module(ctx: Any) -> None:
    """Until it is asked to stop."""
    with ctx.strategy.scope():
        net = Tearing()
    ctx.track(net, step=net.a)
    ctx.restore()
    while not ctx.should_stop:
        ctx.schedule(net.step)
        ctx.report(loss=0.5)


def wide(ctx: Any) -> None:
    """As ``module``, with a table of 48 MB: each of two parts is fetched in two pieces."""
    with ctx.strategy.scope():
        net = Tearing(1_500_000)
    ctx.track(net, step=net.a)
    ctx.restore()
    while not ctx.should_stop:
        ctx.schedule(net.step)


def still(ctx: Any) -> None:
    """Some steps, and then nothing changes any more."""
    with ctx.strategy.scope():
        net = Tearing()
        net.emb.assign(tf.reshape(tf.range(ROWS * WIDTH, dtype=tf.float32), [ROWS, WIDTH]))
    ctx.track(net, step=net.a)
    ctx.restore()
    for _ in range(20):
        ctx.schedule(net.step)
    ctx.join()


def table(ctx: Any) -> None:
    """A table in uneven parts, trained with rows that are known; restored on a second run."""
    made = ctx.table("emb", (50, 3), tf.zeros, dtype=tf.float32)
    step = None
    with ctx.strategy.scope():
        step = tf.Variable(0, dtype=tf.int64, name="step")

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("net")
            self.emb = made

    net = Net()
    ctx.track(net, step=step)
    if ctx.restore() is None:

        @tf.function  # type: ignore[untyped-decorator]
        def one() -> None:
            ids = tf.random.uniform([64], 0, 50, tf.int32)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(made.lookup(ids))
            for part, gradient in zip(made.parts, tape.gradient(loss, made.parts), strict=True):
                part.scatter_add(gradient)
            step.assign_add(1)

        for _ in range(30):
            ctx.schedule(one)
        ctx.join()
    total = sum(float(tf.reduce_sum(part.read_value())) for part in made.parts)
    ctx.report(total=total, parts=len(made.parts), first=float(made.parts[0].shape[0]))


def keras_model() -> Any:
    """Plain, as exports build it."""
    import tf_keras

    return tf_keras.Sequential(
        [
            tf_keras.layers.Embedding(ROWS, WIDTH, input_length=3),
            tf_keras.layers.Flatten(),
            tf_keras.layers.Dense(1),
        ]
    )


def fit(ctx: Any) -> None:
    """``tf_keras``' own loop, with a partitioned embedding where one was asked for."""
    import tf_keras

    def make(_: Any) -> Any:
        x = tf.random.stateless_uniform([256, 3], (1, 2), 0, ROWS, tf.int64)
        y = tf.ones([256, 1])
        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)

    with ctx.strategy.scope():
        model = keras_model()
        model.compile(tf_keras.optimizers.Adagrad(0.1), "mse")
        model.build([None, 3])
    ctx.track(model, optimizer=model.optimizer, serving=f"{__file__}:keras_model")
    ctx.restore()
    data = tf_keras.utils.experimental.DatasetCreator(make)
    history = model.fit(data, epochs=2, steps_per_epoch=20, verbose=0)
    ctx.report(loss=history.history["loss"][-1])


def legacy(ctx: Any) -> None:
    """A legacy optimizer, whose slots no object has as a child; the second run makes no step."""
    import tf_keras

    with ctx.strategy.scope():
        model = keras_model()
        model.build([None, 3])
        optimizer = tf_keras.optimizers.legacy.Adam(0.01)
    ctx.track(model, optimizer=optimizer)
    if ctx.restore() is not None:
        return

    @tf.function  # type: ignore[untyped-decorator]
    def one() -> None:
        def replica() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(tf.constant([[0, 500, 1000]])) - 1.0))
            weights = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

        ctx.strategy.run(replica)

    for _ in range(10):
        ctx.schedule(one)
    ctx.join()


def keras3(ctx: Any) -> None:
    """Keras 3 in a loop of one's own."""
    import keras

    with ctx.strategy.scope():
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(2, name="d")])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
    ctx.track(model, optimizer=optimizer)

    def replica() -> tf.Tensor:
        x = tf.random.uniform([8, 4])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - 1.0))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> tf.Tensor:
        return ctx.strategy.run(replica)

    for _ in range(20):
        ctx.schedule(step)
    ctx.join()


def fails(ctx: Any) -> None:
    """A step that fails while a snapshot may wait for it."""
    with ctx.strategy.scope():
        net = Tearing()
    ctx.track(net, step=net.a)

    @tf.function  # type: ignore[untyped-decorator]
    def bad() -> None:
        tf.debugging.assert_equal(1, tf.cast(net.a + 2, tf.int32), message="as it was asked to")

    time.sleep(float(os.environ.get("CKPTTOOL_TEST_SLEEP", "0")))
    ctx.schedule(bad)
    ctx.join()


def pushed(ctx: Any) -> None:
    """Gradients that are too small for their block's scale, a hundred of each."""
    with ctx.strategy.scope():
        net = tf.Module("net")
        net.dense = tf.Variable(tf.zeros([2]), name="dense")
        net.table = tf.Variable(tf.zeros([5, 2]), name="table")
        net.step = tf.Variable(0, dtype=tf.int64, name="step")
    ctx.track(net, step=net.step)

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> None:
        dense = ctx.link.push(tf.constant([127.0, 0.1]), net.dense)
        rows = ctx.link.push_rows(tf.constant([[127.0, 0.1]]), tf.constant([3]), net.table)
        net.dense.assign_add(dense)
        net.table.scatter_add(rows)
        net.step.assign_add(1)

    for _ in range(100):
        ctx.schedule(step)
    ctx.join()


def fit_pushed(ctx: Any) -> None:
    """``tf_keras``' own loop, whose gradients travel as ``--push`` says: one line more."""
    import tf_keras

    def make(_: Any) -> Any:
        x = tf.random.stateless_uniform([256, 3], (1, 2), 0, ROWS, tf.int64)
        return tf.data.Dataset.from_tensor_slices((x, tf.ones([256, 1]))).repeat().batch(16)

    with ctx.strategy.scope():
        model = keras_model()
        model.compile(ctx.optimizer(tf_keras.optimizers.Adagrad(0.1)), "mse")
        model.build([None, 3])
    ctx.track(model, optimizer=model.optimizer, serving=f"{__file__}:keras_model")
    ctx.restore()
    data = tf_keras.utils.experimental.DatasetCreator(make)
    first = model.fit(data, epochs=1, steps_per_epoch=5, verbose=0).history["loss"][0]
    epochs = int(os.environ.get("CKPTTOOL_TEST_EPOCHS", "3"))
    last = model.fit(data, epochs=epochs, steps_per_epoch=40, verbose=0).history["loss"][-1]
    assert last < first / 2, (first, last)
