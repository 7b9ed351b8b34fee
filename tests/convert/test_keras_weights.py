"""`convert --to h5 --model` into a `.weights.h5`: Keras's own layout, which Keras loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ckpttool.conversion.targets import TARGETS, find_target
from tests.support.command import RunCli
from tests.support.tf_models import load_build

PATIENCE = 600.0


def test_only_a_model_and_that_ending_mean_keras() -> None:
    assert find_target("h5", "m.weights.h5", "build.py:build").module == "to_keras_weights"
    assert find_target("", "M.WEIGHTS.H5", "build.py:build").module == "to_keras_weights"
    assert find_target("h5", "m.h5", "build.py:build") is TARGETS["h5"]
    assert find_target("h5", "m.weights.h5") is TARGETS["h5"]
    assert find_target("npz", "m.weights.h5", "build.py:build") is TARGETS["npz"]


def test_keras_loads_what_was_trained(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """CONVERT 2: the model has no variables before its first call; keras loads all the same."""
    to = tmp_path / "m.weights.h5"
    args = ["convert", "subclass/ckpt", str(to), "--model", "build.py:subclass"]
    shape = ["--input", "x:float32[?,12]"]
    result = run_cli([*args, *shape, "--json"], cwd=models, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)["data"]
    assert (data["target"], data["check"]["state"], data["check"]["how"]) == (
        "h5",
        "passed",
        "bytes",
    )
    import tensorflow as tf

    model = load_build(models).subclass()
    model(np.zeros((1, 12), "f4"))
    model.load_weights(to)
    found = {one.path.split("/", 1)[1]: one.numpy() for one in model.variables}
    checkpoint = tf.train.load_checkpoint(str(models / "subclass" / "ckpt"))
    shapes = checkpoint.get_variable_to_shape_map()
    stored = [checkpoint.get_tensor(name) for name in shapes if name[0] != "_"]
    assert found
    for name, value in found.items():
        assert any(np.array_equal(value, one) for one in stored), name


def test_only_keras_has_keras_weights(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    args = ["convert", "embedding/ckpt", str(tmp_path / "m.weights.h5"), "--model"]
    result = run_cli([*args, "build.py:Embedding"], cwd=models, timeout=PATIENCE)
    assert result.returncode == 2, result.stderr
    assert "[model-kind]" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["m.h5", "m.npz"])
def test_elsewhere_a_model_means_nothing(models: Path, run_cli: RunCli, ending: str) -> None:
    args = ["convert", "subclass/ckpt", ending, "--model", "build.py:subclass"]
    result = run_cli(args, cwd=models)
    assert result.returncode == 2
    assert "[target-setting]" in result.stderr
