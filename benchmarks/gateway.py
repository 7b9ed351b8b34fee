"""What a gateway costs those who read rows from it: ``python -m benchmarks.gateway``.

A gateway in a process, clients in another, and here what answers for the training: its
snapshots are copies of a checkpoint, and a new one is made whenever the newest is older than
five seconds, as with ``serve-ps`` unless it is told otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil

from benchmarks.figures import Figure
from benchmarks.measure import ROOT
from tests.support.live_stand_in import TOKEN, Training, gateway_process

__all__ = ["figures", "main"]

HEIGHT, WIDTH, ROWS = 100_000, 64, 64
RATE = 50.0
#: Milliseconds that 99 of 100 answers may take at most, at that rate.
TARGET = 25.0


class Measured(NamedTuple):
    """Requests of one kind: how many a second, milliseconds of time and of the gateway's CPU."""

    rate: float
    median: float
    p99: float
    cpu: float


def checkpoint(folder: Path) -> Path:
    """A checkpoint with a table like that of an embedding; gives its prefix."""
    code = (
        "import numpy as np; rng = np.random.default_rng(0); "
        f"np.savez('arrays.npz', table=rng.random(({HEIGHT}, {WIDTH}), np.float32), "
        "bias=rng.random(1000, np.float32))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["-m", "ckpttool", "convert", "arrays.npz", "model", "--to", "checkpoint"]
    for command in (["-c", code], words):
        subprocess.run(
            [sys.executable, *command], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL
        )
    return folder / "model"


def measure(pid: int, job: dict[str, Any]) -> Measured:
    """Have clients ask; ``pid`` is the gateway's."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gateway_client", json.dumps(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise SystemExit("the client does not begin")
        before = cpu(pid)
        client.stdin.write("\n")
        client.stdin.flush()
        told = json.loads(client.stdout.read())
        spent = cpu(pid) - before
    taken = told["taken"]
    cuts = quantiles(taken, n=100, method="inclusive")
    return Measured(
        len(taken) / told["seconds"], 1000 * cuts[49], 1000 * cuts[98], 1000 * spent / len(taken)
    )


def cpu(pid: int) -> float:
    """Seconds of user and system time that a process has had."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def requests(seconds: float) -> Iterator[tuple[str, int, float, Measured]]:
    """Interface, clients, rate (0: as many as can be) and what was measured, each so long."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training = Training(folder / "run", checkpoint(folder))
        with (
            training.answering(),
            gateway_process(training.directory, grpc="127.0.0.1:0") as (child, said),
        ):
            addresses = {"rest": urlsplit(said["rest"]).netloc, "grpc": said["grpc"]}
            for clients, rate in ((8, RATE), (1, 0.0), (16, 0.0), (64, 0.0)):
                for interface, address in addresses.items():
                    job = {
                        "interface": interface,
                        "address": address,
                        "token": TOKEN,
                        "name": "table",
                        "height": HEIGHT,
                        "rows": ROWS,
                        "clients": clients,
                        "rate": rate,
                        "seconds": seconds,
                    }
                    yield interface, clients, rate, measure(child.pid, job)


def figures(seconds: float) -> Iterator[Figure]:
    """For the table of ``benchmarks.serve_ps``."""
    for interface, _, rate, found in requests(seconds):
        if rate:
            what = f"gateway, {interface}, {rate:g} requests a second"
            yield Figure(f"{what}: 99 of 100 answers within (ms)", found.p99, most=TARGET)
            yield Figure(f"{what}: its CPU a request (ms)", found.cpu)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and end with 1 where the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateway", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each figure [10]")
    parser.add_argument(
        "--first", action="store_true", help="before all other work of the machine (needs root)"
    )
    given = parser.parse_args(argv)
    seconds, missed = given.seconds, False
    if given.first:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # the children's too
    print(f"Reads of {ROWS} rows ({ROWS * WIDTH * 4 // 1024} KiB) out of {HEIGHT}; load: ", end="")
    print(" ".join(f"{one:.1f}" for one in os.getloadavg()), end="\n\n")
    print("| interface | clients | requests/s | median ms | p99 ms | CPU ms a request | |")
    print("|---|---|---|---|---|---|---|")
    for interface, clients, rate, found in requests(seconds):
        misses = bool(rate) and found.p99 > TARGET
        missed = missed or misses
        verdict = "missed" if misses else "ok" if rate else ""
        cells = [
            *(interface, f"{clients}, {rate:g} a second" if rate else str(clients)),
            *(f"{found.rate:.0f}", f"{found.median:.1f}", f"{found.p99:.1f}"),
            *(f"{found.cpu:.2f}", verdict),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
