"""The small parts of a cluster, each by itself: messages, ports, timers, run directories."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import (
    ClusterError,
    CorruptError,
    InternalError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UnsafeError,
)
from ckpttool.ps import live_protocol
from ckpttool.ps.channel import Channel, Inbox
from ckpttool.ps.cluster import Address
from ckpttool.ps.live_client import LiveClient
from ckpttool.ps.ports import free_ports, is_ours, require_free
from ckpttool.ps.process import start_of
from ckpttool.ps.restarts import PATIENT, Restarts
from ckpttool.ps.run_dir import RunDirectory, RunState, TaskState
from ckpttool.ps.tied import end_tied, spawn_tied
from ckpttool.ps.timers import Timers
from tests.support.clusters import locked, until
from tests.support.command import ROOT

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


# -- live.sock ---------------------------------------------------------------------------


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=4))
def test_messages_arrive_as_they_were_sent(messages) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in messages:
            live_protocol.send(ours, message)
        ours.shutdown(socket.SHUT_WR)
        for message in messages:
            assert live_protocol.receive(theirs) == message
        assert live_protocol.receive(theirs) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0",
        b"\0\0\0\5{}",
        b"\xff\xff\xff\xff",
        b"\0\0\0\2[]",
        b"\0\0\0\1{",
        b"\0\0\0\4\xff\xfe\xfd\xfc",
        b"\0\1\x86\xa0" + b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_corrupt(data) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(CorruptError) as caught:
            live_protocol.receive(theirs)
    assert caught.value.id == "live-protocol"


def test_a_message_that_is_too_long_is_not_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(InternalError, match="too long"):
        live_protocol.send(ours, {"a": "x" * live_protocol.FRAME_BYTES})


def test_errors_are_raised_again_as_they_were() -> None:
    error = RefusedError("no", why="because", hint="do that", id="cluster-open")
    again = live_protocol.error_of(live_protocol.failure(error)["error"])  # type: ignore[arg-type]
    assert type(again) is RefusedError
    assert again.as_dict() == error.as_dict()
    for kind in ("missing_package", "annotations", "Nothing", "CkpttoolError", None):
        assert live_protocol.error_of({"kind": kind, "message": "x"}).exit_code == 70


def serve(directory: Path, answers: list[bytes | None]) -> threading.Thread:
    """Answer on live.sock with these bytes, one a request; None: close without."""
    listener = socket.socket(socket.AF_UNIX)
    with live_protocol.socket_address(str(directory)) as address:
        listener.bind(address)
    listener.listen()

    def work() -> None:
        with listener:
            while answers:
                connection, _ = listener.accept()
                with connection:
                    while answers and live_protocol.receive(connection) is not None:
                        answer = answers.pop(0)
                        if answer is None:
                            break
                        connection.sendall(answer)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def frame(message: object) -> bytes:
    data = json.dumps(message).encode()
    return len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("deep", [False, True], ids=["short path", "long path"])
def test_a_client_asks(tmp_path, deep) -> None:
    directory = tmp_path.joinpath(*(["d" * 60] * 4 if deep else []))
    directory.mkdir(parents=True, exist_ok=True)
    refused = live_protocol.failure(RefusedError("no", why="w", hint="h", id="cluster-open"))
    thread = serve(
        directory,
        [frame({"ok": True, "value": {"step": 7}}), frame(refused), None, frame({"ok": True})],
    )
    with LiveClient(str(directory)) as client:
        assert client.ask("status") == {"step": 7}
        with pytest.raises(RefusedError) as caught:
            client.ask("write", source="x")
        assert caught.value.id == "cluster-open"
        with pytest.raises(UnreachableError) as lost:
            client.ask("status")
        assert (lost.value.id, lost.value.exit_code) == ("live-unreachable", 60)
        assert client.ask("status") == {}  # it connects anew
    thread.join(10)
    with pytest.raises(UnreachableError), LiveClient(str(tmp_path / "none")) as client:
        client.ask("status")


def test_a_client_does_not_wait_for_ever(tmp_path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / live_protocol.SOCKET_NAME))
        listener.listen()
        with (
            LiveClient(str(tmp_path), timeout=0.05) as client,
            pytest.raises(UnreachableError) as caught,
        ):
            client.ask("status")
    assert caught.value.id == "live-timeout"


# -- channels ------------------------------------------------------------------------------


def test_a_channel() -> None:
    ours, theirs = socket.socketpair()
    inbox = Inbox(ours)
    assert inbox.read() == []
    channel = Channel(theirs.detach())
    channel.send({"event": "ready"})
    channel.send({"event": "done", "text": "ü\n"})
    assert inbox.read() == [{"event": "ready"}, {"event": "done", "text": "ü\n"}]
    channel._socket.close()
    assert until(inbox.read) == [Inbox.CLOSED]
    inbox.close()
    inbox.close()


@pytest.mark.parametrize("data", [b"nonsense\n", b"[1]\n", b"{" * 50 + b"\n", b"\xff\n"])
def test_a_child_that_speaks_nonsense_is_one_that_has_ended(data) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        inbox = Inbox(ours)
        theirs.sendall(b'{"event": "ready"}\n' + data)
        assert until(inbox.read) == [{"event": "ready"}, Inbox.CLOSED]
        inbox.close()


def test_a_line_without_end_is_one_too() -> None:
    ours, theirs = socket.socketpair()
    inbox = Inbox(ours)
    with theirs:
        theirs.setblocking(False)
        messages = []
        for _ in range(1000):
            try:
                theirs.send(b"x" * 2**16)
            except BlockingIOError:
                pass
            if messages := inbox.read():
                break
        assert messages == [Inbox.CLOSED]
        inbox.close()


# -- processes -----------------------------------------------------------------------------


def test_a_process_is_known_by_its_start() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = start_of(child.pid)
        assert start is not None
        assert start == start_of(child.pid)
        assert start_of(os.getpid()) not in {start, None}
        child.kill()
        # Not reaped yet: the number is taken, but nobody is there.
        until(lambda: start_of(child.pid) is None)
    assert start_of(child.pid) is None


def test_a_tied_program_runs_and_ends_with_us(tmp_path) -> None:
    log = tmp_path / "log"
    child = spawn_tied("ckpttool", ["--version"], log=str(log))
    assert child.wait(60) == 0
    end_tied(child)
    assert log.read_text().startswith("ckpttool ")


def test_a_tied_program_ends_when_its_parent_is_killed(tmp_path) -> None:
    program = tmp_path / "sleeper.py"
    program.write_text(
        "import os, subprocess, sys, time\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(os.getpid(), other.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    code = (
        "import sys, time; from ckpttool.ps.tied import spawn_tied;"
        "spawn_tied('sleeper', [], log=sys.argv[1]); time.sleep(1000)"
    )
    log = tmp_path / "log"
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(log)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    pids = [int(word) for word in log.read_text().split()]
    parent.kill()
    parent.wait()
    until(lambda: [start_of(pid) for pid in pids] == [None, None], "they stay")


def test_ending_a_tied_program_ends_all_that_it_started(tmp_path, monkeypatch) -> None:
    program = tmp_path / "stubborn.py"
    program.write_text(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(other.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    log = tmp_path / "log"
    child = spawn_tied("stubborn", [], log=str(log))
    other = int(until(lambda: log.exists() and log.read_text()))
    end_tied(child)
    assert child.returncode == -signal.SIGKILL
    until(lambda: start_of(other) is None)


# -- ports ---------------------------------------------------------------------------------


def test_free_ports_are_free_and_differ() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        require_free(port, "ps-0")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_is_taken(host) -> None:
    with socket.socket() as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ClusterError) as caught:
            require_free(port, "ps-0")
    assert (caught.value.id, caught.value.exit_code) == ("port-taken", 61)
    assert str(port) in caught.value.what


def test_whose_address() -> None:
    assert is_ours(Address("localhost", 1))
    assert is_ours(Address("127.0.0.1", 1))
    assert not is_ours(Address("192.0.2.1", 1))  # of documentation: nobody's


# -- restarts and timers ---------------------------------------------------------------------


def test_restarts_wait_longer_each_time_and_then_give_up() -> None:
    restarts = Restarts()
    pauses = [restarts.after_end(now) for now in range(6)]
    assert pauses == [0.0, 0.25, 0.5, 1.0, 2.0, None]
    assert restarts.total == 5


def test_what_ran_for_a_while_is_forgiven() -> None:
    restarts = Restarts()
    assert [restarts.after_end(now * 100.0) for now in range(20)] == [0.0] * 20


def test_patience_covers_a_minute() -> None:
    assert sum(PATIENT) > 60
    assert max(PATIENT) < 60  # or each end would be forgotten before the next


def test_timers_run_in_order() -> None:
    timers = Timers()
    assert timers.wait() is None
    done: list[str] = []
    timers.after(0.02, lambda: done.append("second"))
    timers.after(0.01, lambda: done.append("first"))
    timers.after(1000, lambda: done.append("never"))
    while len(done) < 2:
        time.sleep(min(timers.wait() or 0, 1))
        timers.run()
    assert done == ["first", "second"]
    assert 900 < (timers.wait() or 0) <= 1000


# -- the run directory -----------------------------------------------------------------------

STATE = RunState(
    state="ready",
    pid=os.getpid(),
    start=start_of(os.getpid()) or "",
    node=os.uname().nodename,
    created=1.5,
    tasks=(TaskState("ps", 0, 12, 34, "ready"), TaskState("chief", 0, None, None, "waiting")),
    cluster={"ps": ["127.0.0.1:34"]},
    error={"id": "x"},
)


def test_a_state_comes_back(tmp_path) -> None:
    run = RunDirectory(str(tmp_path / "a" / "run"))
    run.prepare()
    run.write(STATE)
    assert run.read() == STATE
    run.write(replace(STATE, state="stopped"))
    assert run.read().state == "stopped"
    assert stat.S_IMODE(os.stat(run.path).st_mode) == 0o700


def test_who_is_who(tmp_path) -> None:
    run = RunDirectory(str(tmp_path))
    assert run.standing(STATE) == "ended"  # a copy: nobody holds this directory
    with locked(tmp_path):
        assert run.standing(STATE) == "running"
        assert run.standing(replace(STATE, start="another")) == "ended"
        assert run.standing(replace(STATE, node="another")) == "elsewhere"


def test_no_state(tmp_path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFoundError) as caught:
            RunDirectory(str(directory)).read()
        assert caught.value.id == "no-cluster"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"3",
        b"\xff",
        b"[" * 100_000,
        b'{"state": 1, "tasks": 5}',
        b" " * 2**21,
    ],
    ids=lambda data: repr(data[:10]),
)
def test_a_damaged_state(tmp_path, data) -> None:
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(CorruptError) as caught:
        RunDirectory(str(tmp_path)).read()
    assert caught.value.id == "run-state"


def test_a_directory_that_others_write_in_is_refused(tmp_path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(UnsafeError) as caught:
        RunDirectory(str(directory)).prepare()
    assert caught.value.id == "run-dir-shared"


def test_a_token_is_made_once_and_is_private(tmp_path) -> None:
    run = RunDirectory(str(tmp_path))
    path = Path(run.make_token())
    token = path.read_text()
    assert len(token.strip()) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run.make_token() == str(path)
    assert path.read_text() == token
    path.write_bytes(b"")  # as a supervisor leaves it that is killed in between
    assert Path(run.make_token()).read_text() not in {"", token}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
