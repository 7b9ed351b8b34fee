"""What goes into a model of a person's own and comes out of it: all of it, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import CkpttoolError
from tests.support.converting import feed, open_program, run_frozen

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

CODE = """\
import keras
import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        self.weights = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="weights")


def numbers(name):
    return tf.TensorSpec([None, 2], tf.float32, name=name)


class WithNone(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return {"y": x @ self.weights, "loss": None, "more": [None, x]}


class Tuple(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return x @ self.weights, None


class Nothing(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return {"loss": None}


class Twice(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return {"a/b": x @ self.weights, "a": {"b": x}}


class Odd(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return {"y": x @ self.weights, "words": tf.data.Dataset.range(3)}


class Sparse(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return {"y": x @ self.weights, "some": tf.sparse.from_dense(x)}


class Ragged(Model):
    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])
    def __call__(self, rows):
        return rows.to_tensor(shape=[None, 2]) @ self.weights


class Alone(Model):
    @tf.function(input_signature=[])
    def __call__(self):
        return self.weights * 2


class Whole(Model):
    @tf.function(jit_compile=True, experimental_attributes={"_noinline": True})
    def product(self, x):
        return x @ self.weights

    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return self.product(x)


class Itself(Model):
    def __init__(self):
        super().__init__()
        self.serve = tf.function(lambda x: x @ self.weights, input_signature=[numbers("x")])


class Served(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, inputs):
        return self.dense(inputs)

    @tf.function(input_signature=[numbers("x")])
    def serve(self, x):
        return {"doubled": self(x) * 2}


class Dicts(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, inputs, training=False):
        return self.dense(inputs["x"]) + inputs["more"]


class Apart(Dicts):
    def call(self, x, more):
        return super().call({"x": x, "more": more})


class Slash(Model):
    @tf.function(input_signature=[numbers("a/b")])
    def __call__(self, x):
        return x @ self.weights


class Python(Model):
    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        y = tf.py_function(lambda x: x * 2, [x], tf.float32)
        return tf.ensure_shape(y, [None, 2]) @ self.weights


@tf.custom_gradient
def doubled(x, scale):
    return x * tf.cast(scale, tf.float32), lambda up: (up, None)


class Gradient(Model):
    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(tf.constant(2, tf.int8), name="scale")

    @tf.function(input_signature=[numbers("x")])
    def __call__(self, x):
        return doubled(x @ self.weights, self.scale.read_value())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ends")
    (made / "ends.py").write_text(CODE)
    space: dict[str, Any] = {}
    exec(CODE, space)
    ones = tf.ones((1, 2))
    for name, call in (
        ("Alone", None),
        ("Gradient", None),
        ("Served", ones),
        ("Dicts", {"x": ones, "more": ones}),
    ):
        model = space[name]()
        if call is not None:
            model(call)
        tf.train.Checkpoint(model).write(str(made / name))
    return made


def opened(folder: Path, name: str, of: str = "", **given: Any) -> Any:
    checkpoint = folder / (of or ("Gradient" if name == "Gradient" else "Alone"))
    return open_program(checkpoint, model=f"{folder / 'ends.py'}:{name}", **given)


def test_what_is_none_is_no_output(folder: Path) -> None:
    with opened(folder, "WithNone") as program:
        (function,) = program.functions
        assert {port.name for port in function.signature.outputs} == {"more/1", "y"}
    with opened(folder, "Tuple") as program:
        assert [port.name for port in program.functions[0].signature.outputs] == ["output"]


@pytest.mark.parametrize(
    ("name", "id", "exit_code", "said"),
    [
        ("Nothing", "model-outputs", 2, "the model gives nothing"),
        ("Twice", "model-outputs", 2, "called a/b"),
        ("Odd", "sparse-port", 12, "words"),
        ("Sparse", "sparse-port", 12, "some is a SparseTensor"),
        ("Ragged", "sparse-port", 12, "RaggedTensor"),
    ],
)
def test_what_cannot_be_an_end_is_refused_by_name(
    name: str, id: str, exit_code: int, said: str, folder: Path
) -> None:
    with pytest.raises(CkpttoolError) as caught, opened(folder, name):
        pass
    assert (caught.value.id, caught.value.exit_code) == (id, exit_code)
    assert said in f"{caught.value.what}: {caught.value.why}"


def test_a_function_that_takes_nothing(folder: Path) -> None:
    with opened(folder, "Alone") as program:
        (function,) = program.functions
        assert function.signature.inputs == ()
        assert run_frozen(function.frozen(), {})["output"].tolist() == [[2, 4], [6, 8]]


def test_functions_that_a_model_or_keras_has(folder: Path) -> None:
    with opened(folder, "Itself") as program:
        assert [port.text for port in program.functions[0].signature.inputs] == ["x:float32[?,2]"]
    feeds = {"x": np.ones((1, 2), np.float32)}
    with opened(folder, "Served", "Served") as program:
        (function,) = program.functions
        doubled = function.run(feeds)["doubled"]
    shape = ["x:float32[?,2]"]  # asked for, it is the model that is called
    with opened(folder, "Served", "Served", inputs=shape) as program:
        np.testing.assert_allclose(program.functions[0].run(feeds)["output"] * 2, doubled)


def test_a_model_that_takes_a_dict_is_told_how(folder: Path) -> None:
    shapes = ["x:float32[?,2]", "more:float32[?,2]"]
    with pytest.raises(CkpttoolError) as caught, opened(folder, "Dicts", "Dicts", inputs=shapes):
        pass
    assert (caught.value.id, caught.value.exit_code) == ("model-inputs", 2)
    assert "call(self, x, more): return super().call({'x': x, 'more': more})" in caught.value.hint
    with opened(folder, "Apart", "Dicts", inputs=shapes) as program:
        assert len(program.functions[0].signature.inputs) == 2


def test_a_function_that_is_to_be_compiled_as_a_whole_is_looked_into(folder: Path) -> None:
    """So Keras has convolutions in groups: no converter knows a call of such a function."""
    with opened(folder, "Whole") as program:
        (function,) = program.functions
        frozen = function.frozen()
        assert not [node for node in frozen.graph.node if "Call" in node.op]
        feeds = feed(function)
        np.testing.assert_allclose(
            run_frozen(frozen, feeds)["output"], function.run(feeds)["output"], rtol=1e-5
        )


def test_gradients_are_not_saved_for_a_converter(folder: Path, tmp_path: Path) -> None:
    """Those of int8 layers of Keras take what cannot be saved."""
    from ckpttool.conversion.worker.frozen_model import save_frozen

    with opened(folder, "Gradient") as program:
        save_frozen(program.functions, str(tmp_path / "frozen"))
    given = tf.constant([[1.0, 1.0]])
    found = tf.saved_model.load(str(tmp_path / "frozen")).signatures["serving_default"](x=given)
    assert found["output"].numpy().tolist() == [[8.0, 12.0]]


def test_python_is_in_no_export(folder: Path, tmp_path: Path) -> None:
    """A py_function is a number in the graph; the function itself is in no file."""
    with opened(folder, "Python") as program, pytest.raises(CkpttoolError) as caught:
        program.save(str(tmp_path / "never"))
    assert (caught.value.id, caught.value.exit_code) == ("op-python", 12)
    module = tf.Module()
    pure = tf.function(lambda x: {"y": x * 2}, input_signature=[tf.TensorSpec([2], name="x")])
    impure = tf.function(
        lambda x: {"y": tf.numpy_function(np.sin, [x], tf.float32)},
        input_signature=[tf.TensorSpec([2], name="x")],
    )
    signatures = {"pure": pure, "impure": impure}
    tf.saved_model.save(module, str(tmp_path / "export"), signatures=signatures)
    with open_program(tmp_path / "export", signatures=("pure",)) as program:
        assert len(program.functions) == 1
    with pytest.raises(CkpttoolError) as caught, open_program(tmp_path / "export"):
        pass
    assert caught.value.id == "op-python"
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        y = tf.negative(tf.compat.v1.py_func(np.sin, [x], tf.float32, name="python"), name="y")
        tf.negative(y, name="z")
    tf.compat.v1.train.write_graph(graph, str(tmp_path), "graph.pb", as_text=False)
    with pytest.raises(CkpttoolError) as caught, open_program(tmp_path / "graph.pb", outputs=["z"]):
        pass
    assert caught.value.id == "op-python"
    assert "python" in caught.value.why
    behind = {"inputs": ["y:float32[2]"], "outputs": ["z"]}
    with open_program(tmp_path / "graph.pb", **behind) as program:
        assert len(program.functions) == 1


def test_no_input_gets_another_name_in_silence(folder: Path, tmp_path: Path) -> None:
    """TensorFlow made a_b of a/b, and said nothing."""
    from ckpttool.conversion.worker.frozen_model import save_frozen

    with opened(folder, "Slash") as program:
        for save in (program.save, lambda path: save_frozen(program.functions, path)):
            with pytest.raises(CkpttoolError) as caught:
                save(str(tmp_path / "never"))
            assert (caught.value.id, caught.value.exit_code) == ("port-name", 2)
            assert caught.value.hint.endswith("--input input_a_b=a/b")
    with opened(folder, "Slash", inputs=["input_a_b=a/b"]) as program:
        program.save(str(tmp_path / "export"))
    saved = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    assert list(saved.structured_input_signature[1]) == ["input_a_b"]
