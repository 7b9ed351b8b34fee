"""Training in functions is refused as it is in the main graph; what only looks like it is not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.origin import find_origin
from ckpttool.errors import RefusedError
from ckpttool.limits import Limits
from tests.support.converting import request

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def refused(source: Path, **given: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        find_origin(request(source, **given), Limits())
    assert (caught.value.id, caught.value.exit_code) == ("training-graph", 31)
    return caught.value


def save_graph(folder: Path, build: Any) -> Path:
    """A checkpoint and its ``.meta`` of a graph that ``build(x, weights)`` makes."""
    tf1 = tf.compat.v1
    with tf1.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        weights = tf1.get_variable("weights", [4, 2], use_resource=True)
        tf.identity(build(x, weights), "y")
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver().save(session, str(folder / "model"))
    return folder / "model"


def test_dropout_in_a_called_function(tmp_path: Path) -> None:
    layer = tf.function(lambda x, weights: tf.nn.dropout(x @ weights, 0.5, name="dropout"))
    source = save_graph(tmp_path, layer)
    assert "dropout draws random numbers" in refused(source, outputs=["y"]).why
    allowed = request(source, outputs=["y"], allow_training_graph=True)
    (warning,) = find_origin(allowed, Limits()).warnings
    assert "dropout" in warning


def test_a_branch_that_a_fixed_switch_never_takes(tmp_path: Path) -> None:
    """A condition of TensorFlow 2 has its sides in functions."""

    def build(x: Any, weights: Any) -> Any:
        training = tf.compat.v1.placeholder(tf.bool, [], "is_training")
        return tf.cond(
            training, lambda: tf.nn.dropout(x, 0.5, name="dropout") @ weights, lambda: x @ weights
        )

    tf.compat.v1.enable_control_flow_v2()
    source = save_graph(tmp_path, build)
    error = refused(source, outputs=["y"])
    assert "is_training" in error.why
    assert "dropout" in error.why
    assert "--freeze-input is_training=False" in error.hint
    off = request(source, outputs=["y"], freeze=["is_training=False"])
    assert find_origin(off, Limits()).warnings == ()
    assert "dropout" in refused(source, outputs=["y"], freeze=["is_training=True"]).why


def test_what_a_fixed_rate_turns_off_in_a_loop(tmp_path: Path) -> None:
    """The rate goes into the loop as it is: what it does there cannot be told, nor is it asked."""

    def build(x: Any, weights: Any) -> Any:
        keep = tf.compat.v1.placeholder(tf.float32, [], "keep_prob")

        def body(step: Any, value: Any, keep: Any) -> Any:
            return step + 1, tf.nn.dropout(value, 1.0 - keep, name="dropout"), keep

        given = (0, x @ weights, keep)
        return tf.while_loop(lambda step, *_: step < 2, body, given)[1]

    tf.compat.v1.enable_control_flow_v2()
    source = save_graph(tmp_path, build)
    assert "dropout" in refused(source, outputs=["y"]).why
    off = request(source, outputs=["y"], freeze=["keep_prob=1.0"])
    assert find_origin(off, Limits()).warnings == ()


@pytest.mark.parametrize("twice", [False, True])
def test_what_a_rate_that_is_computed_turns_off_in_a_loop(tmp_path: Path, twice: bool) -> None:
    """``1 - keep_prob``, also computed of that, goes into the loop: it is as fixed as the rate."""

    def build(x: Any, weights: Any) -> Any:
        keep = tf.compat.v1.placeholder(tf.float32, [], "keep_prob")
        rate = tf.maximum(1.0 - keep, 0.0) if twice else 1.0 - keep

        def body(step: Any, value: Any) -> Any:
            return step + 1, tf.nn.dropout(value, rate, name="dropout")

        return tf.while_loop(lambda step, _: step < 2, body, (0, x @ weights))[1]

    tf.compat.v1.enable_control_flow_v2()
    source = save_graph(tmp_path, build)
    off = request(source, outputs=["y"], freeze=["keep_prob=1.0"])
    assert find_origin(off, Limits()).warnings == ()
    # A rate that drops is fixed too, and turns nothing off.
    assert "dropout" in refused(source, outputs=["y"], freeze=["keep_prob=0.5"]).why


def test_a_condition_on_a_fixed_rate(tmp_path: Path) -> None:
    """Which branch is taken is not known, but that all it depends on is fixed."""

    def build(x: Any, weights: Any) -> Any:
        keep = tf.compat.v1.placeholder(tf.float32, [], "keep_prob")
        dropped = lambda: tf.nn.dropout(x @ weights, 0.5, name="dropout")  # noqa: E731
        return tf.cond(keep < 1.0, dropped, lambda: x @ weights)

    tf.compat.v1.enable_control_flow_v2()
    source = save_graph(tmp_path, build)
    off = request(source, outputs=["y"], freeze=["keep_prob=1.0"])
    assert find_origin(off, Limits()).warnings == ()


def test_a_fixed_switch_of_a_called_function(tmp_path: Path) -> None:
    def build(x: Any, weights: Any) -> Any:
        training = tf.compat.v1.placeholder(tf.bool, [], "training")

        def layer(x: Any, weights: Any, training: Any) -> Any:
            dropped = lambda: tf.nn.dropout(x, 0.5, name="dropout") @ weights  # noqa: E731
            return tf.cond(training, dropped, lambda: x @ weights)

        return tf.function(layer)(x, weights, training)

    tf.compat.v1.enable_control_flow_v2()
    source = save_graph(tmp_path, build)
    assert "dropout" in refused(source, outputs=["y"]).why
    off = request(source, outputs=["y"], freeze=["training=False"])
    assert find_origin(off, Limits()).warnings == ()


def test_a_mask_is_no_switch(tmp_path: Path) -> None:
    """An input of truth values that is not called one does not decide about dropout."""
    module = tf.Module()
    module.weights = tf.Variable(tf.ones([4, 2]))

    def save(name: str) -> Path:
        def serve(x: Any, mask: Any) -> Any:
            dropped = tf.nn.dropout(x @ module.weights, 0.5, name="dropout")
            return tf.where(mask[:, None], dropped, 0.0)

        specs = [tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None], tf.bool, name=name)]
        traced = tf.function(serve, input_signature=specs)
        tf.saved_model.save(module, str(tmp_path / name), signatures=traced)
        return tmp_path / name

    assert "dropout" in refused(save("attention_mask")).why
    assert find_origin(request(save("is_training")), Limits()).warnings == ()


def keras_export(library: str, folder: Path, *, training: bool) -> Path:
    """A SavedModel whose signature calls a model as in training, or as it is served."""
    keras = pytest.importorskip(library)
    layers = keras.layers
    x = keras.Input((6, 8))
    hidden = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(x, x))
    hidden = layers.Dropout(0.3)(layers.BatchNormalization()(hidden))
    model = keras.Model(x, layers.Dense(2)(layers.GlobalAveragePooling1D()(hidden)))
    module = tf.Module()
    # TensorFlow sees none of Keras 3's random generators in a model.
    module.held = [model, *(getattr(one, "_value", one) for one in model.variables)]
    specs = [tf.TensorSpec([None, 6, 8], tf.float32, name="x")]
    serve = tf.function(lambda x: model(x, training=training), input_signature=specs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of what it does itself
        tf.saved_model.save(module, str(folder), signatures=serve)
    return folder


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_a_saved_model(library: str, tmp_path: Path) -> None:
    """Layer normalisation of Keras 2 is written as that of a batch, and is none."""
    served = keras_export(library, tmp_path / "served", training=False)
    assert find_origin(request(served), Limits()).warnings == ()
    trains = keras_export(library, tmp_path / "trains", training=True)
    assert "dropout" in refused(trains).why
    allowed = find_origin(request(trains, allow_training_graph=True), Limits())
    assert any("dropout" in one for one in allowed.warnings)


def test_what_keras_exports_twice_is_one_signature(tmp_path: Path) -> None:
    """``serve`` and ``serving_default``: what holds one signature takes the second."""
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    folder = tmp_path / "export"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.export(str(folder), verbose=False)
    for target in ("onnx", "tfjs"):
        origin = find_origin(request(folder, target=target), Limits())
        assert [one.name for one in origin.signatures] == ["serving_default"]
        assert origin.notes == ("serve is serving_default once more; --signature chooses",)
        chosen = find_origin(request(folder, target=target, signatures=("serve",)), Limits())
        assert [one.name for one in chosen.signatures] == ["serve"]
    both = find_origin(request(folder, target="tflite"), Limits())
    assert [one.name for one in both.signatures] == ["serving_default", "serve"]


def test_signatures_that_differ_stay_two(tmp_path: Path) -> None:
    two = tf.Module()
    two.weights = tf.Variable(2.0)
    specs = [tf.TensorSpec([None], name="x")]
    once = tf.function(lambda x: {"y": x * two.weights}, input_signature=specs)
    twice = tf.function(lambda x: {"y": x * two.weights * 2.0}, input_signature=specs)
    signatures = {"serving_default": once, "serve": twice, "again": once}
    tf.saved_model.save(two, str(tmp_path / "two"), signatures=signatures)
    origin = find_origin(request(tmp_path / "two", target="onnx"), Limits())
    assert [one.name for one in origin.signatures] == ["serving_default", "serve"]
