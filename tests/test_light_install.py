"""The light install of the README: the core commands without TensorFlow."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckpttool.errors import UnsupportedError
from tests.support.command import ROOT, clean_environment

pytestmark = pytest.mark.slow


def light_commands() -> list[str]:
    """The pip commands of the README's section, so that what is written is what is tested."""
    section = (ROOT / "README.md").read_text("utf-8").partition("## Light install")[2]
    commands = re.findall(r"^\$ pip install (.+)$", section.partition("\n## ")[0], re.MULTILINE)
    assert len(commands) == 2
    return commands


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the light install; the folder of its programs."""
    place = tmp_path_factory.mktemp("light") / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    python = str(place / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    for command in light_commands():
        subprocess.run([*pip, *constraints, *command.split()], cwd=ROOT, check=True)
    return place / "bin"


def run(light: Path, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = clean_environment({"PYTHONPATH": None})
    return subprocess.run(
        [light / "ckpttool", *args], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def test_what_it_holds(light: Path) -> None:
    listing = subprocess.run(
        [light / "python", "-m", "pip", "list", "--format=freeze"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {line.partition("==")[0].lower() for line in listing.stdout.splitlines()}
    assert {"ckpttool", "click", "rich", "fastcrc", "cramjam"} <= names
    assert names & {"tensorflow", "numpy", "tf2onnx", "h5py", "ml-dtypes"} == set()


@pytest.mark.parametrize(
    "args",
    [
        ["inspect", "mlp-v1"],
        ["inspect", "savedmodel", "--json"],
        ["list", "keras3"],
        ["list", "partitioned", "--json"],
        ["verify", "two-shards"],
        ["state", "keras3"],
        ["latest", "keras3"],
        ["explain", "shard-missing"],
        ["doctor"],
        ["completion", "bash"],
    ],
    ids=" ".join,
)
def test_core_commands(light: Path, fixtures_dir: Path, args: list[str]) -> None:
    result = run(light, *args, cwd=fixtures_dir)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_it_tells_damage(light: Path, fixtures_dir: Path) -> None:
    result = run(light, "verify", "damaged/flipped-bit", cwd=fixtures_dir)
    assert result.returncode == 1
    assert "tower/kernel" in result.stdout


@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "json"])
def test_rows_go_to_a_file(light: Path, fixtures_dir: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"rows.{ending}"
    result = run(light, "load", "mlp-v1", "hidden/weights[0:10]", "-o", str(out), cwd=fixtures_dir)
    assert result.returncode == 0, result.stderr
    assert out.stat().st_size > 10 * 16 * 4


@pytest.mark.parametrize(
    "args",
    [
        ["cp", "two-shards", "OUT"],
        ["repartition", "two-shards", "OUT", "--shards", "3"],
        ["edit", "mlp-v1", "OUT", "--strip-optimizer"],
    ],
    ids=" ".join,
)
def test_what_moves_bytes(light: Path, fixtures_dir: Path, tmp_path: Path, args: list[str]) -> None:
    out = str(tmp_path / "out")
    result = run(light, *[out if arg == "OUT" else arg for arg in args], cwd=fixtures_dir)
    assert result.returncode == 0, result.stderr
    assert run(light, "verify", out, cwd=fixtures_dir).returncode == 0


def test_what_computes_says_what_it_wants(light: Path, fixtures_dir: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    result = run(light, "edit", "mlp-v1", out, "--cast", "float16", cwd=fixtures_dir)
    assert result.returncode == UnsupportedError.exit_code
    assert "pip install numpy" in result.stderr
    for args in (["stats", "mlp-v1"], ["inspect", "mlp-v1", "--html", out]):
        result = run(light, *args, cwd=fixtures_dir)
        assert result.returncode == UnsupportedError.exit_code
        assert "pip install numpy" in result.stderr
        assert list(tmp_path.iterdir()) == []


def test_the_wheel_has_what_goes_into_a_page(light: Path) -> None:
    code = "import ckpttool.cli.html.page as page; print(page._asset('report.css'))"
    done = subprocess.run([light / "python", "-c", code], capture_output=True, text=True)
    assert "prefers-color-scheme" in done.stdout, done.stderr


def test_a_program_can_list_and_verify(light: Path, fixtures_dir: Path) -> None:
    code = (
        "import ckpttool\n"
        "with ckpttool.open('mlp-v1') as checkpoint:\n"
        "    assert checkpoint['hidden/weights'].shape == (784, 16)\n"
        "assert ckpttool.verify('mlp-v1').healthy\n"
    )
    subprocess.run([light / "python", "-c", code], cwd=fixtures_dir, check=True)
