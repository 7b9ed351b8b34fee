"""``convert ps://…`` to what needs a graph: TensorFlow restores a copy of the one snapshot."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.command import run_cli
from tests.support.live_stand_in import TOKEN, Training, gateway

MODEL = """
def build():
    import keras
    return keras.Sequential(
        [
            keras.Input((12,)),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(1, name="output"),
        ],
        name="regressor",
    )
"""


def test_a_live_model_is_converted_and_proven(tmp_path: Path, fixtures_dir: Path) -> None:
    """The report names the gateway, not the copy, of which nothing stays."""
    for package in ("tensorflow", "keras"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    (tmp_path / "model.py").write_text(MODEL)
    training = Training(tmp_path / "run", fixtures_dir / "keras3" / "ckpt-4")
    goal = tmp_path / "made" / "out.tflite"
    goal.parent.mkdir()
    with training.answering(), gateway(training.directory) as said:
        address = said["rest"].replace("http://", "ps://")
        model = ("--model", f"{tmp_path}/model.py:build", "--json")
        token = {"CKPTTOOL_TOKEN": TOKEN}
        done = run_cli(["convert", address, goal, *model], env=token, timeout=600)
        again = run_cli(["convert", address, goal, *model, "--check-only"], env=token, timeout=600)
        fits = run_cli(["diff", address, *model], env=token, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["check"]["state"] == "passed"
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["data"]["check"]["state"] == "passed"
    assert json.loads(fits.stdout)["data"]["restores"] is True, fits.stdout + fits.stderr
    report = json.loads((tmp_path / "made" / "out.tflite.report.json").read_bytes())
    assert report["source"]["values"] == address
    assert {path.name for path in goal.parent.iterdir()} == {"out.tflite", "out.tflite.report.json"}
