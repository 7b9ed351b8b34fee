"""What was tried to break the sources other than checkpoints, and what each has to do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError
from ckpttool.sources.registry import open_source
from tests.support.command import RunCli
from tests.support.crafted_files import safetensors


def test_half_a_character_in_the_name_of_an_array(tmp_path: Path) -> None:
    """No name that cannot be written as UTF-8 comes out of JSON."""
    path = tmp_path / "x.safetensors"
    header = {"a\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    path.write_bytes(safetensors(header, b"1234"))
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(path))
    assert (caught.value.id, caught.value.exit_code) == ("json-malformed", 20)


def test_a_size_past_all_bounds_in_a_signature(tmp_path: Path) -> None:
    tensor = {"name": "x:0", "dtype": "DT_FLOAT", "tensorShape": {"dim": [{"size": "HUGE"}]}}
    model = {"weightsManifest": [], "signature": {"inputs": {"x": tensor}}}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model).replace('"HUGE"', "1e999"))
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(path))
    assert caught.value.id == "json-malformed"


@pytest.fixture
def export(fixtures_dir: Path, tmp_path: Path) -> Path:
    """An export of its own, which may be spoiled."""
    copied = Path(shutil.copytree(fixtures_dir / "savedmodel", tmp_path / "export"))
    (copied / "assets").mkdir(exist_ok=True)  # as TensorFlow leaves it, and as git does not
    return copied


def refreshed(run_cli: RunCli, source: Path, export: Path, destination: Path) -> tuple[int, str]:
    result = run_cli(["convert", source, destination, "--to", "savedmodel", "--like", export])
    return result.returncode, result.stderr


@pytest.mark.parametrize("place", ["new", "assets/new"])
def test_an_export_refreshed_into_itself_is_not_copied_into_itself(
    run_cli: RunCli, fixtures_dir: Path, export: Path, place: str
) -> None:
    """The place where the result is made lies in the export, and is no part of it."""
    left = {path for path in export.rglob("*") if path.is_file()}
    code, stderr = refreshed(run_cli, fixtures_dir / "savedmodel", export, export / place)
    assert code == 0, stderr
    made = {path for path in (export / place).rglob("*") if path.is_file()}
    assert {path.relative_to(export / place) for path in made if ".report" not in path.name} == {
        path.relative_to(export) for path in left
    }
    assert not list(export.rglob(".ckpttool-*"))


def test_an_export_of_bottomless_folders(
    run_cli: RunCli, fixtures_dir: Path, export: Path, tmp_path: Path
) -> None:
    os.makedirs(export / "assets" / "/".join("d" * 200))
    code, stderr = refreshed(run_cli, fixtures_dir / "savedmodel", export, tmp_path / "new")
    assert (code, "limit-export-depth" in stderr) == (21, True), stderr
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_export_without_variables_or_without_a_graph(
    run_cli: RunCli, fixtures_dir: Path, export: Path, tmp_path: Path
) -> None:
    (export / "variables").rename(tmp_path / "elsewhere")
    code, stderr = refreshed(run_cli, fixtures_dir / "savedmodel", export, tmp_path / "new")
    assert (code, "it has no variables" in stderr) == (2, True), stderr
    (tmp_path / "elsewhere").rename(export / "variables")
    (export / "saved_model.pb").write_bytes(b"")
    code, stderr = refreshed(run_cli, fixtures_dir / "savedmodel", export, tmp_path / "new")
    assert (code, "has no graph" in stderr) == (2, True), stderr
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_half_a_character_in_a_map(run_cli: RunCli, fixtures_dir: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    names.write_text('{"global_step": "b\\ud800"}')
    source = fixtures_dir / "mlp-v1" / "model.ckpt-1000"
    result = run_cli(["edit", source, tmp_path / "new", "--map", names])
    assert (result.returncode, "half a character" in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize(
    "output",
    [
        "dense.onnx",
        "dense.bin",
        "model.ckpt-1000.index",
        "model.ckpt-1000.data-00000-of-00001",
    ],
)
def test_no_output_replaces_what_it_is_made_of(
    run_cli: RunCli, fixtures_dir: Path, tmp_path: Path, output: str
) -> None:
    """`--overwrite` with the wrong name does not cost a model."""
    folder = next(path.parent for path in fixtures_dir.glob(f"*/{output}"))
    shutil.copytree(folder, tmp_path / "made")
    source = tmp_path / "made" / output.replace("dense.bin", "dense.onnx")
    path = tmp_path / "made" / output
    before = path.read_bytes()
    for command, *options in (
        ["inspect", "--html", str(path)],
        ["load", "*", "-o", str(path), "--format", "json"],
    ):
        result = run_cli([command, source, *options, "--overwrite"])
        assert (result.returncode, "output-is-source" in result.stderr) == (31, True), result.stderr
    assert path.read_bytes() == before


def test_convert_replaces_neither_its_source_nor_a_file_that_is_no_report(
    run_cli: RunCli, tmp_path: Path
) -> None:
    source, other = tmp_path / "x.npz", tmp_path / "other"
    np.savez(source, a=np.arange(3), b=np.arange(4))
    other.write_text("kept")
    before = source.read_bytes()
    sure = ["--overwrite", "-y"]
    cases: list[tuple[list[str | Path], str]] = [
        ([source, source, "--include", "a", *sure], "output-is-source"),
        ([source, tmp_path / "y.npz", "--report", source, *sure], "exists"),
        ([source, tmp_path / "y.npz", "--report", other, *sure], "exists"),
    ]
    for arguments, code in cases:
        done = run_cli(["convert", *arguments])
        assert (done.returncode, done.stdout) == (31, "")
        assert f"[{code}]" in done.stderr
    assert (source.read_bytes(), other.read_text()) == (before, "kept")
    assert not (tmp_path / "y.npz").exists()
