"""Looking needs neither numpy nor TensorFlow, and loads neither: the start-up guard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ckpttool
from ckpttool.errors import UnsupportedError
from tests.support.command import clean_environment

HEAVY = ("h5py", "keras", "ml_dtypes", "numpy", "tensorflow", "tf2onnx")

#: Runs the command with HEAVY unimportable, then writes the names of all loaded modules.
WITHOUT_HEAVY = f"""
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
from ckpttool.cli.main import main

code = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    json.dump(sorted(sys.modules), file)
sys.exit(code)
"""

LOOKING = [
    ["list", "keras3"],
    ["list", "partitioned", "--json"],
    ["list", "dtypes/all", "--ndjson"],
    ["inspect", "mlp-v1"],
    ["inspect", "keras3", "--json"],
    ["inspect", "savedmodel"],
    ["inspect", "module/encoder", "--tree"],
    ["list", "keras3", "--kind", "model", "--map", "-"],
    ["diff", "keras3/@3", "keras3/@4", "--level", "meta", "--json"],
    ["diff", "mlp-v1", "mlp-v1", "--json"],
    ["diff", "mlp-v1", "--graph", "mlp-v1/model.ckpt-1000.meta", "--json"],
    ["verify", "v1"],
    ["verify", "two-shards"],
    ["verify", "dtypes/all", "--json"],
    ["verify", "two-shards", "--quick"],
    ["state", "keras3"],
    ["latest", "keras3"],
    ["--help"],
    ["--version"],
]


def run_without_heavy(
    args: list[str], fixtures: Path, loaded: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_HEAVY, str(loaded), *args],
        cwd=fixtures,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("args", LOOKING, ids=" ".join)
def test_looking_works_with_nothing_heavy_installed(
    args: list[str], fixtures_dir: Path, tmp_path: Path
) -> None:
    result = run_without_heavy(args, fixtures_dir, tmp_path / "loaded")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("args", [["list", "keras3"], ["verify", "two-shards"]], ids=" ".join)
def test_piped_output_loads_no_rich(args: list[str], fixtures_dir: Path, tmp_path: Path) -> None:
    run_without_heavy(args, fixtures_dir, tmp_path / "loaded")
    loaded = json.loads((tmp_path / "loaded").read_text())
    assert "ckpttool" in loaded
    assert [name for name in loaded if name.partition(".")[0] in ("rich", "pygments")] == []


def test_a_row_of_an_embedding_goes_to_npy_without_numpy(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows.npy"
    args = ["load", "mlp-v1", "hidden/weights[0:10]", "-o", str(out)]
    result = run_without_heavy(args, fixtures_dir, tmp_path / "loaded")
    assert result.returncode == 0, result.stderr
    assert out.stat().st_size > 10 * 16 * 4


@pytest.mark.parametrize("args", LOOKING, ids=" ".join)
def test_looking_imports_nothing_heavy_where_it_is_installed(
    args: list[str], fixtures_dir: Path
) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "ckpttool", *args],
        cwd=fixtures_dir,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    imported = {
        line.rpartition("|")[2].strip().partition(".")[0]
        for line in result.stderr.splitlines()
        if line.startswith("import time:")
    }
    assert "click" in imported
    assert imported & set(HEAVY) == set()


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys, ckpttool; print(*sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), capture_output=True, check=True
    )
    roots = {name.partition(".")[0] for name in result.stdout.decode().split()}
    assert roots & {"click", "cramjam", "fastcrc", "rich", *HEAVY} == set()


def test_a_missing_package_is_named_where_it_is_needed(fixtures_dir: Path, tmp_path: Path) -> None:
    average = ["average", "keras3/ckpt-3", "keras3/ckpt-4", "-o", str(tmp_path / "mean"), "-y"]
    result = run_without_heavy(average, fixtures_dir, tmp_path / "loaded")
    assert result.returncode == 12, result.stderr
    assert "error: this needs numpy\n" in result.stderr
    assert "next: pip install numpy  [package-missing]" in result.stderr
    for suffix in ("npy", "npz", "csv"):
        out = tmp_path / f"x.{suffix}"
        values = ["load", "dtypes", "array/float32", "-o", str(out)]
        saved = run_without_heavy(values, fixtures_dir, tmp_path / "loaded")
        assert saved.returncode == 0, saved.stderr
        assert out.stat().st_size > 0


def test_reading_without_numpy_names_it(
    fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with ckpttool.open(str(fixtures_dir / "dtypes")) as checkpoint:
        monkeypatch.setattr(checkpoint.source, "read", lambda *_: missing("numpy"))
        with pytest.raises(UnsupportedError, match="this needs numpy") as caught:
            checkpoint.read("array/float32")
        assert (caught.value.id, caught.value.hint) == ("package-missing", "pip install numpy")
        monkeypatch.setattr(checkpoint.source, "read", lambda *_: missing("ckpttool.nothing"))
        with pytest.raises(ModuleNotFoundError):  # a bug stays one
            checkpoint.read("array/float32")
