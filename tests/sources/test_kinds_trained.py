"""Kinds of what real optimizers make: each of TensorFlow 1, Keras 2 and Keras 3.

Every variable gets a value of its own, so that what comes back from a file is known by its
value, whatever the file calls it. (D20, D21: what is the optimizer's, and what is not.)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ckpttool.model import Kind
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn.t accept a copy keyword"),
]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def keras(tf) -> Any:  # after TensorFlow, which brings it
    return pytest.importorskip("keras")


@pytest.fixture(scope="module")
def tf_keras(tf) -> Any:
    return pytest.importorskip("tf_keras")


# Names of TensorFlow 1 -------------------------------------------------------------------


def v1_optimizers(train: Any) -> Iterator[tuple[str, Any]]:
    yield "Adadelta", train.AdadeltaOptimizer
    yield "Adagrad", lambda: train.AdagradOptimizer(0.1)
    yield (
        "AdagradDA",
        lambda: train.AdagradDAOptimizer(0.1, train.get_or_create_global_step()),
    )
    yield "Adam", train.AdamOptimizer
    yield "Ftrl", lambda: train.FtrlOptimizer(0.1)
    yield "Momentum", lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True)
    yield "ProximalAdagrad", lambda: train.ProximalAdagradOptimizer(0.1)
    yield "RMSProp", lambda: train.RMSPropOptimizer(0.1, centered=True, momentum=0.9)


@pytest.mark.parametrize("resource", [True, False])
@pytest.mark.parametrize("scope", ["", "tower"])
def test_names_of_tensorflow_1(resource, scope, tf) -> None:
    v1 = tf.compat.v1
    for optimizer_name, make in v1_optimizers(v1.train):
        with tf.Graph().as_default(), v1.variable_scope(scope or v1.get_variable_scope()):
            step = v1.train.get_or_create_global_step()
            weights = [
                v1.get_variable(f"layer{number}/w", [2], use_resource=resource)
                for number in range(2)
            ]
            moving = v1.get_variable("bn/moving_mean", [2], trainable=False, use_resource=resource)
            optimizer = make()
            loss = tf.add_n([tf.reduce_sum(weight**2) for weight in weights])
            optimizer.minimize(loss, global_step=step)
            own = {variable.op.name for variable in v1.global_variables()}
            own -= {variable.op.name for variable in [*weights, moving, step]}
            v1.train.ExponentialMovingAverage(0.9).apply(weights)
            expected = dict.fromkeys(own, "optimizer")
            expected |= {variable.op.name: "model" for variable in [*weights, moving]}
            expected[step.op.name] = "step"
            names = [variable.op.name for variable in v1.global_variables()]
            expected |= dict.fromkeys(set(names) - set(expected), "ema")
            assert {name: kind_of_name(name) for name in names} == expected, optimizer_name
            assert len(own) >= 2
            assert list(expected.values()).count("ema") == 2


@pytest.mark.parametrize("scope", ["", "training/"])
def test_names_of_keras_2_in_a_graph(scope, tf, tf_keras) -> None:
    """An Estimator's checkpoint has the variables of a Keras optimizer by these names."""
    v1 = tf.compat.v1
    for name, make in optimizers(tf_keras.optimizers.legacy):
        with tf.Graph().as_default(), v1.name_scope(scope):
            weight = v1.get_variable("layer/w", [2], use_resource=True)
            optimizer = make()
            optimizer.get_updates(tf.reduce_sum(weight**2), [weight])
            step = optimizer.iterations.op.name
            found = [variable.op.name for variable in optimizer.variables()]
            expected = {key: "step" if key == step else "optimizer" for key in found}
            assert {key: kind_of_name(key) for key in found} == expected, name
            assert kind_of_name(weight.op.name) == "model"


# Files of objects ------------------------------------------------------------------------


#: The base class, and optimizers that only hold others.
_WRAPPERS = {"LossScaleOptimizer", "MultiOptimizer", "Optimizer", "OptimizerMap"}


def optimizers(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Every optimizer of a module: its name, and what makes one with all the state it can have."""
    for name, kind in sorted(vars(module).items()):
        if not inspect.isclass(kind) or name in _WRAPPERS:
            continue
        accepted = inspect.signature(kind).parameters
        wanted = {"amsgrad": True, "centered": True, "momentum": 0.9, "use_ema": True}
        options = {key: value for key, value in wanted.items() if key in accepted}

        def make(kind: Any = kind, options: Any = options) -> Any:
            return kind(**options)

        yield name, make


def number(variables: list[Any]) -> None:
    """Give every variable a value of its own."""
    for value, variable in enumerate(variables, start=100):
        variable.assign(value + 0 * variable.numpy())


def kinds_by_value(path: Path | str) -> dict[int, Kind]:
    """The kind of each variable of a file, by the value that it was given."""
    found: dict[int, Kind] = {}
    with open_source(str(path)) as source:
        for variable in source.variables():
            if variable.dtype == "string" or variable.shape is None or 0 in variable.shape:
                continue
            array = source.read(variable, Selection.whole(variable.shape))
            found[int(array.reshape(-1)[0])] = variable.kind
    return found


def trained(module: Any, optimizer: Any) -> Any:
    import numpy as np

    inputs = module.Input((3,))
    hidden = module.layers.Dense(2, name="hidden")(inputs)
    hidden = module.layers.BatchNormalization(name="norm")(hidden)
    model = module.Model(inputs, module.layers.Dense(1, name="out")(hidden))
    model.compile(optimizer, "mse")
    model.train_on_batch(np.ones((2, 3), "f4"), np.ones((2, 1), "f4"))
    return model


def numbered(model: Any, optimizer: Any) -> dict[int, Kind]:
    """The kind of each variable of a model and its optimizer, by the value it is given here."""
    averages = {id(v) for v in getattr(optimizer, "_model_variables_moving_average", None) or ()}
    own = optimizer.variables
    variables = [*model.weights, *(own() if callable(own) else own)]
    number(variables)
    weights = {id(variable) for variable in model.weights}
    kinds: dict[int, Kind] = {}
    for value, variable in enumerate(variables, start=100):
        if variable is optimizer.iterations:
            kinds[value] = "step"
        elif id(variable) in averages:
            kinds[value] = "ema"
        else:
            kinds[value] = "model" if id(variable) in weights else "optimizer"
    return kinds


def require_kinds(path: Path, expected: dict[int, Kind], name: str) -> None:
    found = kinds_by_value(path)
    assert {value: found.get(value) for value in expected} == expected, f"{name}: {path.name}"


#: Keras 3 gives two variables of these one name, and cannot put them into an `.h5`.
NO_H5 = {"Adafactor"}


def test_kinds_of_keras_3(keras, tf, tmp_path) -> None:
    for name, make in optimizers(keras.optimizers):
        optimizer = make()
        model = trained(keras, optimizer)
        expected = numbered(model, optimizer)
        tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "ckpt"))
        require_kinds(tmp_path / "ckpt", expected, name)
        if name not in NO_H5:
            model.save(tmp_path / "m.h5")
            require_kinds(tmp_path / "m.h5", expected, name)
        # In a file of numbered variables an average is one of the optimizer's.
        model.save_weights(tmp_path / "m.weights.h5")
        less: dict[int, Kind] = {
            value: "optimizer" if kind == "ema" else kind for value, kind in expected.items()
        }
        require_kinds(tmp_path / "m.weights.h5", less, name)


@pytest.mark.parametrize("legacy", [False, True])
def test_kinds_of_keras_2(legacy, tf_keras, tf, tmp_path) -> None:
    module = tf_keras.optimizers.legacy if legacy else tf_keras.optimizers
    for name, make in optimizers(module):
        optimizer = make()
        model = trained(tf_keras, optimizer)
        expected = numbered(model, optimizer)
        tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "ckpt"))
        require_kinds(tmp_path / "ckpt", expected, name)
        model.save(tmp_path / "m.h5")
        require_kinds(tmp_path / "m.h5", expected, name)
