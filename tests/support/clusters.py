"""Clusters for tests: real ones, of which no process and no port outlives the test.

Every process of a cluster inherits a mark in its environment, by which those are found
whose parents have died.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ckpttool.storage.local import open_directory
from ckpttool.storage.lock import DirectoryLock
from tests.support.command import ROOT, clean_environment

__all__ = ["GATEWAY", "Cluster", "cluster", "locked", "marked", "port_is_open", "until"]

#: Where run.json says where the gateway listens.
GATEWAY = ("gateway", "gateway_grpc")
_MARK = "CKPTTOOL_TEST_CLUSTER"
#: Seconds after which something that ought to happen does not; a busy machine is slow.
PATIENCE = 120.0


def until(what: Callable[[], Any], why: str = "", seconds: float = PATIENCE) -> Any:
    """Wait until something is true, and give it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why or "it does not happen"
        time.sleep(0.02)
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A directory locked as a supervisor locks its own."""
    directory = open_directory(str(path))
    try:
        with DirectoryLock(directory):
            yield
    finally:
        directory.close()


def port_is_open(port: int) -> bool:
    """Whether anybody listens there."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def marked(mark: str) -> list[int]:
    """The processes that have this mark in their environment, dead ones left out."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                pass  # it has ended, or is not ours
    return found


class Cluster:
    """A supervisor in a child, and what it says.

    ``prefix`` are words before those of the interpreter: of a program that becomes it.
    """

    def __init__(
        self,
        folder: Path,
        words: list[str],
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.directory = folder / "run"
        self.mark = uuid.uuid4().hex
        self.output = folder / "events.ndjson"
        self.errors = folder / "errors.txt"
        with self.output.open("wb") as stdout, self.errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [
                    *[*prefix, sys.executable, "-m", "ckpttool", "serve-ps", *words],
                    *["--run-dir", str(self.directory), "--ndjson"],
                ],
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env={
                    **clean_environment(),
                    "PYTHONPATH": str(ROOT),
                    "OMP_NUM_THREADS": "1",
                    **(env or {}),
                    _MARK: self.mark,
                },
            )

    @property
    def state(self) -> dict[str, Any]:
        """What run.json says; empty where there is none yet."""
        try:
            loaded: dict[str, Any] = json.loads((self.directory / "run.json").read_bytes())
        except FileNotFoundError:
            return {}
        return loaded if loaded["pid"] == self.process.pid else {}

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened until now."""
        lines = self.output.read_text("utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def kinds(self) -> list[str]:
        """The kinds of the events until now."""
        return [event.get("kind", event["type"]) for event in self.events]

    def task(self, name: str) -> dict[str, Any]:
        """What run.json says of a task."""
        return next(one for one in self.state["tasks"] if f"{one['job']}-{one['index']}" == name)

    def wait_for(self, state: str = "ready") -> dict[str, Any]:
        """Wait until run.json says so; fail with what the supervisor said if it ends before."""

        def reached() -> bool:
            if self.state.get("state") == state:
                return True
            assert self.process.poll() is None, self.said()
            return False

        until(reached, f"it does not become {state}")
        return self.state

    def wait_for_restart(self, name: str, pid: int) -> dict[str, Any]:
        """Wait until a task that had this process has another one, and all is ready again."""

        def again() -> bool:
            assert self.process.poll() is None, self.said()
            return self.state["state"] == "ready" and self.task(name)["pid"] not in {pid, None}

        until(again, f"{name} does not come back: {self.said()}")
        return self.task(name)

    def said(self) -> str:
        """All that it said, with the ends of its logs, for a failed assertion."""
        logs = sorted((self.directory / "logs").glob("*.log")) if self.directory.exists() else []
        texts = [f"--- {path.name}\n{path.read_text('utf-8', 'replace')[-1500:]}" for path in logs]
        return "\n".join([self.output.read_text("utf-8"), self.errors.read_text("utf-8"), *texts])

    def interrupt(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; gives the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def processes(self) -> list[int]:
        """Every process of it that lives."""
        return marked(self.mark)

    def ports(self) -> list[int]:
        """Every port that a task has been given."""
        ports = [
            int(address.rpartition(":")[2])
            for addresses in (self.state.get("cluster") or {}).values()
            for address in addresses
        ]
        gateway = [self.state.get(one) for one in GATEWAY]
        return [*ports, *(int(one.rpartition(":")[2]) for one in gateway if one)]

    def wait_until_gone(self) -> None:
        """Hold that no process and no port of it is left."""
        ports = self.ports()
        until(lambda: not self.processes(), "processes are left")
        # A process that ends gives up its memory, by which it is found, before its sockets.
        until(lambda: not any(map(port_is_open, ports)), "a port stays open")


@contextmanager
def cluster(
    folder: Path, *words: str, env: dict[str, str] | None = None, prefix: Sequence[str] = ()
) -> Iterator[Cluster]:
    """``ckpttool serve-ps WORDS`` in a folder; nothing of it is left afterwards."""
    running = Cluster(folder, list(words), env, prefix)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            try:
                running.process.wait(20)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
        left = []
        deadline = time.monotonic() + 20
        while (left := running.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"{len(left)} processes outlived the test"
