"""``edit`` of checkpoints of Keras 2: both kinds of its optimizers, read back by tf_keras."""

from __future__ import annotations

import numpy as np
import pytest

from ckpttool.errors import RefusedError
from tests.support.editing import run, values


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def tf_keras(tf):
    return pytest.importorskip("tf_keras")


def network(tf_keras, first="first"):
    given = tf_keras.Input((5,))
    x = tf_keras.layers.Dense(4, activation="relu", name=first)(given)
    return tf_keras.Model(given, tf_keras.layers.Dense(2, name="head")(x))


def data():
    dice = np.random.default_rng(1)
    return dice.normal(size=(16, 5)).astype("f4"), dice.normal(size=(16, 2)).astype("f4")


@pytest.fixture(scope="module", params=["new", "legacy"])
def trained(request, tf, tf_keras, tmp_path_factory):
    """A trained model and the prefix of its checkpoint; slots by number, or by variable."""
    model = network(tf_keras)
    optimizers = tf_keras.optimizers
    adam = optimizers.Adam(0.1) if request.param == "new" else optimizers.legacy.Adam(0.1)
    model.compile(adam, "mse")
    model.fit(*data(), epochs=3, verbose=0)
    prefix = str(tmp_path_factory.mktemp("keras2") / "trained")
    tf.train.Checkpoint(net=model, opt=model.optimizer).write(prefix)
    return request.param, model, prefix


def same_outputs(one, other) -> None:
    np.testing.assert_array_equal(
        one.predict(data()[0], verbose=0), other.predict(data()[0], verbose=0)
    )


def test_stripped(tf, tf_keras, trained, tmp_path):
    _, model, prefix = trained
    run(prefix, tmp_path / "d", strip_optimizer=True)
    assert len(values(tmp_path / "d")) == 4
    other = network(tf_keras)
    tf.train.Checkpoint(net=other).read(str(tmp_path / "d")).assert_consumed()
    same_outputs(model, other)


def test_stripped_weights_are_loaded_by_keras_itself(tf_keras, trained, tmp_path):
    _, model, _ = trained
    model.save_weights(str(tmp_path / "s"))
    run(tmp_path / "s", tmp_path / "d", strip_optimizer=True)
    other = network(tf_keras)
    other.load_weights(str(tmp_path / "d")).assert_consumed()
    same_outputs(model, other)


def test_renamed_with_the_optimizer(tf, tf_keras, trained, tmp_path):
    """Attributes of the checkpoint get other names; the optimizer's state stays whole."""
    _, model, prefix = trained
    run(prefix, tmp_path / "d", renames=("s#^net/#model/#", "s#^opt/#optimizer/#"))
    other = network(tf_keras)
    other.compile(type(model.optimizer)(), "mse")
    other.fit(*data(), verbose=0)
    checkpoint = tf.train.Checkpoint(model=other, optimizer=other.optimizer)
    checkpoint.read(str(tmp_path / "d")).assert_consumed()
    same_outputs(model, other)
    for one, two in zip(state(other), state(model), strict=True):
        np.testing.assert_array_equal(one, two)


def state(model) -> list[np.ndarray]:
    """Every variable of a model's optimizer."""
    variables = model.optimizer.variables
    return [one.numpy() for one in (variables() if callable(variables) else variables)]


def test_a_layer_that_goes(tf, tf_keras, trained, tmp_path):
    """Slots by variable go with it; slots by number would belong to others then."""
    kind, model, prefix = trained
    if kind == "new":
        with pytest.raises(RefusedError) as caught:
            run(prefix, tmp_path / "d", drop=("head/*",))
        assert caught.value.id == "optimizer-by-number"
        return
    run(prefix, tmp_path / "d", drop=("head/*",))
    found = values(tmp_path / "d")
    assert not any("with_weights-1" in key for key in found)
    assert sum("/.OPTIMIZER_SLOT/" in key for key in found) == 4
    given = tf_keras.Input((5,))
    first = tf_keras.Model(given, tf_keras.layers.Dense(4, name="first")(given))
    tf.train.Checkpoint(net=first).read(str(tmp_path / "d")).expect_partial()
    np.testing.assert_array_equal(first.layers[1].kernel, model.layers[1].kernel)
