"""An embedding recommender on parameter servers, exported while it trains.

Start it, and look at it from anywhere else::

    ckpttool serve-ps up --ps 2 --workers 2 --partition fixed \
        --train examples/recommender_tf2.py:train --export savedmodel --export-every 1m
    ckpttool serve-ps status ps-run

``build`` is the plain model: exports are made with it, so it knows nothing of a cluster.
``train`` gets a context: the strategy, a ``schedule`` that snapshots can hold, ``track``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras as keras

if TYPE_CHECKING:
    from ckpttool.ps.runtime.context import TrainContext

USERS, ITEMS, WIDTH = 2000, 5000, 16


def build() -> keras.Model:
    """Score pairs of a user and an item."""
    user = keras.Input([], dtype=tf.int32, name="user")
    item = keras.Input([], dtype=tf.int32, name="item")
    pair = keras.layers.concatenate(
        [
            keras.layers.Embedding(USERS, WIDTH, name="users")(user),
            keras.layers.Embedding(ITEMS, WIDTH, name="items")(item),
        ]
    )
    hidden = keras.layers.Dense(32, activation="relu", name="hidden")(pair)
    return keras.Model([user, item], keras.layers.Dense(1, name="score")(hidden))


def batches(_: tf.distribute.InputContext) -> tf.data.Dataset:
    """Made-up clicks: who likes what is a fixed function of both."""

    def batch(seed: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        user = tf.random.stateless_uniform([64], [seed, 1], 0, USERS, tf.int32)
        item = tf.random.stateless_uniform([64], [seed, 2], 0, ITEMS, tf.int32)
        return (user, item), tf.cast((user + item) % 2, tf.float32)[:, None]

    return tf.data.Dataset.counter().map(lambda number: batch(tf.cast(number, tf.int32)))


def train(ctx: TrainContext) -> None:
    """Train; ``RECOMMENDER_STEPS`` says how long."""
    with ctx.strategy.scope():
        model = build()
        optimizer = ctx.optimizer(keras.optimizers.Adagrad(0.1))  # travels as --push says
    ctx.track(model, optimizer=optimizer, serving=f"{os.path.abspath(__file__)}:build")
    ctx.restore()  # where an earlier run, or a parameter server that died, left off
    clicks = iter(
        ctx.coordinator.create_per_worker_dataset(
            lambda: ctx.strategy.distribute_datasets_from_function(batches)
        )
    )

    @tf.function
    def step(iterator: Iterator[tuple]) -> tf.Tensor:
        def on_worker(features: tuple[tf.Tensor, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(keras.losses.mse(labels, model(features, training=True)))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return ctx.strategy.run(on_worker, args=next(iterator))

    for number in range(int(os.environ.get("RECOMMENDER_STEPS", "100000"))):
        if ctx.should_stop:
            break
        loss = ctx.schedule(step, args=(clicks,))
        if number % 100 == 0:
            ctx.report(loss=float(loss.fetch()))
    ctx.join()
