"""`ckpttool.ps.hosting` in a coordinator of the user's own: one line, and its cluster is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpttool
from ckpttool.errors import UnreachableError
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import ROOT, clean_environment, run_cli
from tests.support.trained import counters, values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

#: What its user has: a script with a coordinator; the lines with `host` are new.
SCRIPT = """
import sys
import tensorflow as tf
import ckpttool.ps

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(
    resolver, tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

class Net(tf.Module):
    def __init__(self):
        super().__init__("net")
        self.a = tf.Variable(0, dtype=tf.int64, name="a")
        self.emb = tf.Variable(tf.zeros([101, 4]), name="emb")
        self.c = tf.Variable(0, dtype=tf.int64, name="c")

with strategy.scope():
    net = Net()

@tf.function
def step():
    net.a.assign_add(1)
    for part in net.emb.variables:
        part.assign_add(tf.ones_like(part))
    net.c.assign_add(1)

with ckpttool.ps.hosting(coordinator, sys.argv[1], snapshot_seconds=None, keep=2) as host:
    host.track(net, step=net.a)
    restored = host.restore()
    print("began at", int(net.a.numpy()), flush=True)
    while not host.should_stop:
        coordinator.schedule(step)
        host.report(loss=1.5)
    if sys.argv[2] == "fail":
        raise ValueError("a bug of the user's")
print("ended at", int(net.a.numpy()), flush=True)
"""


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that waits for a coordinator, with its gateway."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    folder = tmp_path_factory.mktemp("hosting")
    (folder / "script.py").write_text(SCRIPT)
    with cluster(folder, "up", "--ps", "2", "--workers", "2", "--max-age", "0") as running:
        running.wait_for()
        yield running
        assert running.interrupt() == 0
        running.wait_until_gone()


@contextmanager
def coordinating(standing: Cluster, how: str = "well") -> Iterator[subprocess.Popen[str]]:
    """The user's script, in the run directory of the cluster; it is asked to stop at the end."""
    process = subprocess.Popen(
        [sys.executable, str(standing.folder / "script.py"), str(standing.directory), how],
        env={
            **clean_environment(),
            "PYTHONPATH": str(ROOT),
            "TF_CONFIG": str(standing.state["tf_config"]),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with LiveClient(str(standing.directory)) as live:
            until(lambda: steps(live, process) > 20)
        yield process
    finally:
        process.kill()
        process.communicate()


def steps(live: LiveClient, process: subprocess.Popen[str]) -> int:
    assert process.poll() is None, process.communicate()[0][-3000:]
    try:
        return live.ask("status")["step"] or 0
    except UnreachableError:
        return 0


def ended(standing: Cluster, process: subprocess.Popen[str], code: int = 0) -> str:
    with LiveClient(str(standing.directory)) as live:
        assert live.ask("stop") == {"stopping": True}
    said = process.communicate(timeout=120)[0]
    assert process.returncode == code, said[-3000:]
    return said


def test_it_is_read_saved_exported_and_goes_on_where_it_left_off(standing, monkeypatch) -> None:
    monkeypatch.setenv("CKPTTOOL_TOKEN_FILE", standing.state["token_file"])
    address = str(standing.state["gateway"]).replace("http://", "ps://")
    with coordinating(standing) as process, LiveClient(str(standing.directory)) as live:
        made = live.ask("snapshot", consistent=True)
        assert counters(made["prefix"]) == (made["step"], made["step"])
        found = values(made["prefix"])
        assert (found["emb"] == made["step"]).all()
        assert found["emb"].shape == (101, 4)

        # The cluster's own gateway serves it, and its status knows of it.
        with ckpttool.open(address) as source:
            (name,) = [name for name in source if name.endswith("emb")]
            rows = source.read(name)[10:12]
            assert rows.shape == (2, 4)
            assert (rows == rows[0, 0]).all()
            assert rows[0, 0] >= made["step"]
        data = json.loads(run_cli(["serve-ps", "status", standing.directory, "--json"]).stdout)
        assert data["data"]["step"] >= made["step"]

        exported = post(standing, "/v1/exports", {"to": "npz", "name": "mine", "wait": True})
        assert exported["state"] == "done", exported["why"]
        with np.load(Path(exported["path"]) / "model.npz") as arrays:
            assert (arrays[name] == exported["step"]).all()
        first = ended(standing, process)
    at = int(first.rpartition("ended at ")[2])
    last = standing.directory / "snapshots" / f"snap-{newest(standing)}"
    assert counters(str(last)) == (at, at)
    assert len(list((standing.directory / "snapshots").glob("*.index"))) == 2
    assert not (standing.directory / "live.sock").exists()
    with pytest.raises(UnreachableError), ckpttool.open(address):
        pass

    with coordinating(standing) as process:
        assert f"began at {at}\n" in ended(standing, process)


def test_an_error_of_the_user_is_the_one_that_is_seen(standing) -> None:
    """No last snapshot is made of what failed; the socket is gone with it."""
    with coordinating(standing, "fail") as process:
        before = newest(standing)
        assert "ValueError: a bug of the user's" in ended(standing, process, code=1)
    assert newest(standing) == before
    assert not (standing.directory / "live.sock").exists()


def test_two_cannot_have_one_run_directory(standing) -> None:
    from ckpttool.errors import ChangedError
    from ckpttool.ps.runtime.live_server import LiveServer

    with coordinating(standing) as process:
        with pytest.raises(ChangedError) as caught, LiveServer(str(standing.directory), {}):
            pass
        assert caught.value.id == "live-taken"
        ended(standing, process)


def newest(standing: Cluster) -> int:
    names = (standing.directory / "snapshots").glob("*.index")
    return max((int(path.stem.removeprefix("snap-")) for path in names), default=0)


def post(standing: Cluster, path: str, body: dict[str, Any]) -> dict[str, Any]:
    with open(os.fspath(standing.state["token_file"]), encoding="ascii") as file:
        token = file.read().strip()
    request = urllib.request.Request(
        f"{standing.state['gateway']}{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
        return found
