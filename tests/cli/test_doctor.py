"""`ckpttool doctor`: facts, libraries, and storage that is really tried."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys

import pytest

from ckpttool.ops.doctor import doctor
from ckpttool.version import __version__
from tests.support.command import clean_environment


def test_it_reports_this_installation(run_cli, tmp_path) -> None:
    result = run_cli(["doctor", tmp_path, "--json"])
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)["data"]
    assert data["ckpttool"] == __version__
    assert platform.python_version() in data["python"]
    versions = {library["name"]: library["version"] for library in data["libraries"]}
    assert versions["click"] == importlib.metadata.version("click")
    assert all(check["passed"] for check in data["checks"])
    assert list(tmp_path.iterdir()) == []


def test_plain_has_a_line_a_fact(run_cli) -> None:
    lines = [line.split("\t") for line in run_cli(["doctor"]).stdout.splitlines()]
    assert ["fact", "ckpttool", __version__] in lines
    assert {line[0] for line in lines} == {"fact", "library", "check"}


def test_it_imports_none_of_what_it_reports() -> None:
    code = (
        "import sys; from ckpttool.cli.main import main; main(['doctor', '-v']);"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment()
    )
    assert set(result.stderr.splitlines()) & {"tensorflow", "numpy", "ml_dtypes", "rich"} == set()


def test_a_library_that_is_not_installed(monkeypatch) -> None:
    def version(name: str) -> str:
        if name in {"tensorflow", "cramjam"}:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr("importlib.metadata.version", version)
    result = doctor()
    assert {lib.name: lib.version for lib in result.libraries}["tensorflow"] is None
    assert not result.healthy
    assert "missing: cramjam" in [check.detail for check in result.checks]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission(run_cli, tmp_path) -> None:
    tmp_path.chmod(0o500)
    result = run_cli(["doctor", tmp_path])
    assert result.returncode == 1
    assert "Permission denied" in result.stdout


@pytest.mark.parametrize("where", ["missing", "file"])
def test_a_directory_that_cannot_be_written(where, run_cli, tmp_path) -> None:
    (tmp_path / "file").touch()
    result = run_cli(["doctor", tmp_path / where])
    assert result.returncode == 1
    assert "check\tstorage\tfailed" in result.stdout


def test_a_file_system_without_links_is_found(monkeypatch, tmp_path) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    monkeypatch.setattr("os.symlink", no_links)
    checks = {check.name: check for check in doctor(str(tmp_path)).checks}
    assert not checks["links are not followed (O_NOFOLLOW)"].passed
    assert list(tmp_path.iterdir()) == []


def test_limits_that_are_set_and_that_are_wrong(run_cli) -> None:
    lines = run_cli(["doctor"], env={"CKPTTOOL_LIMITS": "rank=9"}).stdout.splitlines()
    assert "fact\tlimit\trank 9 (default 254)" in lines
    wrong = run_cli(["doctor", "--json"], env={"CKPTTOOL_LIMITS": "rnk=9"})
    assert wrong.returncode == 1
    document = json.loads(wrong.stdout)
    assert document["ok"] is False
    (failed,) = [check for check in document["data"]["checks"] if not check["passed"]]
    assert "unknown limit 'rnk'" in failed["detail"]
