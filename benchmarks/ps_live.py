"""`python -m benchmarks.ps_live`: what snapshots of a live training cost it.

Two parameter servers and two workers on loopback. Every step bumps a counter first and
another one last: a snapshot in which they differ is torn. The table has medians; with
``--large`` a variable of more than 2 GiB is saved too, which takes 8 GB of memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

import ckpttool
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import run_cli

__all__ = ["main"]

TRAIN = """
import os
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
        ids = tf.random.uniform([64], 0, ROWS, tf.int32)
        rows = tf.matmul(tf.nn.embedding_lookup(model.table, ids), model.kernel)
        model.kernel.assign_sub(1e-6 * tf.matmul(rows, rows, transpose_a=True))
        with tf.control_dependencies([rows]):
            model.last.assign_add(1)

    while not ctx.should_stop:
        ctx.schedule(step)
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table; 1 where a snapshot is torn or a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, default=200)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args(arguments)
    lines: list[tuple[str, float, float | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        lines += _small(Path(folder), options.snapshots)
        lines += _medium(Path(folder))
        if options.large:
            lines += _large(Path(folder))
    missed = False
    for what, value, most in lines:
        over = most is not None and value > most
        missed |= over
        target = "" if most is None else f"  at most {most:g}{'  MISSED' if over else ''}"
        print(f"{what:<58}{value:12.3f}{target}")
    return int(missed)


def _training(folder: Path, name: str, rows: int) -> AbstractContextManager[Cluster]:
    place = folder / name
    place.mkdir()
    (place / "train.py").write_text(TRAIN)
    return cluster(
        place,
        *("up", "--ps", "2", "--workers", "2", "--no-gateway", "--partition", "fixed"),
        *("--train", "train.py:train", "--snapshot-every", "0", "--keep-snapshots", "1"),
        env={"BENCH_ROWS": str(rows)},
    )


def _ready(running: Cluster) -> LiveClient:
    running.wait_for()
    live = LiveClient(str(running.directory), timeout=600)
    until(lambda: (live.ask("status")["step"] or 0) > 50, running.said())
    return live


def _rate(live: LiveClient, seconds: float = 8.0) -> float:
    """Steps a second, from two looks."""
    first, began = live.ask("status")["step"], time.monotonic()
    time.sleep(seconds)
    return float(live.ask("status")["step"] - first) / (time.monotonic() - began)


def _small(folder: Path, count: int) -> list[tuple[str, float, float | None]]:
    with _training(folder, "small", 20_000) as running, _ready(running) as live:
        rate = _rate(live)
        torn, pauses = 0, []
        for _ in range(count):
            made = live.ask("snapshot", consistent=True)
            pauses.append(made["pause_seconds"])
            with ckpttool.open(made["prefix"]) as source:
                values = {name.rpartition("/")[2]: name for name in source}
                first, last = source.read(values["first"]), source.read(values["last"])
            torn += not (int(first) == int(last) == made["step"])
        # Two steps a worker, at the rate at which both workers make them, and 30 ms.
        allowed = 4 / max(rate, 1e-9) + 0.030
        return [
            (f"torn of {count} whole snapshots", torn, 0),
            ("steps/s before", rate, None),
            ("training held for one (s)", median(pauses), allowed),
        ]


def _medium(folder: Path) -> list[tuple[str, float, float | None]]:
    with _training(folder, "medium", 1_600_000) as running, _ready(running) as live:
        before = _rate(live)
        drains, pauses, during = [], [], []
        for _ in range(5):
            first, began = live.ask("status")["step"], time.monotonic()
            made = live.ask("snapshot", consistent=True)
            seconds = made["seconds"] - made["pause_seconds"]
            drains.append(made["bytes"] / 1e6 / seconds)
            pauses.append(made["pause_seconds"])
            time.sleep(0.6)  # the step of `status` is looked at twice a second
            during.append((live.ask("status")["step"] - first) / (time.monotonic() - began))
        return [
            ("410 MB: held for the copy (s)", median(pauses), 0.2 + 4 / max(before, 1e-9)),
            ("410 MB: fetched and written, ms for 150 MB", 150e3 / median(drains), 1000.0),
            ("410 MB: fetched and written (MB/s)", median(drains), None),
            ("410 MB: steps lost meanwhile (%)", 100 * (1 - median(during) / before), 25.0),
        ]


def _large(folder: Path) -> list[tuple[str, float, float | None]]:
    with _training(folder, "large", 9_000_000) as running, _ready(running) as live:
        began = time.monotonic()
        made = live.ask("snapshot", consistent=True)
        seconds = time.monotonic() - began
        healthy = run_cli(["verify", made["prefix"]]).returncode == 0
        return [
            ("2.3 GB: a snapshot (s)", seconds, None),
            ("2.3 GB: does not verify", 1 - healthy, 0),
        ]


if __name__ == "__main__":
    sys.exit(main())
