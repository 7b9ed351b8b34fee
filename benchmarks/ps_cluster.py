"""How quickly a cluster starts, ends, and recovers: a part of `benchmarks.serve_ps`.

Two parameter servers, two workers and a training function, on loopback.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure
from ckpttool.errors import UnreachableError
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, cluster, port_is_open, until

__all__ = ["figures"]

#: What is measured → the most that it may be.
TARGETS: Mapping[str, float] = {
    "up after TensorFlow's import (s)": 4.0,
    "down after SIGTERM (s)": 1.0,
    "all gone after kill -9 of the supervisor (s)": 1.5,
    "death of a parameter server noticed (s)": 2.0,
    "training on again after it (s)": 15.0,
    "steps lost, of those between two snapshots": 1.0,
    "death of a worker noticed (s)": 2.0,
}
#: Seconds between snapshots.
EVERY = 1.0

TRAIN = """
import time
import tensorflow as tf


def train(ctx):
    with ctx.strategy.scope():
        model = tf.Module()
        model.table = tf.Variable(tf.zeros([100_000, 16]), name="table")
        step = tf.Variable(0, dtype=tf.int64, name="step", trainable=False)
    ctx.track(model, step=step)
    ctx.restore()
    with open("resumed.txt", "w") as file:
        print(int(step.numpy()), file=file)

    @tf.function
    def one():
        rows = tf.random.uniform([512], maxval=100_000, dtype=tf.int32)
        model.table.scatter_add(tf.IndexedSlices(tf.ones([512, 16]), rows))
        step.assign_add(1)

    while not ctx.should_stop:
        ctx.schedule(one)
"""


def status(running: Cluster) -> dict[str, Any]:
    """What the training says of itself."""
    with LiveClient(str(running.directory)) as client:
        return client.ask("status")


def live_step(running: Cluster) -> int:
    """The step of the training; -1 while nobody answers, for it is about to be started again."""
    try:
        return int(status(running)["step"])
    except UnreachableError:
        return -1


def event_time(running: Cluster, kind: str, after: float = 0.0) -> float:
    """When an event happened for the first time after a moment; waits for it."""

    def found() -> float:
        times = [one["time"] for one in running.events if one.get("kind") == kind]
        return min((moment for moment in times if moment > after), default=0.0)

    return float(until(found, running.said()))


def started(running: Cluster) -> float:
    """Seconds from TensorFlow's import until all is ready."""
    running.wait_for()
    return event_time(running, "ready") - event_time(running, "tensorflow-ready")


def kill(running: Cluster, name: str) -> float:
    """Kill a task; seconds until the supervisor has noticed."""
    killed = time.time()
    os.kill(running.task(name)["pid"], signal.SIGKILL)
    return event_time(running, "task-ended", killed) - killed


def a_server_dies(running: Cluster) -> tuple[float, float, float]:
    """Noticed, training on again, and what was lost, in snapshot intervals."""
    until(lambda: live_step(running) > 200, running.said())
    until(lambda: len(status(running)["snapshots"]) > 2)
    time.sleep(4 * EVERY)  # the first steps are slow ones
    last = status(running)
    steps = [snapshot["step"] for snapshot in last["snapshots"]]
    interval = max(after - before for before, after in pairwise(steps))
    resumed_at = running.folder / "resumed.txt"
    resumed_at.unlink()
    killed = time.time()
    noticed = kill(running, "ps-1")
    chief = running.task("chief-0")["pid"]
    until(lambda: running.state["state"] == "ready" and running.task("chief-0")["pid"] != chief)
    until(lambda: resumed_at.exists() and resumed_at.read_text().endswith("\n"))
    resumed = int(resumed_at.read_text())
    until(lambda: live_step(running) > resumed)
    return noticed, time.time() - killed, max(0.0, (last["step"] - resumed) / interval)


def one_run(folder: Path) -> dict[str, float]:
    """Every figure once."""
    (folder / "train.py").write_text(TRAIN)
    words = [
        *("up", "--ps", "2", "--workers", "2", "--no-gateway"),
        *("--train", "train.py:train", "--snapshot-every", str(EVERY)),
    ]
    with cluster(folder, *words) as running:
        up = started(running)
        noticed, on_again, lost = a_server_dies(running)
        worker = kill(running, "worker-0")
        running.wait_for()
        began = time.time()
        running.interrupt()
        down = time.time() - began
    with cluster(folder, *words) as running:
        started(running)
        ports, began = running.ports(), time.time()
        running.process.kill()
        until(lambda: not running.processes() and not any(map(port_is_open, ports)))
        gone = time.time() - began
    return dict(zip(TARGETS, (up, down, gone, noticed, on_again, lost, worker), strict=True))


def figures(runs: int) -> Iterator[Figure]:
    """The median of some runs, and the worst."""
    results = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            results.append(one_run(Path(folder)))
    for name, target in TARGETS.items():
        values = [result[name] for result in results]
        yield Figure(name, median(values), most=target, worst=max(values))
