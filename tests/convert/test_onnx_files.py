"""The files of an ONNX model: weights past tf2onnx, in the model or beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ckpttool
from ckpttool.conversion.worker.onnx_weights import KEEP_OUT, with_constants_outside
from ckpttool.errors import UsageError
from tests.support.command import RunCli, clean_environment
from tests.support.converting import feed
from tests.support.onnx_models import (
    function_program,
    largest_error,
    load,
    operators,
    write_onnx,
)

np = pytest.importorskip("numpy")
tf = pytest.importorskip("tensorflow")
onnx = pytest.importorskip("onnx")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

PATIENCE = 600.0
GENERATOR = np.random.default_rng(5)


def variable(*shape: int, dtype: str = "float32") -> Any:
    return tf.Variable((GENERATOR.standard_normal(shape) / 9).astype(dtype))


def large_values(path: Path) -> dict[tuple[int, ...], Any]:
    """Shape → initializer, of the large ones, by another reader than onnx's own."""
    found = {}
    with ckpttool.open(path) as model:
        for name in model:
            shape = model[name].shape
            if shape is not None and model[name].nbytes >= KEEP_OUT:
                found[shape] = model.read(name)
    return found


@pytest.mark.parametrize("beside", [False, True])
def test_weights_of_every_width(beside: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    weights = [
        variable(130, 130),
        variable(100, 100, dtype="float64"),
        variable(200, 200, dtype="float16"),
        tf.Variable(GENERATOR.integers(0, 2**40, (90, 95)), dtype=tf.int64),
        tf.Variable(GENERATOR.integers(0, 2, (70_000,)) > 0),
    ]

    def body(at: Any) -> dict[str, Any]:
        return {f"rows{n}": tf.gather(one, at) for n, one in enumerate(weights)}

    program = function_program(body, ("at", "int64", (None,)))
    write_onnx(program, path, external_data=beside)
    assert (tmp_path / "m.onnx.data").exists() == beside
    found = large_values(path)
    assert found.keys() == {tuple(one.shape) for one in weights}
    for one in weights:
        assert (found[tuple(one.shape)] == one.numpy()).all()
        assert found[tuple(one.shape)].dtype == one.numpy().dtype
    assert largest_error(program.functions[0], path, {"at": np.int64([3, 0, 69])}) == 0


def test_small_weights_stay_in_the_model_and_that_is_said(tmp_path: Path) -> None:
    kernel = variable(8, 4)
    program = function_program(lambda x: {"y": x @ kernel}, ("x", "float32", (None, 8)))
    path = tmp_path / "m.onnx"
    written = write_onnx(program, path, external_data=True)
    assert written.warnings == ("no file beside it: every weight has less than 64.0 KiB",)
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]
    assert largest_error(program.functions[0], path, feed(program.functions[0])) < 1e-5


def test_a_file_beside_is_named_without_a_folder_and_can_be_mapped(tmp_path: Path) -> None:
    kernels = [variable(150, 150), variable(150, 151)]
    program = function_program(
        lambda x: {"y": x @ kernels[0] @ kernels[1]}, ("x", "float32", (None, 150))
    )
    write_onnx(program, tmp_path / "m.onnx", external_data=True)
    places = []
    for tensor in load(tmp_path / "m.onnx").graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            said = {one.key: one.value for one in tensor.external_data}
            assert said["location"] == "m.onnx.data"
            places.append((int(said["offset"]), int(said["length"])))
    assert len(places) == 2
    assert all(offset % 4096 == 0 for offset, _ in places)
    assert sum(places[1]) == (tmp_path / "m.onnx.data").stat().st_size
    folder = tmp_path / "moved"
    folder.mkdir()
    for name in ("m.onnx", "m.onnx.data"):
        os.rename(tmp_path / name, folder / name)
    assert largest_error(program.functions[0], folder / "m.onnx", feed(program.functions[0])) < 1e-5


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    kernel = variable(150, 150)
    program = function_program(lambda x: {"y": x @ kernel}, ("x", "float32", (None, 150)))
    path = tmp_path / "m\udcff.onnx"
    with pytest.raises(UsageError) as caught:
        write_onnx(program, path, external_data=True)
    assert caught.value.id == "onnx-file-name"
    assert not list(tmp_path.iterdir())


def test_kernels_are_laid_out_as_onnx_wants_them(tmp_path: Path) -> None:
    """As inputs of the graph they would leave a node each that does that in every run."""
    path = tmp_path / "m.onnx"
    kernels = [variable(5, 5, 16, 64), variable(3, 3, 64, 64), variable(5, 5, 32, 64)]
    depthwise = variable(5, 5, 64, 12)

    def body(x: Any) -> dict[str, Any]:
        y = tf.nn.conv2d(x, kernels[0], 2, "SAME")
        ones = tf.ones(64)
        y, _, _ = tf.compat.v1.nn.fused_batch_norm(
            y, ones * 1.5, ones * 0.1, ones * 0.2, ones * 0.9, is_training=False
        )
        y = tf.nn.relu(tf.nn.conv2d(y, kernels[1], 1, "VALID"))
        z = tf.nn.conv2d_transpose(y, kernels[2], [tf.shape(y)[0], 12, 12, 32], 2)
        w = tf.nn.depthwise_conv2d(y, depthwise, [1, 1, 1, 1], "SAME")
        return {"z": tf.reduce_mean(z, [1, 2]), "w": tf.reduce_mean(w, [1, 2])}

    program = function_program(body, ("x", "float32", (None, 16, 16, 16)))
    write_onnx(program, path)
    assert largest_error(program.functions[0], path, feed(program.functions[0], 3)) < 1e-4
    assert large_values(path).keys() == {
        (64, 16, 5, 5),
        (64, 64, 3, 3),
        (64, 32, 5, 5),
        (768, 1, 5, 5),
    }
    computed = {name for node in load(path).graph.node for name in node.output}
    kernels_used = {
        node.input[1] for node in load(path).graph.node if node.op_type.startswith("Conv")
    }
    assert len(kernels_used) == 4
    assert not kernels_used & computed


def test_a_weight_that_is_used_in_two_layouts(tmp_path: Path) -> None:
    kernel = variable(140, 140)
    program = function_program(
        lambda x: {"y": x @ kernel @ tf.transpose(kernel), "kernel": kernel + 0.0},
        ("x", "float32", (None, 140)),
    )
    path = tmp_path / "m.onnx"
    write_onnx(program, path)
    assert largest_error(program.functions[0], path, feed(program.functions[0])) < 1e-4
    assert list(large_values(path)) == [(140, 140)]


def test_large_constants_are_weights_too(tmp_path: Path) -> None:
    """Those of a frozen graph, and one that is a single value for all elements."""
    table = GENERATOR.standard_normal((150, 120)).astype(np.float32)

    def body(x: Any) -> dict[str, Any]:
        return {"y": x @ tf.constant(table) + tf.constant(0.5, shape=(200, 120))[0]}

    program = function_program(body, ("x", "float32", (None, 150)))
    frozen = with_constants_outside(program.functions[0].frozen(keep_out=KEEP_OUT))
    assert sorted(one.shape for one in frozen.weights.values()) == [(150, 120), (200, 120)]
    for weight in frozen.weights.values():
        assert b"".join(weight.chunks()) == weight.array().tobytes()
        assert weight.nbytes == weight.array().nbytes
    write_onnx(program, tmp_path / "m.onnx")
    assert largest_error(program.functions[0], tmp_path / "m.onnx", feed(program.functions[0])) < (
        1e-4
    )


def test_the_weights_of_loops_stay_where_an_lstm_is_found(tmp_path: Path) -> None:
    import keras

    layer = keras.layers.LSTM(96)
    program = function_program(lambda x: {"y": layer(x)}, ("x", "float32", (None, 4, 80)))
    (function,) = program.functions
    path = tmp_path / "m.onnx"
    write_onnx(program, path)
    assert "LSTM" in operators(path)
    assert largest_error(function, path, feed(function, 3)) < 1e-5
    within = with_constants_outside(function.frozen(keep_out=KEEP_OUT))
    beyond = with_constants_outside(function.frozen(keep_out=KEEP_OUT), give_back=100_000)
    assert not within.weights
    assert sorted(one.shape for one in beyond.weights.values()) == [(80, 384), (96, 384)]


# From end to end ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_conversion_and_its_proof(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """The same bytes from every child, weights beside it where that is asked for."""
    args = ["convert", "recurrent/ckpt", "--model", "build.py:recurrent", "--to", "onnx", "--json"]
    first = run_cli([*args, str(tmp_path / "a.onnx")], cwd=models, timeout=PATIENCE)
    assert first.returncode == 0, first.stderr
    data = json.loads(first.stdout)["data"]
    assert data["check"]["state"] == "passed"
    (figures,) = data["check"]["metrics"]["serving_default"].values()
    assert figures["nrmse"] < 1e-5
    env = {"PYTHONHASHSEED": "7"}
    again = [*args, "--no-check", str(tmp_path / "b.onnx")]
    assert run_cli(again, cwd=models, env=env, timeout=PATIENCE).returncode == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


@pytest.mark.slow
def test_a_refusal_from_end_to_end(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """Exit 51 and nothing in place, where tf2onnx says it succeeded."""
    code = (models / "build.py").read_text() + INVERSE
    (tmp_path / "inverse.py").write_text(code)
    script = "import inverse, tensorflow as tf; m = inverse.Inverse();"
    script += "tf.train.Checkpoint(model=m).write('m.ckpt')"
    env = clean_environment({"PYTHONPATH": f"{clean_environment()['PYTHONPATH']}:{tmp_path}"})
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, check=True, capture_output=True
    )
    args = ["convert", "m.ckpt", "m.onnx", "--model", "inverse.py:Inverse"]
    result = run_cli(args, cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 51, result.stderr
    assert "MatrixInverse" in result.stderr
    assert "[onnx-operators]" in result.stderr
    assert not list(tmp_path.glob("*.onnx*"))


INVERSE = """

class Inverse(tf.Module):
    def __init__(self):
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 3], tf.float32, name="x")])
    def __call__(self, x):
        return tf.linalg.inv(x) * self.scale
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_weights(tmp_path: Path, run_cli: RunCli) -> None:
    """400 MB of TensorFlow 1: what tf2onnx takes 22 GB for is little more than TensorFlow."""
    tf1 = tf.compat.v1
    with tf.Graph().as_default():
        y = tf1.placeholder(tf.float32, [None, 5000], name="input")
        for number in range(4):
            kernel = tf1.get_variable(f"kernel{number}", [5000, 5000], use_resource=False)
            y = tf.nn.relu(tf.matmul(y, kernel))
        tf.identity(y, name="output")
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            tf1.train.Saver().save(session, str(tmp_path / "m.ckpt"))
    args = ["convert", "m.ckpt", "m.onnx", "--input", "input", "--output", "output", "--no-check"]
    result = run_cli([*args, "--memory", "850MB"], cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "m.onnx.data").stat().st_size == pytest.approx(400e6, rel=0.01)
    with ckpttool.open(tmp_path / "m.onnx") as model, ckpttool.open(tmp_path / "m.ckpt") as trained:
        assert (model.read("kernel3") == trained.read("kernel3")).all()
