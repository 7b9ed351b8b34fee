"""What users of parameter servers ran into, on a cluster that trains."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ckpttool.ps.live_client import LiveClient
from ckpttool.ps.ports import free_ports
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import ROOT, clean_environment
from tests.support.trained import TRAINERS, counters, training, values

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc"),
]


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


def reach(running: Cluster, step: int) -> None:
    running.wait_for()
    with LiveClient(str(running.directory)) as live:
        until(lambda: (live.ask("status")["step"] or 0) > step, running.said())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_d39_a_cluster_that_trains_ends_when_it_is_told_to(tmp_path: Path, number) -> None:
    """Parameter servers that never exit, Ctrl-C that does nothing, ports that stay taken.

    FAULTS 19: in the middle of steps and of snapshots; a second signal changes nothing.
    """
    with training(tmp_path, "module", "--snapshot-every", "0.1") as running:
        reach(running, 5)
        ready = next(event for event in running.events if event.get("kind") == "ready")
        addresses = [one for many in running.state["cluster"].values() for one in many]
        assert all(address in json.dumps(ready) for address in addresses)
        running.process.send_signal(number)
        assert running.interrupt(number) == 0
        running.wait_until_gone()
        assert running.state["state"] == "stopped"
    for index in (running.directory / "snapshots").glob("*.index"):
        first, last = counters(str(index.with_suffix("")))
        assert first == last


def test_d39_nobody_listens_to_what_it_says_any_more(tmp_path: Path) -> None:
    """FAULTS 19: `serve-ps up | head -1` ends quietly, with all that it started."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ckpttool", "serve-ps", "up", "--no-gateway", "--run-dir", "run"],
        cwd=tmp_path,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline()
        process.stdout.close()
        code = process.wait(120)
        said = process.stderr.read().decode()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert code in {0, 141}
    assert "Traceback" not in said
    state = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert state["state"] in {"stopped", "failed"}


@pytest.mark.slow
def test_d40_parameter_servers_with_disks_of_their_own(tmp_path: Path) -> None:
    """Servers on other machines do not see the path that a checkpoint is written to.

    TensorFlow's own saves fail then in MergeV2Checkpoints (``…_temp_…/part-00000-of-00002``).
    Each server is given a disk of its own in the place of the chief's folder: snapshots,
    restoring and exports do not need one that is shared.
    """
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--mount", "true"], check=False).returncode:
        pytest.skip("a disk that others do not see needs privileges")
    chief, first, second, worker = [f"127.0.0.1:{port}" for port in free_ports(4)]
    spec = tmp_path / "cluster.json"
    jobs = {"chief": [chief], "ps": [first, second], "worker": [worker]}
    spec.write_text(json.dumps(jobs))
    folders = {name: tmp_path / name for name in ("chief", "ps-0", "ps-1", "worker")}
    for folder in folders.values():
        folder.mkdir()
    words = ("task", "--cluster", str(spec), "--no-gateway")
    hidden = (
        *(unshare, "--mount", "sh", "-c"),
        f'mount -t tmpfs tmpfs "{folders["chief"]}" && exec "$@"',
        "sh",
    )
    train = ("--train", f"{TRAINERS}:module", "--snapshot-every", "0")
    with (
        cluster(folders["ps-0"], *words, "--job", "ps", "--index", "0", prefix=hidden) as one,
        cluster(folders["ps-1"], *words, "--job", "ps", "--index", "1", prefix=hidden) as two,
        cluster(folders["worker"], *words, "--job", "worker", "--index", "0") as other,
        cluster(
            folders["chief"],
            *(*words, "--job", "chief", "--index", "0", "--partition", "fixed:2", *train),
        ) as running,
    ):
        for task in (one, two, other):
            task.wait_for()
        reach(running, 5)
        for server, name in ((one, "ps-0"), (two, "ps-1")):
            seen = Path(f"/proc/{server.task(name)['pid']}/root{folders['chief']}")
            assert list(seen.iterdir()) == []
        with LiveClient(str(running.directory), timeout=120) as live:
            made = live.ask("snapshot", consistent=True)
            assert counters(made["prefix"]) == (made["step"], made["step"])
            found = values(made["prefix"])
            assert found["emb"].shape == (1001, 8)
            assert (found["w"] == made["step"] + 1).all()
            exported = live.ask("export", to="checkpoint", name="mine", wait=True)
            assert exported["state"] == "done", exported["why"]
            again = values(Path(exported["path"]) / "model.ckpt")
            assert np.array_equal(again["w"], np.full((8, 2), exported["step"] + 1.0))
            assert live.ask("write", source=made["prefix"])["variables"] == 6
            assert live.ask("snapshot")["step"] >= made["step"]
        tasks = (running, other, one, two)
        assert [task.interrupt() for task in tasks] == [0, 0, 0, 0]
        for task in tasks:
            task.wait_until_gone()
    assert not os.listdir(folders["ps-0"] / "run" / "snapshots")
