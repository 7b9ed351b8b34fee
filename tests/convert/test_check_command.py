"""The check from the command line: real children, exit codes, JSON."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import ckpttool
from ckpttool.schemas import schema
from tests.support.command import RunCli

tf = pytest.importorskip("tensorflow")

#: TensorFlow in a child takes seconds, and minutes on a machine that is busy.
PATIENCE = 600.0


def test_check_only_answers_with_its_exit_code(
    models: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    """The result of one checkpoint, checked against it and against a newer one."""
    made = run_cli(
        ["convert", str(models / "mlp-resource"), "export", "--to", "savedmodel", "--json"],
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    assert made.returncode == 0, made.stderr
    data = json.loads(made.stdout)["data"]
    Draft202012Validator(schema("convert")).validate(data)
    assert (data["check"]["state"], data["report"]) == ("passed", "export.report.json")
    newer = tmp_path / "newer"
    shutil.copytree(models / "mlp-resource", newer)
    with ckpttool.open(models / "mlp-resource") as checkpoint:
        values = {name: checkpoint.read(name) for name in checkpoint}
    for path in newer.glob("model.ckpt-3.[di]*"):
        path.unlink()
    values["weights"] = values["weights"] * 0.5
    tf.raw_ops.SaveV2(
        prefix=str(newer / "model.ckpt-3"),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    args = ["convert", "newer", "export", "--to", "savedmodel", "--check-only"]
    result = run_cli([*args, "--json", "--report", "r.json"], cwd=tmp_path, timeout=PATIENCE)
    assert result.returncode == 52, result.stderr
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert document["data"]["applied"] is False
    check = document["data"]["check"]
    assert check["state"] == "failed"
    assert "NRMSE" in check["why"]
    assert any("differs from newer" in one for one in document["warnings"])
    report = json.loads((tmp_path / "r.json").read_text())
    Draft202012Validator(schema("convert-report")).validate(report)
    assert report["check"]["state"] == "failed"
