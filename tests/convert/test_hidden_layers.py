"""Layers that a layer of Keras 3 holds in a list or a dict: found, or refused with the reason.

Keras leaves their variables out of a ``tf.train.Checkpoint``, and its own restore says that
all is matched.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import IncompleteError
from tests.support.converting import feed, open_program

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

CODE = """
import keras


def stacked():
    cells = [keras.layers.LSTMCell(6), keras.layers.GRUCell(4)]
    return keras.Sequential([keras.Input((5, 8)), keras.layers.RNN(cells), keras.layers.Dense(2)])


class Block(keras.layers.Layer):
    def __init__(self, frozen=False):
        super().__init__()
        self.steps = [keras.layers.Dense(8, activation="relu") for _ in range(3)]
        self.named = {"left": keras.layers.Dense(3), "right": keras.layers.Dense(3)}
        self.last = keras.layers.Dense(2)
        if frozen:
            self.steps.append(keras.layers.BatchNormalization())

    def call(self, x):
        for one in self.steps:
            x = one(x)
        return self.last(self.named["left"](x) - self.named["right"](x))


def block(frozen=False):
    x = keras.Input((8,), name="x")
    return keras.Model(x, Block(frozen)(x))
"""
SHAPES = {"stacked": (5, 8), "block": (8,)}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lists") / "lists_of_layers.py"
    path.write_text(CODE)
    return path


def build(code: Path, name: str, **given: Any) -> Any:
    from ckpttool.conversion.worker.factory import load_function

    return load_function(f"{code}:{name}")(**given)


def trained(code: Path, name: str, **given: Any) -> Any:
    """A model after a step, so that its optimizer has a list of what it trains."""
    model = build(code, name, **given)
    model.compile("adam", "mse")
    data = np.random.default_rng(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of what it does itself
        model.fit(data.random((8, *SHAPES[name])), data.random((8, 2)), verbose=0)
    return model


@pytest.mark.parametrize("name", ["stacked", "block"])
@pytest.mark.parametrize("form", ["beside", "inside", "root"])
def test_the_optimizer_s_list_has_them(name: str, form: str, code: Path, tmp_path: Path) -> None:
    model = trained(code, name)
    prefix = str(tmp_path / "ckpt")
    if form == "root":
        tf.train.Checkpoint(model).write(prefix)
    elif form == "inside":
        tf.train.Checkpoint(model=model).write(prefix)
    else:
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(prefix)
    with open_program(prefix, model=f"{code}:{name}") as program:
        (function,) = program.functions
        feeds = feed(function)
        (x,) = feeds.values()
        (found,) = function.run(feeds).values()
        np.testing.assert_allclose(found, model(x), rtol=1e-5, atol=1e-6)
        (said,) = program.warnings
        assert "in the optimizer's list" in said


@pytest.mark.parametrize("name", ["stacked", "block"])
def test_a_checkpoint_without_them_is_refused(name: str, code: Path, tmp_path: Path) -> None:
    """TensorFlow's own check passes, and the model would stay random."""
    model, prefix = build(code, name), str(tmp_path / "ckpt")
    tf.train.Checkpoint(model=model).write(prefix)
    other = build(code, name)
    tf.train.Checkpoint(model=other).read(prefix).assert_existing_objects_matched()
    pairs = zip(model.get_weights(), other.get_weights(), strict=True)
    assert any((one != another).any() for one, another in pairs)
    with pytest.raises(IncompleteError) as caught, open_program(prefix, model=f"{code}:{name}"):
        pass
    assert caught.value.id == "model-unmatched"
    assert "in a list or a dict" in caught.value.why
    assert "save_weights" in caught.value.hint
    model.save_weights(tmp_path / "model.weights.h5")
    with open_program(tmp_path / "model.weights.h5", model=f"{code}:{name}") as program:
        (function,) = program.functions
        feeds = feed(function)
        (found,) = function.run(feeds).values()
        np.testing.assert_allclose(found, model(*feeds.values()), rtol=1e-5, atol=1e-6)


def test_what_is_not_trained_is_in_no_list(code: Path, tmp_path: Path) -> None:
    """The moving averages of a normalisation in a list are nowhere in the checkpoint."""
    model = trained(code, "block", frozen=True)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "ckpt"))
    from ckpttool.conversion.specs import NamedValue

    arguments = (NamedValue("frozen", True),)
    opened = open_program(tmp_path / "ckpt", model=f"{code}:block", model_args=arguments)
    with pytest.raises(IncompleteError) as caught, opened:
        pass
    assert "2 of its" in caught.value.why
    assert "moving_mean" in caught.value.why


def test_a_list_that_does_not_fit_is_not_taken(code: Path, tmp_path: Path) -> None:
    """Of another model whose list has the same shapes: what is matched by object differs."""
    model, other = trained(code, "block"), trained(code, "block")
    whole = tf.train.Checkpoint(model=build(code, "block"), optimizer=other.optimizer)
    whole.write(str(tmp_path / "ckpt"))
    assert [one.shape for one in model.trainable_variables] == [
        one.shape for one in other.trainable_variables
    ]
    opened = open_program(tmp_path / "ckpt", model=f"{code}:block")
    with pytest.raises(IncompleteError) as caught, opened:
        pass
    assert caught.value.id == "model-unmatched"
