"""Every source of a graph gives a program that computes what the checkpoint says.

Run as it was restored, frozen, with its weights outside, and saved and loaded by
TensorFlow: all four agree.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.errors import CkpttoolError, IncompleteError, UnsupportedError
from tests.support.converting import feed, open_program, run_frozen

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")

# Keras and TensorFlow warn of what they do themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

FIXED = ("is_training=False", "keep_prob=1.0")
#: Name → source in the folder of models, and how it is asked for.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp-ref": ("mlp-ref", {}),
    "mlp-resource": ("mlp-resource", {}),
    "mlp-pbtxt": ("mlp-resource", {"graph": "mlp-resource/graph.pbtxt", "outputs": ["output"]}),
    "conditional": ("conditional", {"freeze": FIXED}),
    "partitioned": ("partitioned", {"outputs": ["y"]}),
    "partitioned-no-saver": (
        "partitioned/model.ckpt",
        {"graph": "partitioned/no-saver.pb", "outputs": ["y"]},
    ),
    "loop": ("loop", {"outputs": ["result"]}),
    "loop-2": ("loop-2", {"outputs": ["result"]}),
    "narrow": ("narrow/ckpt", {"model": "build.py:Narrow"}),
    "subclass": ("subclass/ckpt", {"model": "build.py:subclass", "inputs": ["x:float32[?,12]"]}),
    "recurrent": ("recurrent/ckpt", {"model": "build.py:recurrent"}),
    "recurrent-keras": ("recurrent.keras", {}),
    "recurrent-h5": ("recurrent.weights.h5", {"model": "build.py:recurrent"}),
    "embedding": ("embedding/ckpt", {"model": "build.py:Embedding"}),
}
VARIABLES = {"Variable", "VariableV2", "VarHandleOp", "ReadVariableOp", "AssignVariableOp"}


@pytest.fixture(autouse=True)
def _in_the_folder(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)


def close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.asarray(found[name]).dtype == array.dtype
        if array.dtype == object:
            assert (np.asarray(found[name]) == array).all()
        else:
            exact = [np.asarray(one).astype(np.float64) for one in (found[name], array)]
            np.testing.assert_allclose(*exact, rtol=1e-4, atol=1e-5)


def load(folder: Path, name: str, feeds: dict[str, Any]) -> dict[str, Any]:
    """What TensorFlow computes with an exported model."""
    function = tf.saved_model.load(str(folder)).signatures[name]
    found = function(**{key: tf.constant(value) for key, value in feeds.items()})
    return {key: tensor.numpy() for key, tensor in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_run_frozen_outside_and_saved_agree(name: str, tmp_path: Path) -> None:
    source, given = CASES[name]
    with open_program(source, **given) as program:
        program.save(str(tmp_path / "export"))
        for function in program.functions:
            frozen = function.frozen()
            outside = function.frozen(keep_out=24)
            for batch in (2, 3):
                feeds = feed(function, batch)
                expected = function.run(feeds)
                close(run_frozen(frozen, feeds), expected)
                close(run_frozen(outside, feeds), expected)
                close(load(tmp_path / "export", function.signature.name, feeds), expected)
            nodes = {node.name: node for node in frozen.graph.node}
            assert not {node.op for node in frozen.graph.node} & VARIABLES
            for port in frozen.signature.inputs:
                assert port.tensor == f"{port.name}:0"
                assert nodes[port.name].op == "Placeholder"
            assert not frozen.weights
            for weight_name, weight in outside.weights.items():
                array = weight.array()
                assert weight.nbytes == array.nbytes >= 24
                assert b"".join(weight.chunks()) == array.tobytes()
                assert weight_name in {node.name for node in outside.graph.node}


@pytest.mark.parametrize("name", ["mlp-ref", "mlp-resource", "mlp-pbtxt"])
def test_the_matrix_product_is_the_checkpoint_s(name: str) -> None:
    source, given = CASES[name]
    with ckpttool.open(source) as checkpoint:
        weights, biases = checkpoint.read("weights"), checkpoint.read("biases")
    with open_program(source, **given) as program:
        (function,) = program.functions
        assert [port.text for port in function.signature.inputs] == ["input:float32[?,784]"]
        feeds = feed(function)
        expected = np.maximum(feeds["input"] @ weights + biases, 0)
        np.testing.assert_allclose(function.run(feeds)["output"], expected, rtol=1e-4, atol=1e-5)


def test_partitioned_variables_are_put_together() -> None:
    """Cut along the second axis and along the first, with no saver to say so."""
    source, given = CASES["partitioned-no-saver"]
    with ckpttool.open(source) as checkpoint:
        product = checkpoint.read("net/wide") @ checkpoint.read("net/tall")
    with open_program(source, **given) as program:
        (function,) = program.functions
        feeds = feed(function)
        np.testing.assert_allclose(function.run(feeds)["y"], feeds["x"] @ product, rtol=1e-4)


def test_an_export_has_what_serves_and_no_more(tmp_path: Path) -> None:
    """No slots of Adam, no labels, no loss; the parts of a variable stay slices of it."""
    with open_program("mlp-ref") as program:
        program.save(str(tmp_path / "mlp"))
    with ckpttool.open(tmp_path / "mlp") as exported, ckpttool.open("mlp-ref") as trained:
        assert set(exported) == {"weights", "biases"}
        assert len(list(trained)) > 2
        assert (exported.read("weights") == trained.read("weights")).all()
    with open_program("partitioned", outputs=["y"]) as program:
        program.save(str(tmp_path / "parts"))
    with ckpttool.open(tmp_path / "parts") as exported, ckpttool.open("partitioned") as trained:
        assert set(exported) == {"net/wide", "net/tall"}
        slices = exported["net/wide"].slices
        assert slices is not None
        assert [part.extent for part in slices] == [(10, 4), (10, 3)]
        assert (exported.read("net/wide") == trained.read("net/wide")).all()


def test_a_fixed_switch_takes_its_condition_out() -> None:
    with open_program("conditional", freeze=FIXED) as program:
        (function,) = program.functions
        assert [port.name for port in function.signature.inputs] == ["x"]
        operations = {node.op for node in function.frozen().graph.node}
        assert not operations & {"Switch", "Merge", "If", "StatelessIf"}
        feeds = feed(function)
        same = [function.run(feeds)["probs"] for _ in range(2)]
        assert (same[0] == same[1]).all(), "no dropout is left"


def test_an_input_in_the_middle_of_a_graph() -> None:
    given = {"inputs": ["sum=MatMul:float32[?,200]"], "outputs": ["output"]}
    with open_program("mlp-ref", **given) as program:
        (function,) = program.functions
        assert set(program.variables) == {"biases"}  # type: ignore[attr-defined]
        feeds = feed(function)
        with ckpttool.open("mlp-ref") as checkpoint:
            expected = np.maximum(feeds["sum"] + checkpoint.read("biases"), 0)
        np.testing.assert_allclose(function.run(feeds)["output"], expected, rtol=1e-5)


def test_a_batch_that_is_fixed(tmp_path: Path) -> None:
    for name in ("mlp-ref", "embedding"):
        source, given = CASES[name]
        with open_program(source, **given) as program:
            program.save(str(tmp_path / name), batch=4)
            for function in program.functions:
                for port in function.frozen(batch=4).signature.inputs:
                    assert port.shape is not None
                    assert port.shape[0] == 4
        loaded = tf.saved_model.load(str(tmp_path / name)).signatures["serving_default"]
        (spec,) = loaded.structured_input_signature[1].values()
        assert spec.shape[0] == 4


@pytest.mark.parametrize("name", ["mlp-ref", "loop", "recurrent", "embedding"])
def test_the_frozen_model_that_converters_take(name: str, tmp_path: Path) -> None:
    """All its functions in one SavedModel without variables, under plain names."""
    from ckpttool.conversion.worker.frozen_model import save_frozen

    source, given = CASES[name]
    with open_program(source, **given) as program:
        save_frozen(program.functions, str(tmp_path / "frozen"), batch=3)
        for function in program.functions:
            feeds = feed(function, 3)
            signature = function.signature.name
            close(load(tmp_path / "frozen", signature, feeds), function.run(feeds))
    assert not tf.saved_model.load(str(tmp_path / "frozen")).signatures["serving_default"].variables


@pytest.mark.parametrize(
    ("source", "given"),
    [("tables", {"outputs": ["rows"]}), ("words/ckpt", {"model": "build.py:Words"})],
)
def test_tables_are_kept_in_an_export_and_refused_elsewhere(
    source: str, given: dict[str, Any], tmp_path: Path
) -> None:
    with open_program(source, **given) as program:
        (function,) = program.functions
        feeds = {"words": np.array([b"alpha", b"Beta", b"none"], object)}
        expected = function.run(feeds)
        assert not (expected[next(iter(expected))][0] == expected[next(iter(expected))][1]).all()
        with pytest.raises(UnsupportedError) as caught:
            function.frozen()
        assert caught.value.id == "stateful-graph"
        program.save(str(tmp_path / "export"))
    close(load(tmp_path / "export", "serving_default", feeds), expected)
    # Loaded, a table has only a number, and is named by what looks into it.
    with open_program(tmp_path / "export") as program, pytest.raises(UnsupportedError) as again:
        program.functions[0].frozen()
    for error in (caught.value, again.value):
        assert re.search(r"\(\w*(?:HashTable|LookupTable)\w*\)", error.why), error.why


def test_what_changes_a_variable_is_not_frozen() -> None:
    with open_program("counter/ckpt", model="build.py:Counter") as program:
        with pytest.raises(UnsupportedError, match="cannot be frozen") as caught:
            program.functions[0].frozen()
        assert "AssignAddVariableOp" in caught.value.why


@pytest.mark.parametrize(
    ("operation", "changes"),
    [
        ("AssignVariableOp", True),
        ("AssignAdd", True),
        ("ResourceScatterNdUpdate", True),
        ("ScatterAdd", True),
        ("ResourceSparseApplyAdagradV2", True),
        ("ApplyAdam", True),
        ("StatefulStandardNormalV2", True),
        ("ScatterNd", False),
        ("TensorScatterAdd", False),
        ("Assert", False),
        ("StatefulPartitionedCall", False),
    ],
)
def test_which_operations_change_a_variable(operation: str, changes: bool) -> None:
    from ckpttool.conversion.worker.freezing import _CHANGES
    from ckpttool.sources.tensorflow_ops import known_ops

    assert operation in known_ops()
    assert bool(_CHANGES.fullmatch(operation)) == changes


def test_two_signatures_and_a_chosen_one() -> None:
    source, given = CASES["embedding"]
    with open_program(source, **given) as program:
        assert [one.signature.name for one in program.functions] == ["serving_default", "head"]
        ids = feed(program.functions[0], 50)["ids"]
        assert ids.dtype == np.int64
        assert 2 < ids.max() < 30, "inside the table, and not only its first rows"
    with open_program(source, **given, signatures=("head",)) as program:
        assert [one.signature.name for one in program.functions] == ["head"]


# Never silently random ---------------------------------------------------------------


def test_a_model_without_variables_before_its_first_call_is_restored() -> None:
    """Keras 3: restored before the call it stays random, and TensorFlow says it matched."""
    source, given = CASES["subclass"]
    outputs = []
    for _ in range(2):  # each time built anew, with other random values
        with open_program(source, **given) as program:
            feeds = feed(program.functions[0])
            outputs.append(program.functions[0].run(feeds))
    close(outputs[0], outputs[1])
    with ckpttool.open(source) as checkpoint:
        kernel = checkpoint.read("model/head/_kernel")
        bias = checkpoint.read("model/head/bias")
    expected = outputs[0]["features"] @ kernel + bias
    np.testing.assert_allclose(outputs[0]["logits"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("source", "model", "inputs"),
    [
        ("subclass/ckpt", "build.py:recurrent", []),
        ("recurrent/ckpt", "build.py:subclass", ["x:float32[?,12]"]),
    ],
)
def test_a_model_that_does_not_fit_is_refused(source: str, model: str, inputs: list[str]) -> None:
    with pytest.raises(CkpttoolError) as caught, open_program(source, model=model, inputs=inputs):
        pass
    assert (caught.value.id, caught.value.exit_code) == ("model-unmatched", 20)
    assert "kernel" in caught.value.why


def test_d38_a_keras_2_checkpoint_needs_a_keras_2_model(tmp_path: Path, models: Path) -> None:
    """D38: Keras 3 leaves the variables of such a checkpoint unbound; tf_keras restores them."""
    pytest.importorskip("tf_keras")
    from tests.support.tf_models import load_build

    model = load_build(models).keras2()
    model.save_weights(str(tmp_path / "ckpt"))
    x = np.ones((2, 5), np.float32)
    with open_program(tmp_path / "ckpt", model="build.py:keras2") as program:
        (function,) = program.functions
        (name,) = (port.name for port in function.signature.inputs)
        np.testing.assert_allclose(function.run({name: x})["output"], model(x), rtol=1e-5)
    other = open_program(tmp_path / "ckpt", model="build.py:keras3_of_keras2")
    with pytest.raises(IncompleteError) as caught, other:
        pass
    assert caught.value.id == "model-unmatched"
    assert "tf_keras" in caught.value.hint


def test_inputs_of_one_key_are_told_apart() -> None:
    """Two dicts with the same key: everything later goes by the names, the check too."""
    from ckpttool.conversion.worker.model_functions import _of_signature

    spec = tf.TensorSpec([None, 2])
    assert [one.name for one in _of_signature([{"x": spec}, {"x": spec}])] == ["input_0", "input_1"]
    assert [one.name for one in _of_signature([{"x": spec}, {"y": spec}])] == ["x", "y"]
