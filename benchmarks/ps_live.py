"""What snapshots of a live training cost it: a part of `benchmarks.serve_ps`.

Two parameter servers and two workers on loopback. Every step bumps a counter first and
another one last: a snapshot in which they differ is torn. It also writes rows of a table,
so that the table is copied when it is read. The large model takes 12 GB of memory.
"""

from __future__ import annotations

import tempfile
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import ckpttool
from benchmarks.figures import Figure
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import run_cli

__all__ = ["figures", "large"]

#: Seconds of training before and after a snapshot, with which that beside it is compared.
_AROUND = 3.0

TRAIN = """
import os
import time
import tensorflow as tf

ROWS = int(os.environ["BENCH_ROWS"])


def train(ctx):
    with ctx.strategy.scope():
        model = tf.Module()
        model.first = tf.Variable(0, dtype=tf.int64, name="first")
        model.table = tf.Variable(lambda: tf.zeros([ROWS, 64]), shape=[ROWS, 64],
                                  dtype=tf.float32, name="table")
        model.kernel = tf.Variable(tf.ones([64, 64]), name="kernel")
        model.last = tf.Variable(0, dtype=tf.int64, name="last")
    ctx.track(model, step=model.first)

    @tf.function
    def step():
        model.first.assign_add(1)
        parts = model.table.variables
        ids = [tf.random.uniform([32], 0, part.shape[0], tf.int32) for part in parts]
        rows = [tf.gather(part, some) for part, some in zip(parts, ids)]
        both = tf.matmul(tf.concat(rows, 0), model.kernel)
        model.kernel.assign_sub(1e-6 * tf.matmul(both, both, transpose_a=True))
        written = []
        for part, some, row in zip(parts, ids, rows):
            with tf.device(part.device):
                written.append(part.scatter_add(tf.IndexedSlices(1e-3 * row + 1e-3, some)))
        with tf.control_dependencies([both, *written]):
            model.last.assign_add(1)

    with open("steps.txt", "w", 1) as steps:
        while not ctx.should_stop:
            ctx.schedule(step)
            print(time.time(), file=steps)
"""


def figures(snapshots: int, runs: int) -> Iterator[Figure]:
    """Whole snapshots of a small model; what those of 410 MB cost."""
    with _training(20_000) as (running, live):
        yield from _small(running, live, snapshots)
    with _training(1_600_000) as (running, live):
        yield from _medium(running, live, runs + 2)


def large() -> Iterator[Figure]:
    """A variable of 2.3 GB: saved, checked, and exported while training goes on."""
    with _training(9_000_000) as (running, live):
        began = time.time()
        made = live.ask("snapshot", consistent=True)
        yield Figure("2.3 GB: a snapshot (s)", time.time() - began)
        healthy = run_cli(["verify", made["prefix"]]).returncode == 0
        yield Figure("2.3 GB: snapshots that do not verify", 1 - healthy, most=0)
        began = time.time()
        export = live.ask("export", to="safetensors", name="large", wait=True)
        yield Figure("2.3 GB: an export to safetensors (s)", time.time() - began)
        same = export["state"] == "done" and _same(export["path"], running)
        yield Figure("2.3 GB: exports that differ from their snapshot", 1 - same, most=0)


def _same(path: str, running: Cluster) -> bool:
    """Whether an export has the values of the newest snapshot."""
    newest = max((running.directory / "snapshots").glob("*.index"), key=lambda one: one.stat())
    file = Path(path) / "model.safetensors"
    return run_cli(["diff", str(newest.with_suffix("")), str(file)]).returncode == 0


@contextmanager
def _training(rows: int) -> Iterator[tuple[Cluster, LiveClient]]:
    """A training that has made its first steps; nothing is saved until it is asked to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(TRAIN)
        with cluster(
            folder,
            *("up", "--ps", "2", "--workers", "2", "--no-gateway", "--partition", "fixed"),
            *("--train", "train.py:train", "--snapshot-every", "0", "--keep-snapshots", "1"),
            env={"BENCH_ROWS": str(rows)},
        ) as running:
            running.wait_for()
            with LiveClient(str(running.directory), timeout=600) as live:
                until(lambda: (live.ask("status")["step"] or 0) > 50, running.said())
                time.sleep(2 * _AROUND)  # the first steps are slow ones
                yield running, live


class _Steps:
    """When steps were made: one is let in when another one is finished."""

    def __init__(self, running: Cluster) -> None:
        lines = (running.folder / "steps.txt").read_text().split("\n")[:-1]
        self._times = [float(line) for line in lines]

    def rate(self, begin: float, end: float) -> float:
        """Steps a second between two moments."""
        return (bisect(self._times, end) - bisect(self._times, begin)) / (end - begin)


def _small(running: Cluster, live: LiveClient, count: int) -> Iterator[Figure]:
    now = time.time()
    rate = _Steps(running).rate(now - _AROUND, now)
    torn, pauses = 0, []
    for _ in range(count):
        made = live.ask("snapshot", consistent=True)
        pauses.append(made["pause_seconds"])
        with ckpttool.open(made["prefix"]) as source:
            values = {name.rpartition("/")[2]: name for name in source}
            first, last = source.read(values["first"]), source.read(values["last"])
        torn += not (int(first) == int(last) == made["step"])
    yield Figure(f"torn of {count} whole snapshots", torn, most=0)
    yield Figure("steps a second", rate)
    held = 1000 * median(pauses)
    yield Figure("training held for one (ms)", held, _held(rate, 30), worst=1000 * max(pauses))


def _medium(running: Cluster, live: LiveClient, count: int) -> Iterator[Figure]:
    live.ask("snapshot", consistent=True)  # memory that no process ever had is slow to come by
    spans, drains, pauses = [], [], []
    for _ in range(count):
        time.sleep(_AROUND + 1)
        asked = time.time()
        made = live.ask("snapshot", consistent=True)
        pauses.append(1000 * made["pause_seconds"])
        drains.append(made["bytes"] / 1e6 / (made["seconds"] - made["pause_seconds"]))
        spans.append((asked, made["time"] + made["pause_seconds"], time.time()))
    time.sleep(_AROUND + 1)
    steps = _Steps(running)
    lost, rates = [], []
    for asked, copied, done in spans:
        around = steps.rate(asked - _AROUND, asked) + steps.rate(done + 1, done + 1 + _AROUND)
        rates.append(around / 2)
        lost.append(100 * (1 - steps.rate(copied, done) / rates[-1]))
    rate = median(rates)
    yield Figure("410 MB: steps a second", rate)
    held = _held(rate, 200)
    yield Figure("410 MB: held for the copy (ms)", median(pauses), held, worst=max(pauses))
    yield Figure("410 MB: fetched and written (MB/s)", median(drains), least=150, worst=min(drains))
    yield Figure("410 MB: steps lost meanwhile (%)", median(lost), most=25, worst=max(lost))


def _held(rate: float, milliseconds: float) -> float:
    """How long training may be held: two steps a worker, and so much more."""
    return 4000 / max(rate, 1e-9) + milliseconds
