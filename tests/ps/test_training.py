"""Training under `serve-ps`: what follows when a process of it dies, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ckpttool.errors import UnreachableError
from ckpttool.ps.live_client import LiveClient
from ckpttool.ps.ports import free_ports
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import run_cli

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc"),
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]

#: Counts, on a parameter server. `total` and `step` are one number at every moment at which
#: no step is half done.
TRAIN = """
import json, os, time
import tensorflow as tf


class Counter(tf.Module):
    def __init__(self):
        self.total = tf.Variable(0.0, name="total")
        self.rows = tf.Variable(tf.zeros([20_000, 40]), name="rows")  # more than one piece


def prepare(ctx):
    with ctx.strategy.scope():
        model = Counter()
        step = tf.Variable(0, dtype=tf.int64, name="step", trainable=False)
    ctx.track(model, step=step)
    ctx.restore()
    with open("attempts.txt", "a") as file:
        rows = model.rows.numpy()
        assert (rows == rows[0, 0]).all()
        print(ctx.attempt, int(step.numpy()), float(model.total.numpy()), rows[0, 0], file=file)

    @tf.function
    def one():
        model.total.assign_add(1.0)
        model.rows.assign_add(tf.ones([20_000, 40]))
        step.assign_add(1)
    return one, step


def count_to_fifty(ctx):
    one, _ = prepare(ctx)
    for _ in range(50):
        ctx.schedule(one)


def for_ever(ctx):
    one, _ = prepare(ctx)
    while not ctx.should_stop:
        ctx.schedule(one)
        time.sleep(0.002)


def fail(ctx):
    raise ValueError("there is no such data")


def die(ctx):
    os.abort()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def up(function: str, *more: str, ps: int = 1, workers: int = 1) -> tuple[str, ...]:
    sizes = ("--ps", str(ps), "--workers", str(workers))
    return ("up", *sizes, "--no-gateway", "--train", f"train.py:{function}", *more)


def live(running: Cluster) -> dict[str, Any]:
    """What the training says of itself."""
    with LiveClient(str(running.directory)) as client:
        return client.ask("status")


def attempts(folder: Path) -> list[tuple[int, int, float, float]]:
    """Of each call of the function: attempt, and the step, total and rows it goes on from."""
    path = folder / "attempts.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(a), int(b), float(c), float(d)) for a, b, c, d in map(str.split, lines)]


def reached(running: Cluster, step: int) -> bool:
    assert running.process.poll() is None, running.said()
    try:
        return bool(live(running)["step"] >= step)
    except UnreachableError:
        return False  # a coordinator that is starting does not listen yet


def test_a_training_that_is_done(folder) -> None:
    """Its last snapshot is the whole of it, and an ordinary checkpoint."""
    with cluster(folder, *up("count_to_fifty", "--exit-when-done")) as running:
        assert running.process.wait(120) == 0, running.said()
        running.wait_until_gone()
        assert running.state["state"] == "stopped"
        assert "training-done" in running.kinds()
    snapshots = sorted((running.directory / "snapshots").glob("*.index"))
    newest = str(snapshots[-1]).removesuffix(".index")
    values = json.loads(run_cli(["load", newest, "step", "model/total", "--json"]).stdout)
    assert {one["values"] for one in values["data"]["variables"]} == {50}
    assert run_cli(["verify", newest]).returncode == 0


def test_deaths_under_a_training(folder) -> None:
    """FAULTS 22. A worker harms nobody; a parameter server costs a snapshot's time at most."""
    every = ("--snapshot-every", "0.3")
    with cluster(folder, *up("for_ever", *every, ps=2, workers=2)) as running:
        running.wait_for()
        until(lambda: reached(running, 50), running.said())
        chief = running.task("chief-0")

        # A worker: the coordinator stays, and goes on.
        worker = running.task("worker-1")
        os.kill(worker["pid"], signal.SIGKILL)
        running.wait_for_restart("worker-1", worker["pid"])
        step = live(running)["step"]
        until(lambda: reached(running, step + 50), running.said())
        assert running.task("chief-0") == chief
        assert [attempt for attempt, *_ in attempts(folder)] == [0]

        # A parameter server: the function is called again, and goes on from the snapshot.
        until(lambda: live(running)["snapshots"])
        saved = live(running)["snapshots"][-1]["step"]
        workers = [running.task(name)["pid"] for name in ("worker-0", "worker-1")]
        other = running.task("ps-0")
        server = running.task("ps-1")
        os.kill(server["pid"], signal.SIGKILL)
        running.wait_for_restart("ps-1", server["pid"])
        until(lambda: len(attempts(folder)) == 2, running.said())
        number, step, total, rows = attempts(folder)[1]
        # The worker died in a step, which TensorFlow does again: parts of it happened twice.
        assert number == 1
        assert max(step, total, rows) - min(step, total, rows) <= 1
        assert step >= saved > 0
        until(lambda: running.state["state"] == "ready" and reached(running, step + 50))
        assert running.task("chief-0")["pid"] != chief["pid"]
        assert [running.task(name)["pid"] for name in ("worker-0", "worker-1")] == workers
        # TensorFlow would keep the old variables on the other server for ever.
        assert running.task("ps-0")["pid"] != other["pid"]
        assert running.task("ps-0")["port"] == other["port"]

        # The coordinator itself: the same.
        chief = running.task("chief-0")
        os.kill(chief["pid"], signal.SIGKILL)
        running.wait_for_restart("chief-0", chief["pid"])
        until(lambda: len(attempts(folder)) == 3, running.said())
        assert attempts(folder)[2][1] >= step
        assert [running.task(name)["pid"] for name in ("worker-0", "worker-1")] == workers

        # Its function has begun, and makes its first step.
        until(lambda: reached(running, step), running.said())
        data = json.loads(run_cli(["serve-ps", "status", running.directory, "--json"]).stdout)
        assert data["data"]["state"] == "ready"
        assert data["data"]["step"] >= step
        snapshots = f"{running.directory}/snapshots/snap-"
        text = run_cli(["serve-ps", "status", running.directory]).stdout
        told = [line.split("\t") for line in text.splitlines() if line.startswith("snapshot\t")]
        assert told
        assert all(int(step) and prefix.startswith(snapshots) for _, step, prefix in told)
        people = run_cli(["serve-ps", "status", running.directory, "--color", "always"]).stdout
        assert "the last at step" in people
        assert running.interrupt() == 0
        running.wait_until_gone()
        assert not (running.directory / "live.sock").exists()


def test_a_server_that_dies_when_all_is_trained(folder) -> None:
    """What is done is not trained again; the snapshot has it."""
    with cluster(folder, *up("count_to_fifty")) as running:
        until(lambda: "training-done" in running.kinds(), running.said())
        until(lambda: running.state["state"] == "ready")
        until(lambda: live(running)["step"] == 50)  # it looks twice a second
        server = running.task("ps-0")
        os.kill(server["pid"], signal.SIGKILL)
        running.wait_for_restart("ps-0", server["pid"])
        assert "parameters-gone" in running.kinds()
        assert running.task("chief-0")["state"] == "ended"
        assert len(attempts(folder)) == 1
        assert running.interrupt() == 0
        running.wait_until_gone()


def test_a_function_that_fails(folder) -> None:
    with cluster(folder, *up("fail")) as running:
        assert running.process.wait(120) == 61
        error = json.loads(running.errors.read_text())
        assert error["id"] == "training-failed"
        assert "ValueError: there is no such data" in error["why"]
        assert "chief-0.log" in error["hint"]
        log = (running.directory / "logs" / "chief-0.log").read_text()
        assert 'raise ValueError("there is no such data")' in log
        running.wait_until_gone()
        assert running.state["error"]["id"] == "training-failed"


def test_a_function_that_is_not_there(folder) -> None:
    with cluster(folder, *up("no_such_function")) as running:
        assert running.process.wait(120) == 2
        error = json.loads(running.errors.read_text())
        assert error["message"] == "there is no function no_such_function in train.py"
        running.wait_until_gone()


@pytest.mark.slow
def test_a_function_that_kills_its_process(folder) -> None:
    """It is called again and again, with longer pauses, and then given up."""
    with cluster(folder, *up("die")) as running:
        assert running.process.wait(300) == 61
        error = json.loads(running.errors.read_text())
        assert error["id"] == "training-lost"
        ended = [one for one in running.events if one["kind"] == "task-ended"]
        assert [one["task"] for one in ended].count("chief-0") == 11, ended
        running.wait_until_gone()


@pytest.mark.slow
def test_a_cluster_of_many_tasks(folder) -> None:
    """Three `serve-ps task`, as on three machines; the parameter server dies meanwhile."""
    chief, ps, worker = [f"127.0.0.1:{port}" for port in free_ports(3)]
    spec = folder / "cluster.json"
    spec.write_text(json.dumps({"chief": [chief], "ps": [ps], "worker": [worker]}))
    folders = [folder / name for name in ("ps", "worker")]
    for one in folders:
        one.mkdir()
    words = ("task", "--cluster", str(spec), "--index", "0", "--no-gateway", "--job")
    train = ("chief", "--train", "train.py:for_ever", "--snapshot-every", "0.3")
    with (
        cluster(folders[0], *words, "ps") as servers,
        cluster(folders[1], *words, "worker") as workers,
        cluster(folder, *words, *train) as running,
    ):
        servers.wait_for()
        workers.wait_for()
        running.wait_for()
        until(lambda: reached(running, 50), running.said())
        until(lambda: live(running)["snapshots"])
        pid = servers.task("ps-0")["pid"]
        os.kill(pid, signal.SIGKILL)
        servers.wait_for_restart("ps-0", pid)
        until(lambda: len(attempts(folder)) >= 2, running.said())
        until(lambda: running.state["state"] == "ready")
        until(lambda: reached(running, attempts(folder)[-1][1] + 50))
        assert attempts(folder)[-1][1] > 0
        tasks = (running, workers, servers)
        assert [task.interrupt() for task in tasks] == [0, 0, 0]
        for task in tasks:
            task.wait_until_gone()
