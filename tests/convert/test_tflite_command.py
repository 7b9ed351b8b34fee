"""`ckpttool convert … m.tflite` from end to end: made, run by the interpreter, in place or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import RunCli

np = pytest.importorskip("numpy")
pytest.importorskip("tensorflow")
pytest.importorskip("ai_edge_litert")

#: TensorFlow in a child takes seconds, and minutes on a machine that is busy.
PATIENCE = 600.0


def examples(path: Path, scale: float = 1.0, **more: Any) -> str:
    """Inputs of the matrix product, as `--calibration` and `--check-data` take them."""
    generator = np.random.default_rng(0)
    np.savez(path, input=scale * generator.random((128, 784), np.float32), **more)
    return str(path)


def test_d36_the_loss_by_quantisation_is_measured(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """D36: integers at both ends, compared by what they mean, on real inputs with labels."""
    data = examples(tmp_path / "data.npz")
    labelled = examples(tmp_path / "labelled.npz", label=np.zeros(128, np.int64))
    args = ["convert", str(models / "mlp-ref"), "m.tflite", "--quantize", "int8"]
    args += ["--calibration", data, "--io-dtype", "int8", "--check-data", labelled, "--json"]
    result = run_cli(args, cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)["data"]
    (signature,) = answer["signatures"]
    assert signature["inputs"] == [{"name": "input", "dtype": "int8", "shape": [None, 784]}]
    check = answer["check"]
    assert (check["state"], check["how"]) == ("passed", "run")
    metrics = check["metrics"]["serving_default"]["output"]
    assert 1e-5 < metrics["nrmse"] < 0.1
    assert metrics["accuracy"].keys() == {"source", "result", "difference"}
    assert (tmp_path / "m.tflite").read_bytes()[4:8] == b"TFL3"
    report = json.loads((tmp_path / "m.tflite.report.json").read_text())
    assert data in [one["path"] for one in report["source"]["files"]], "its ranges come from there"


@pytest.mark.slow
def test_a_model_that_was_measured_with_other_inputs_is_not_put_in_place(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """The silent loss that a calibration with made-up numbers brings."""
    wrong = examples(tmp_path / "wrong.npz", scale=1e-3)
    args = ["convert", str(models / "mlp-ref"), "m.tflite", "--quantize", "int8"]
    args += ["--calibration", wrong, "--check-data", examples(tmp_path / "data.npz")]
    result = run_cli(args, cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 52, result.stderr
    assert "[result-differs]" in result.stderr
    assert not (tmp_path / "m.tflite").exists()


@pytest.mark.slow
def test_flex_operations_cannot_be_checked_here(tmp_path: Path, run_cli: RunCli) -> None:
    """Written, said, and never called proven: no interpreter for Python has them."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3, 3], name="x")
        weights = tf.constant(np.ones((3, 3), np.float32), name="weights")
        tf.linalg.inv(x + 3 * tf.eye(3), name="inverse") @ weights
        tf.io.write_graph(graph, str(tmp_path), "frozen.pb", as_text=False)
    args = ["convert", "frozen.pb", "m.tflite", "--input", "x", "--output", "inverse"]
    args += ["--allow-flex", "--json"]
    result = run_cli(args, cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    check = document["data"]["check"]
    assert check["state"] == "not_run"
    assert "FlexMatrixInverse" in check["why"]
    assert any("FlexMatrixInverse" in one for one in document["warnings"])
    assert (tmp_path / "m.tflite").exists()


@pytest.mark.slow
def test_the_same_bytes_every_time(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """Loops and names that count up in a process, in two processes."""
    args = ["convert", "recurrent/ckpt", "--model", "build.py:recurrent", "--batch", "1"]
    for name in ("one.tflite", "two.tflite"):
        line = [args[0], args[1], str(tmp_path / name), *args[2:], "--no-check"]
        result = run_cli(line, cwd=models, timeout=PATIENCE)
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "one.tflite").read_bytes() == (tmp_path / "two.tflite").read_bytes()
