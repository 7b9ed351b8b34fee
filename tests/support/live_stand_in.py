"""What answers on ``live.sock`` without a training: a checkpoint, copied for each snapshot."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ckpttool.conversion.wire import encode
from ckpttool.errors import UsageError
from ckpttool.ps.runtime.durations import Durations
from ckpttool.ps.runtime.live_server import LiveServer
from ckpttool.ps.setup import GatewaySetup
from tests.support.command import ROOT

__all__ = ["TOKEN", "Training", "gateway", "gateway_process"]

TOKEN = "a-token-of-the-tests"


class Training:
    """Snapshots of a run directory; ``number`` counts those that were made."""

    def __init__(self, directory: Path, prefix: Path) -> None:
        self.directory = directory
        self.prefix = prefix
        self.number = 0
        self.step = 100
        self.durations = Durations()
        #: Snapshots, and exports, wait until it is set.
        self.snapshotting, self.exporting = threading.Event(), threading.Event()
        self.snapshotting.set()
        self.exporting.set()
        #: Seconds that snapshots are old when they are made.
        self.behind = 0.0
        self.snapshots: list[dict[str, Any]] = []
        self.exports: list[dict[str, Any]] = []
        self.losses: dict[str, float] = {"loss": 0.25, "odd": math.nan}
        self.requests: list[Mapping[str, Any]] = []
        (directory / "snapshots").mkdir(parents=True)
        (directory / "token").write_text(TOKEN + "\n")

    @contextmanager
    def answering(self) -> Iterator[None]:
        handlers = {"status": self._status, "snapshot": self._snapshot, "export": self._export}
        with LiveServer(str(self.directory), handlers):
            yield

    def remove_old(self) -> None:
        """Remove all snapshots but the newest, as a training does."""
        for path in (self.directory / "snapshots").iterdir():
            if not path.name.startswith(f"snap-{self.number}."):
                path.unlink()

    def _status(self, _: Mapping[str, Any]) -> object:
        return {
            "mode": "hosted",
            "step": self.step,
            "rate": 12.5,
            "losses": self.losses,
            "consistent": True,
            "variables": 7,
            "bytes": 4096,
            "per_ps": [
                {"ps": 0, "variables": 4, "bytes": 3000},
                {"ps": 1, "variables": 3, "bytes": 1096},
            ],
            "snapshots": self.snapshots,
            "exports": self.exports,
            "syncs": {"ok": self.number, "failed": 1},
            "durations": {"snapshot": self.durations.as_dict(), "export": Durations().as_dict()},
        }

    def _snapshot(self, message: Mapping[str, Any]) -> object:
        self.requests.append(message)
        age = message.get("max_age")
        if self.snapshots and age is not None and time.time() - self.snapshots[-1]["time"] < age:
            return self.snapshots[-1]
        self.snapshotting.wait()
        self.number += 1
        self.step += 1
        prefix = self.directory / "snapshots" / f"snap-{self.number}"
        for path in self.prefix.parent.glob(self.prefix.name + ".*"):
            shutil.copyfile(path, f"{prefix}{path.name.removeprefix(self.prefix.name)}")
        self.snapshots.append(
            {
                "number": self.number,
                "prefix": str(prefix),
                "step_before": self.step,
                "step": self.step,
                "step_after": self.step,
                "consistent": True,
                "time": time.time() - self.behind,
                "seconds": 0.03,
                "pause_seconds": 0.001,
                "bytes": 4096,
            }
        )
        self.durations.add(self.snapshots[-1]["seconds"])
        return self.snapshots[-1]

    def _export(self, message: Mapping[str, Any]) -> object:
        self.requests.append(message)
        self.exporting.wait()
        if message["to"] != "savedmodel":
            raise UsageError("no such target", why="the stand-in has one", id="target-unknown")
        export = {
            "name": message["name"],
            "version": len(self.exports) + 1,
            "to": message["to"],
            "state": "done",
            "path": "x",
            "snapshot": self.number,
            "step": self.step,
            "seconds": 1.5,
            "why": "",
        }
        self.exports.append(export)
        return export


@contextmanager
def gateway(directory: Path, **setup: Any) -> Iterator[dict[str, Any]]:
    """A gateway over a run directory; gives what it said on stdout. It is gone afterwards."""
    with gateway_process(directory, **setup) as (_, said):
        yield said


@contextmanager
def gateway_process(
    directory: Path, **setup: Any
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """As `gateway`, with its process."""
    job = encode(
        GatewaySetup(
            run_dir=str(directory),
            **{"token_file": str(directory / "token"), **setup},
        )
    )
    log = directory / "gateway.log"
    with open(log, "ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "ckpttool.ps.gateway", job],
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        assert line, log.read_text()
        yield child, json.loads(line)
    finally:
        child.terminate()
        try:
            child.wait(20)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            child.stdout.close()
