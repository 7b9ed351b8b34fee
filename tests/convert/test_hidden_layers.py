"""Layers that a layer of Keras 3 holds in a list or a dict: found, or refused with the reason.

Keras leaves their variables out of a ``tf.train.Checkpoint``, and its own restore says that
all is matched.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import IncompleteError, UsageError
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


def two_of_one_kind(code: Path, prefix: str) -> tuple[Any, Any]:
    """A student and a teacher, both trained, all of whose layers but one are in lists."""
    student, teacher = trained(code, "block"), trained(code, "block")
    for one in teacher.trainable_variables:
        one.assign(one + 1.0)
    tf.train.Checkpoint(student=student, teacher=teacher).write(prefix)
    return student, teacher


@pytest.mark.parametrize("root", ["student", "teacher"])
def test_the_list_is_that_of_the_model_that_was_asked_for(
    root: str, code: Path, tmp_path: Path
) -> None:
    models = dict(
        zip(("student", "teacher"), two_of_one_kind(code, str(tmp_path / "ckpt")), strict=True)
    )
    with open_program(tmp_path / "ckpt", model=f"{code}:block", root=root) as program:
        (function,) = program.functions
        feeds = feed(function)
        (found,) = function.run(feeds).values()
        np.testing.assert_allclose(found, models[root](*feeds.values()), rtol=1e-5, atol=1e-5)


ALL_IN_A_LIST = """
import keras


class Steps(keras.Model):
    def __init__(self):
        super().__init__()
        self.steps = [keras.layers.Dense(8), keras.layers.Dense(2)]

    def call(self, x):
        for one in self.steps:
            x = one(x)
        return x


def steps():
    model = Steps()
    model.build((None, 8))
    return model
"""
SHAPES["steps"] = (8,)


def test_of_two_lists_that_fit_none_is_taken(tmp_path: Path) -> None:
    """Nothing of either model is met by object, so nothing tells which list is meant."""
    code = tmp_path / "steps.py"
    code.write_text(ALL_IN_A_LIST)
    student, teacher = trained(code, "steps"), trained(code, "steps")
    tf.train.Checkpoint(student=student, teacher=teacher).write(str(tmp_path / "ckpt"))
    given = {"model": f"{code}:steps", "inputs": ["x:float32[?,8]"]}
    with pytest.raises(IncompleteError), open_program(tmp_path / "ckpt", **given):
        pass
    with open_program(tmp_path / "ckpt", **given, root="teacher") as program:
        (function,) = program.functions
        feeds = feed(function)
        (found,) = function.run(feeds).values()
        np.testing.assert_allclose(found, teacher(*feeds.values()), rtol=1e-5, atol=1e-5)


def test_a_model_that_a_checkpoint_has_twice_is_told(tmp_path: Path) -> None:
    code = tmp_path / "dense.py"
    code.write_text(
        "import keras\n\ndef dense():\n"
        "    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])\n"
    )
    student, teacher = build(code, "dense"), build(code, "dense")
    tf.train.Checkpoint(student=student, teacher=teacher).write(str(tmp_path / "ckpt"))
    with open_program(tmp_path / "ckpt", model=f"{code}:dense") as program:
        (said,) = program.warnings
        assert said == "such a model is under student, teacher: student was taken; --root chooses"
    with open_program(tmp_path / "ckpt", model=f"{code}:dense", root="teacher") as program:
        assert program.warnings == ()


def test_wrong_names_in_a_checkpoint_of_tensorflow_1_are_no_hidden_layers(
    code: Path, tmp_path: Path
) -> None:
    """The advice is about names then, not about what an object graph leaves out."""
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt"),
        tensor_names=["other"],
        shape_and_slices=[""],
        tensors=[tf.zeros([2])],
    )
    opened = open_program(tmp_path / "ckpt", model=f"{code}:block")
    with pytest.raises(IncompleteError) as caught, opened:
        pass
    assert caught.value.id == "model-unmatched"
    assert "in a list or a dict" not in caught.value.why
    assert "ckpttool list" in caught.value.hint


PLAIN = """
import tensorflow as tf


class Plain:
    def __init__(self):
        self.variables = [tf.Variable([[1.0], [2.0]], name=one) for one in ("there", "missing")]

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="x")])
    def __call__(self, x):
        return x @ self.variables[0] + x @ self.variables[1]
"""


def test_a_plain_class_may_miss_a_value_too(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt"),
        tensor_names=["there"],
        shape_and_slices=[""],
        tensors=[tf.zeros([2, 1])],
    )
    opened = open_program(tmp_path / "ckpt", model=f"{tmp_path}/plain.py:Plain")
    with pytest.raises(IncompleteError) as caught, opened:
        pass
    assert caught.value.id == "model-unmatched"
    assert "missing" in caught.value.why
    assert "1 of its 2 variables" in caught.value.why


def test_a_plain_class_is_in_no_object_graph(tmp_path: Path) -> None:
    """What to return is said, where TensorFlow only misses an attribute of its own."""
    (tmp_path / "plain.py").write_text(PLAIN)
    saved = tf.train.Checkpoint(there=tf.Variable([[1.0], [2.0]]))
    saved.write(str(tmp_path / "ckpt"))
    opened = open_program(tmp_path / "ckpt", model=f"{tmp_path}/plain.py:Plain")
    with pytest.raises(UsageError) as caught, opened:
        pass
    assert caught.value.id == "model-kind"
    assert "returns a Plain" in caught.value.what


def test_an_attribute_of_what_has_none_is_refused(code: Path, tmp_path: Path) -> None:
    build(code, "block").save_weights(tmp_path / "block.weights.h5")
    opened = open_program(tmp_path / "block.weights.h5", model=f"{code}:block", root="net")
    with pytest.raises(UsageError) as caught, opened:
        pass
    assert caught.value.id == "options-contradict"
