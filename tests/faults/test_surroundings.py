"""Odd surroundings: locale C, a narrow terminal, no HOME, closed standard streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.small import write_small
from tests.support.command import RunCli, clean_environment
from tests.support.handmade import write_bundle

COMMANDS = ("inspect", "list", "verify")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A checkpoint with a damaged variable whose name is no ASCII."""
    name = "\u00fcml\u00e4ut/\u65e5\u672c".encode()
    return write_bundle(tmp_path, "m", {name: {"shape": (2,), "size": 8, "crc": 1}}, [bytes(8)])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": None, "LANG": None, "HOME": None, "PATH": None, "TERM": None},
        {"COLUMNS": "1"},
        {"COLUMNS": "100000", "TERM": "dumb"},
    ],
)
def test_the_environment_does_not_matter(
    run_cli: RunCli, damaged: Path, command: str, env: dict[str, str | None]
) -> None:
    for options in ([], ["--color", "always"], ["--json"]):
        done = run_cli([command, damaged, *options], env=env)
        assert done.returncode == (1 if command == "verify" else 0), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path: Path, command: str, closed: str) -> None:
    write_small(tmp_path)
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "ckpttool", command, "m"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if ">" not in closed.replace("2>", ""):
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
        return
    # What should have been printed went nowhere, and that is no success.
    assert done.returncode == 40
    assert ("[stdout]" in done.stderr) == ("2>" not in closed)


def test_a_full_device(tmp_path: Path) -> None:
    write_small(tmp_path)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ckpttool", "verify", "m"],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 41
    assert "[stdout]" in done.stderr


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_long_check_is_interrupted_at_once(
    tmp_path: Path, jobs: str, number: int, code: int
) -> None:
    size = 2**38  # sparse: minutes of reading, no bytes on disk
    write_bundle(tmp_path, "m", {b"v": {"dtype": 4, "shape": (size,), "size": size}}, [b""])
    os.truncate(tmp_path / "m.data-00000-of-00001", size)
    child = subprocess.Popen(
        [sys.executable, "-m", "ckpttool", "verify", "m", "--jobs", jobs, "--progress", "json"],
        cwd=tmp_path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert json.loads(child.stderr.readline())["total"] == size
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=120)
    assert (child.returncode, stdout) == (code, "")
    assert "Traceback" not in stderr
