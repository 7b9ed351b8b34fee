"""``status`` and ``down`` on a ``run.json`` that a supervisor of that directory did not write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ckpttool.conversion.wire import plain
from ckpttool.errors import CorruptError, UnsafeError
from ckpttool.ops.serve_ps.status import down, status
from ckpttool.ps.process import start_of
from ckpttool.ps.run_dir import RunDirectory, RunState, TaskState
from tests.support.clusters import locked
from tests.support.command import run_cli


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no run directory may have ended."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    try:
        yield process
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def state_of(pid: int) -> RunState:
    return RunState("ready", pid, start_of(pid) or "", os.uname().nodename, time.time())


def test_a_copied_directory_ends_nobody(tmp_path: Path, bystander) -> None:
    (one := RunDirectory(str(tmp_path / "one"))).prepare()
    one.write(state_of(bystander.pid))
    with locked(tmp_path / "one"):
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        assert status(one.path).standing == "running"
        assert not down(str(tmp_path / "two")).was_running
        assert status(str(tmp_path / "two")).state.state == "failed"


def test_what_others_may_have_written_ends_nobody(tmp_path: Path, bystander) -> None:
    """Whoever can write run.json can hold the lock too."""
    RunDirectory(str(tmp_path)).write(state_of(bystander.pid))
    tmp_path.chmod(0o777)
    with locked(tmp_path), pytest.raises(UnsafeError) as caught:
        down(str(tmp_path))
    assert caught.value.id == "run-dir-shared"


@pytest.mark.parametrize(
    "change",
    [
        {"pid": "self"},
        {"pid": True},
        {"pid": None},
        {"pid": 1.5},
        {"start": None},
        {"node": 1},
        {"state": "asleep"},
        {"state": []},
        {"created": "now"},
        {"tasks": [{"job": 1, "index": 0, "pid": 1, "port": 1, "state": "ready"}]},
        {"tasks": [{"job": "ps", "index": "0", "pid": 1, "port": 1, "state": "ready"}]},
        {"tasks": ["ps"]},
        {"cluster": []},
        {"cluster": {"ps": "127.0.0.1:1"}},
        {"cluster": {"ps": [1]}},
        {"gateway": 1},
        {"token_file": ["token"]},
        {"error": "bad"},
    ],
)
def test_members_of_another_kind(tmp_path: Path, change: dict[str, object]) -> None:
    given = plain(state_of(os.getpid()))
    assert isinstance(given, dict)
    (tmp_path / "run.json").write_text(json.dumps(given | change))
    for ask in (status, down):
        with pytest.raises(CorruptError) as caught:
            ask(str(tmp_path))
        assert caught.value.id == "run-state"


def test_what_a_supervisor_writes_is_read_again(tmp_path: Path) -> None:
    task = TaskState("ps", 0, 7, None, "ready")
    state = replace(
        state_of(1), tasks=(task,), cluster={"ps": ["a:1"]}, error={"why": "x", "code": 1}
    )
    (run := RunDirectory(str(tmp_path))).write(state)
    assert run.read() == state


@pytest.mark.parametrize("pid", [0, -1, 2**31, 10**30])
def test_numbers_of_no_process(tmp_path: Path, pid: int) -> None:
    RunDirectory(str(tmp_path)).write(replace(state_of(os.getpid()), pid=pid))
    with locked(tmp_path):
        assert not down(str(tmp_path)).was_running


def test_a_state_that_is_no_file_of_ours(tmp_path: Path) -> None:
    RunDirectory(str(tmp_path)).write(state_of(os.getpid()))
    (tmp_path / "run.json").rename(tmp_path / "elsewhere.json")
    (tmp_path / "run.json").symlink_to("elsewhere.json")
    for command in ("status", "down"):
        ended = run_cli(["serve-ps", command, tmp_path])
        assert ended.returncode not in {0, 1, 70}, ended.stderr
        assert "Traceback" not in ended.stderr


def test_rows_of_nothing_are_left_out(tmp_path: Path) -> None:
    """A new user's find: `step -`, `gateway -` and `grpc -` after `down`."""
    RunDirectory(str(tmp_path)).write(replace(state_of(os.getpid()), state="stopped"))
    ended = run_cli(["serve-ps", "status", tmp_path])
    assert (ended.returncode, ended.stdout) == (1, "state\tstopped\n")
