"""`ckpttool convert` from end to end: a real child, and what stands at the destination."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import RunCli, clean_environment

#: TensorFlow in a child takes seconds, and minutes on a machine that is busy.
PATIENCE = 600.0


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_plan_starts_nothing_and_writes_nothing(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    args = ["convert", str(models / "mlp-ref"), str(tmp_path / "x"), "--to", "savedmodel", "-n"]
    result = run_cli(args, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert result.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "ckpttool.conversion.origin" in imported
    assert not imported & {"tensorflow", "numpy"}
    assert "input\tserving_default\tinput\tfloat32[?,784]" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_list_needs_no_tensorflow(run_cli: RunCli) -> None:
    result = run_cli(["convert", "--list", "--json"])
    assert result.returncode == 0
    data = json.loads(result.stdout)["data"]
    assert {one["name"] for one in data["targets"]} >= {"savedmodel", "onnx", "safetensors"}
    assert all(one["works"] in {True, False} for one in data["sources"])


def test_an_export(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    args = ["convert", str(models / "mlp-ref"), "export", "--to", "savedmodel", "--no-check"]
    result = run_cli([*args, "--json"], cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    data = json.loads(result.stdout)["data"]
    assert data["applied"]
    assert {one["path"] for one in data["outputs"]} == files(tmp_path)
    assert all(one["bytes"] == (tmp_path / one["path"]).stat().st_size for one in data["outputs"])
    (signature,) = data["signatures"]
    assert signature["inputs"] == [{"name": "input", "dtype": "float32", "shape": [None, 784]}]
    again = run_cli([*args, "--json"], cwd=tmp_path)
    assert again.returncode == 31
    assert json.loads(again.stderr)["id"] == "exists"
    wrong = run_cli([*args, "--output", "outptu", "--json"], cwd=tmp_path)
    assert json.loads(wrong.stderr)["id"] == "tensor-not-found", "before the name that is taken"
    asked = run_cli([*args, "--overwrite"], cwd=tmp_path)
    assert asked.returncode == 4
    assert "replace export?" in asked.stderr


def test_d37_slots_that_tensorflow_2_cannot_load(tmp_path: Path, run_cli: RunCli) -> None:
    """D37: `'_UserObject' object has no attribute 'add_slot'`; the v1 loader takes it."""
    pytest.importorskip("tensorflow")
    script = tmp_path / "write.py"
    script.write_text(
        "import numpy as np, tf_keras as keras\n"
        "model = keras.Sequential([keras.layers.Dense(3, input_shape=(4,))])\n"
        "model.compile(keras.optimizers.legacy.Adam(), 'mse')\n"
        "model.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0)\n"
        "model.save('old', save_format='tf')\n"
        "x = np.ones((2, 4), 'float32')\n"
        "np.savez('expected.npz', x=x, y=model(x))\n"
    )
    pytest.importorskip("tf_keras")
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True, capture_output=True)
    # Where Keras 2 is installed TensorFlow imports it for this, and all is well.
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "tf_keras.py").write_text("raise ImportError('it is not installed')")
    path = f"{clean_environment()['PYTHONPATH']}:{tmp_path / 'absent'}"
    args = ["convert", "old", "new", "--to", "savedmodel", "--no-check"]
    result = run_cli(args, cwd=tmp_path, env={"PYTHONPATH": path}, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    assert "add_slot" in result.stderr

    import numpy as np
    import tensorflow as tf

    function = tf.saved_model.load(str(tmp_path / "new")).signatures["serving_default"]
    (name,) = function.structured_input_signature[1]
    with np.load(tmp_path / "expected.npz") as expected:
        (found,) = function(**{name: tf.constant(expected["x"])}).values()
        np.testing.assert_allclose(found, expected["y"], rtol=1e-5)


def test_fault_21_a_child_that_aborts(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """FAULTS 21: the exit code, the log kept and shown, the destination as it was."""
    export = tmp_path / "export"
    export.mkdir()
    (export / "saved_model.pb").write_text("the one before")
    args = ["convert", "subclass/ckpt", str(export), "--to", "savedmodel", "--overwrite", "-y"]
    log = tmp_path / "log.txt"
    result = run_cli(
        [*args, "--model", "build.py:aborting", "--log", str(log)],
        cwd=models,
        timeout=PATIENCE,
    )
    assert result.returncode == 51, result.stderr
    assert "[converter-died]" in result.stderr
    assert "SIGABRT" in result.stderr
    assert "the last words" in result.stderr
    assert "the last words" in log.read_text()
    assert result.stdout == ""
    assert files(tmp_path) == {"export/saved_model.pb", "log.txt"}
    assert (export / "saved_model.pb").read_text() == "the one before"


def test_fault_21_a_conversion_that_is_stopped(models: Path, tmp_path: Path) -> None:
    """FAULTS 21: SIGTERM ends the child too, and leaves nothing."""
    args = ["convert", "subclass/ckpt", str(tmp_path / "export"), "--to", "savedmodel"]
    with subprocess.Popen(
        [sys.executable, "-m", "ckpttool", *args, "--model", "build.py:hanging"],
        cwd=models,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        end = time.monotonic() + PATIENCE
        while not any(tmp_path.iterdir()):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert "[terminated]" in said
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_a_person_s_own_code(models: Path, tmp_path: Path, run_cli: RunCli) -> None:
    """The traceback is in what is shown of the log, and the log is kept for the rest of it."""
    args = ["convert", "subclass/ckpt", str(tmp_path / "x"), "--to", "savedmodel"]
    result = run_cli([*args, "--model", "build.py:broken"], cwd=models, timeout=PATIENCE)
    assert result.returncode == 51, result.stderr
    assert "[model-function-failed]" in result.stderr
    assert "RuntimeError: no data set here (build.py:" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_tensorflow_is_not_installed(models: Path, tmp_path: Path) -> None:
    """Exit 50, before anything is looked for."""
    packages = tmp_path / "packages"
    packages.mkdir()
    import click
    import cramjam
    import fastcrc

    for module in (click, cramjam, fastcrc):
        assert module.__file__ is not None
        home = Path(module.__file__).parent
        os.symlink(home, packages / home.name)
    env = clean_environment({"PYTHONPATH": f"{clean_environment()['PYTHONPATH']}:{packages}"})
    result = subprocess.run(
        [
            sys.executable,
            "-S",
            "-m",
            "ckpttool",
            "convert",
            str(models / "mlp-ref"),
            str(tmp_path / "x"),
            "--to",
            "savedmodel",
        ],
        env=env,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 50, result.stderr
    assert "pip install tensorflow" in result.stderr


def test_a_checkpoint_by_its_run_and_by_a_copy(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """The run's state file chooses, and the graph beside that checkpoint is taken."""
    shutil.copytree(models / "mlp-resource", tmp_path / "run")
    result = run_cli(["convert", "run", "x", "--to", "savedmodel", "-n", "--json"], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["data"]["graph"] == "run/model.ckpt-3.meta"
