"""People who look into files of any kind: what is in them, and what they are called."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import RunCli

EVERY_KIND = [
    "mlp-v1",
    "keras3",
    "savedmodel",
    "v1",
    "keras-files/keras3.h5",
    "keras-files/keras3.weights.h5",
    "keras-files/keras3.keras",
    "arrays/model.safetensors",
    "arrays/model-7.npz",
]


@pytest.mark.parametrize("address", EVERY_KIND)
def test_d07_what_is_in_the_file_without_a_graph(
    fixtures_dir: Path, run_cli: RunCli, address: str
) -> None:
    """'I just want to know what is in the file': name, dtype, shape, bytes, kind, totals."""
    lines = run_cli(["list", address], cwd=fixtures_dir).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    assert all(len(row) == 6 for row in rows)
    data = json.loads(run_cli(["list", address, "--json"], cwd=fixtures_dir).stdout)["data"]
    assert [row[0] for row in rows] == [one["name"] for one in data["variables"]]
    shown = run_cli(["list", address, "--color", "always"], cwd=fixtures_dir).stdout
    assert f"{len(rows):,} variables, " in shown.splitlines()[-1]
    kinds = {row[5] for row in rows}
    assert "model" in kinds
    chosen = run_cli(["list", address, "-q", "--kind", "model"], cwd=fixtures_dir).stdout
    assert chosen.splitlines() == [row[0] for row in rows if row[5] == "model"]
    last = chosen.splitlines()[-1]
    command = ["list", address, "-q", "--include", f"*{last[2:]}", "--exclude", "zzz*"]
    assert last in run_cli(command, cwd=fixtures_dir).stdout.splitlines()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("model.ckpt", "model.ckpt-42"),
        ("model-42", "model.ckpt-42"),
        ("model.ckpt-24", "model.ckpt-42"),
        ("model.ckpt-42.ckpt", "model.ckpt-42"),
    ],
)
@pytest.mark.parametrize("command", ["list", "inspect", "verify", "diff"])
def test_d08_a_prefix_that_is_slightly_wrong(
    fixtures_dir: Path, tmp_path: Path, run_cli: RunCli, command: str, typed: str, meant: str
) -> None:
    """What was looked for, and the prefixes that are there."""
    shutil.copytree(fixtures_dir / "two-shards", tmp_path / "run")
    second = ["run"] if command == "diff" else []
    done = run_cli([command, f"run/{typed}", *second], cwd=tmp_path)
    assert done.returncode == 10
    assert f"run/{typed}" in done.stderr
    assert f"run/{meant}" in done.stderr


@pytest.mark.parametrize("command", ["list", "inspect", "verify", "diff"])
def test_d08_an_empty_address_and_a_folder(
    fixtures_dir: Path, run_cli: RunCli, command: str
) -> None:
    """A variable of a script that was not set is no folder; a folder is its newest checkpoint."""
    second = ["two-shards"] if command == "diff" else []
    assert run_cli([command, "", *second], cwd=fixtures_dir).returncode == 2
    assert run_cli([command, "two-shards", *second], cwd=fixtures_dir).returncode == 0


@pytest.mark.parametrize(
    ("address", "kind", "style"),
    [
        ("v1", "tf-v1", "name"),
        ("mlp-v1/model.ckpt-1000", "tf-v2", "name"),
        ("keras3/ckpt-4", "tf-v2", "object"),
        ("savedmodel", "savedmodel", "object"),
    ],
)
def test_d18_the_style_is_said(
    fixtures_dir: Path, run_cli: RunCli, address: str, kind: str, style: str
) -> None:
    """V1, V2 name-based, V2 object-based or SavedModel, before anything can go wrong."""
    data = json.loads(run_cli(["inspect", address, "--json"], cwd=fixtures_dir).stdout)["data"]
    assert data["style"] == style
    compared = run_cli(["diff", address, "mlp-v1", "--level", "keys", "--json"], cwd=fixtures_dir)
    side = json.loads(compared.stdout)["data"]["a"]
    assert (side["kind"], side["style"]) == (kind, style)
