"""``inspect`` of files of arrays and of whole models: kind, totals, what a model says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.cli.main import main
from ckpttool.ops.inspect import inspect
from tests.support.tfjs_model import Quantised, write_tfjs


def inspected(address: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["inspect", str(address), "--json", *more]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)["data"]
    return data


@pytest.mark.parametrize(
    ("address", "kind", "variables", "parameters", "nbytes"),
    [
        ("arrays/model.safetensors", "safetensors", 9, 113, 351),
        ("arrays/model-7.npz", "npz", 6, 93, 319),
        ("arrays/embedding.npy", "npz", 1, 24, 48),
        ("models/dense.onnx", "onnx", 5, 69, 271),
        ("models/dense.tflite", "tflite", 2, 35, 140),
        ("models/tfjs", "tfjs", 4, 68, 263),
    ],
)
def test_kind_and_totals(
    fixtures_dir: Path,
    address: str,
    kind: str,
    variables: int,
    parameters: int,
    nbytes: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = inspected(fixtures_dir / address, capsys)
    assert data["kind"] == kind
    assert (data["variables"], data["parameters"]) == (variables, parameters)
    assert data["bytes"] == nbytes
    assert data["problems"] == []
    assert all(shard["present"] for shard in data["shards"])
    assert (data["style"], data["run"], data["graph"]) == (None, None, None)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("h5-tfjs-fsrcnn/tfjs_model", "tfjs"),
        ("h5-tfjs-fsrcnn/tfjs_model/FSRCNN", "tfjs"),
        ("multi-regression-allformats/regression/tflite/model.tflite", "tflite"),
        ("keras3-mnist-weights-sm-tflite/mnist_model.tflite", "tflite"),
        ("sm-halfplustwo-tf2", "tflite"),
    ],
)
def test_corpus_files_have_their_kind(corpus: Path, address: str, kind: str) -> None:
    path = corpus / address
    if address == "sm-halfplustwo-tf2":
        (path,) = path.rglob("*.tflite")
    result = inspect(str(path))
    assert result.kind == kind
    assert result.checkpoint is not None
    assert result.checkpoint.model is not None


def test_what_a_model_says_of_itself(
    fixtures_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = inspected(fixtures_dir / "models" / "dense.onnx", capsys, "--graph")
    assert data["model"] == {
        "form": "ONNX IR 10",
        "writer": "fixtures/make_arrays.py",
        "opsets": {"ai.onnx": 18},
        "ops": {"Add": 1, "MatMul": 1},
        "quantised": 0,
    }
    x = {"name": "x", "tensor": "x", "dtype": "float32", "shape": [-1, 6]}
    y = {"name": "y", "tensor": "y", "dtype": "float32", "shape": [-1, 5]}
    signature = {"name": "", "tags": [], "method": "", "inputs": [x], "outputs": [y]}
    assert data["signatures"] == [signature]
    lite = inspected(fixtures_dir / "models" / "dense.tflite", capsys)
    assert [one["name"] for one in lite["signatures"]] == ["serving_default"]
    assert lite["model"]["ops"] == {"FULLY_CONNECTED": 1}
    assert main(["inspect", str(fixtures_dir / "models" / "tfjs")]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert ["form", "graph-model"] in rows
    assert ["op", "Const", "4"] in rows
    assert ["signature", "", "input", "x", "float32", "[-1,6]", "x:0"] in rows


def test_what_is_missing_or_odd_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = {"w": np.zeros(40, np.float32), "q": Quantised(np.zeros(3, np.uint8))}
    directory, paths = write_tfjs(tmp_path / "m", weights, shard=100)
    (directory / paths[0]).unlink()
    data = inspected(directory, capsys)
    assert data["model"]["quantised"] == 1
    assert [problem["id"] for problem in data["problems"]] == ["weights-missing"]
    assert [shard["present"] for shard in data["shards"]] == [False, True]
    np.savez(tmp_path / "x.npz", o=np.array([{}], object))
    assert [p["id"] for p in inspected(tmp_path / "x.npz", capsys)["problems"]] == ["npz-opaque"]
