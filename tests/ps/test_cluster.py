"""Whole clusters on TensorFlow's runtime: start, deaths of each process, every way to end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ckpttool.errors import ClusterError
from ckpttool.ops.serve_ps.request import plan_up
from ckpttool.ps import supervisor as supervising
from ckpttool.ps.events import Event
from ckpttool.ps.ports import free_ports
from ckpttool.ps.run_dir import RunDirectory, RunState
from ckpttool.ps.supervisor import Supervisor
from ckpttool.schemas import schema
from tests.support.clusters import GATEWAY, Cluster, cluster, port_is_open, until
from tests.support.command import ROOT, clean_environment, run_cli

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc"),
]

#: A coordinator as a user writes it: TF_CONFIG says all.
COORDINATOR = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)
@tf.function
def step():
    total.assign_add(1.0)
for _ in range(20):
    coordinator.schedule(step)
coordinator.join()
print("total", total.numpy(), total.device)
"""


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory):
    """A cluster without a training function, that tests share: each leaves it ready."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, "up", "--ps", "2", "--workers", "1", "--no-gateway") as running:
        running.wait_for()
        yield running
        running.interrupt()
        running.wait_until_gone()


def status(running: Cluster, code: int = 0) -> dict[str, Any]:
    result = run_cli(["serve-ps", "status", running.directory, "--json"])
    assert result.returncode == code, result.stderr
    document = json.loads(result.stdout)
    errors = Draft202012Validator(schema("serve-ps-status")).iter_errors(document["data"])
    assert [error.message for error in errors] == []
    assert document["schema"] == "ckpttool.serve-ps-status/1"
    data: dict[str, Any] = document["data"]
    return data


def test_what_is_ready_listens(standing) -> None:
    data = status(standing)
    assert data["state"] == "ready"
    assert data["pid"] == standing.process.pid
    assert data["step"] is None
    assert {(one["job"], one["index"], one["state"]) for one in data["tasks"]} == {
        ("ps", 0, "ready"),
        ("ps", 1, "ready"),
        ("worker", 0, "ready"),
    }
    assert len(standing.ports()) == 3
    assert all(port_is_open(port) for port in standing.ports())


def test_status_in_a_pipe_and_for_people(standing) -> None:
    text = run_cli(["serve-ps", "status", standing.directory]).stdout
    assert text.startswith("state\tready\nps-0\tready\t")
    people = run_cli(["serve-ps", "status", standing.directory, "--color", "always"]).stdout
    assert "export TF_CONFIG='{" in people


def test_the_supervisor_has_no_tensorflow(standing) -> None:
    maps = Path(f"/proc/{standing.process.pid}/maps").read_text()
    assert "libpython" in maps or "python" in maps
    assert "tensorflow" not in maps
    assert "tensorflow" in Path(f"/proc/{standing.task('ps-0')['pid']}/maps").read_text()


def test_a_coordinator_of_the_users_own(standing) -> None:
    config = str(status(standing)["tf_config"])
    result = subprocess.run(
        [sys.executable, "-c", COORDINATOR],
        env={**clean_environment(), "TF_CONFIG": config},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "total 20.0 /job:ps/" in result.stdout, result.stderr[-3000:]


def test_another_cluster_in_the_same_directory_is_refused(standing) -> None:
    result = run_cli(["serve-ps", "up", "--run-dir", standing.directory, "--json"])
    assert result.returncode == 30
    assert json.loads(result.stderr)["id"] == "cluster-running"
    assert status(standing)["state"] == "ready"


@pytest.mark.parametrize("name", ["worker-0", "ps-1"])
def test_a_task_that_is_killed_comes_back_on_its_port(standing, name) -> None:
    """FAULTS 22: a task dies; the others stay what they are."""
    before = standing.state["tasks"]
    task = standing.task(name)
    os.kill(task["pid"], signal.SIGKILL)
    again = standing.wait_for_restart(name, task["pid"])
    assert again["port"] == task["port"]
    assert again["restarts"] == task["restarts"] + 1
    assert port_is_open(task["port"])
    others = [one for one in standing.state["tasks"] if one["pid"] != again["pid"]]
    assert others == [one for one in before if one["pid"] != task["pid"]]


def test_a_stopped_task_is_one_that_can_be_ended(standing) -> None:
    """Nothing but a kill ends a process that is stopped; `wait_until_gone` holds it."""
    os.kill(standing.task("worker-0")["pid"], signal.SIGSTOP)


def test_the_fork_server_may_die(tmp_path) -> None:
    """Its children go on, their ends are noticed, and others are started."""
    words = ("up", "--ps", "1", "--workers", "1", "--no-gateway")
    with cluster(tmp_path, *words) as running:
        running.wait_for()
        tasks = {task["pid"] for task in running.state["tasks"]}
        (server,) = set(running.processes()) - tasks - {running.process.pid}
        os.kill(server, signal.SIGKILL)
        until(lambda: "fork-server-ended" in running.kinds())
        assert {task["pid"] for task in running.state["tasks"]} == tasks
        worker = running.task("worker-0")
        os.kill(worker["pid"], signal.SIGKILL)
        again = running.wait_for_restart("worker-0", worker["pid"])
        assert again["port"] == worker["port"]
        assert running.task("ps-0")["pid"] in tasks
        # The other way to end: Ctrl-C.
        assert running.interrupt(signal.SIGINT) == 0
        running.wait_until_gone()
        assert running.state["state"] == "stopped"
        assert running.events[-1]["type"] == "summary"
        data = status(running, 1)
        assert (data["state"], data["pid"], data["tasks"]) == ("stopped", None, [])


def test_no_process_outlives_a_supervisor_that_is_killed(tmp_path) -> None:
    """FAULTS 22: the parent dies, its children exit. Then another one takes over."""
    words = ("up", "--ps", "1", "--workers", "1", "--no-gateway")
    with cluster(tmp_path, *words) as running:
        running.wait_for()
        ports = running.ports()
        assert len(running.processes()) == 4
        running.process.kill()
        running.process.wait()
        until(lambda: not running.processes(), "processes outlive the supervisor", 30)
        until(lambda: not any(map(port_is_open, ports)), "a port stays open", 30)
        data = status(running, 1)
        assert data["state"] == "failed"
        nothing = run_cli(["serve-ps", "down", running.directory])
        assert (nothing.returncode, nothing.stdout[:20]) == (0, "no cluster runs in /")
    with cluster(tmp_path, *words, "--exit-after", "1h") as running:
        running.wait_for()
        assert running.kinds()[0] == "taken-over"
        ended = run_cli(["serve-ps", "down", running.directory, "--json"])
        assert ended.returncode == 0, ended.stderr
        data = json.loads(ended.stdout)["data"]
        errors = Draft202012Validator(schema("serve-ps-down")).iter_errors(data)
        assert [error.message for error in errors] == []
        assert (data["was_running"], data["killed"]) == (True, False)
        assert data["pid"] == running.process.pid
        assert running.process.wait(10) == 0
        running.wait_until_gone()


def test_the_gateway_that_is_killed_comes_back_on_its_address(tmp_path) -> None:
    with cluster(tmp_path, "up", "--workers", "0", "--grpc", "127.0.0.1:0") as running:
        state = running.wait_for()
        port, grpc_port = (int(state[one].rpartition(":")[2]) for one in GATEWAY)
        assert port_is_open(port)
        assert port_is_open(grpc_port)
        plain = run_cli(["serve-ps", "status", running.directory]).stdout
        assert f"grpc\t{state['gateway_grpc']}\n" in plain
        (gateway,) = [pid for pid in running.processes() if is_gateway(pid)]
        os.kill(gateway, signal.SIGKILL)
        until(lambda: "gateway-ended" in running.kinds())
        until(lambda: running.state["state"] == "ready" and port_is_open(port), running.said())
        assert all(running.state[one] == state[one] for one in GATEWAY)
        assert port_is_open(grpc_port)
        assert running.task("ps-0") == state["tasks"][0]
        # What listens at an address that is asked for is not pushed aside.
        (other := tmp_path / "other").mkdir()
        with cluster(other, "up", "--gateway", f"127.0.0.1:{port}") as refused:
            assert refused.process.wait(60) in {30, 40, 61}
            assert str(port) in refused.errors.read_text()
            refused.wait_until_gone()
        assert running.interrupt() == 0
        running.wait_until_gone()


def is_gateway(pid: int) -> bool:
    return b"ckpttool.ps.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def test_a_cluster_that_is_stopped_while_tensorflow_is_imported(tmp_path) -> None:
    """D39: SIGTERM ends it at once, whatever it is about to do."""
    with cluster(tmp_path, "up", "--no-gateway") as running:
        until(lambda: len(running.processes()) == 2)
        assert running.interrupt() == 0
        running.wait_until_gone()
        assert running.kinds() == ["stopping", "summary"]


def test_exit_after(tmp_path) -> None:
    with cluster(tmp_path, "up", "--no-gateway", "--exit-after", "0.2") as running:
        assert running.process.wait(60) == 0
        running.wait_until_gone()
        assert running.state["state"] == "stopped"


def test_one_task_of_many(tmp_path) -> None:
    """`serve-ps task` with the port that the cluster gives it, and again when it is taken."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = tmp_path / "cluster.json"
    spec.write_text(json.dumps({"ps": [f"localhost:{port}"], "worker": ["localhost:1"]}))
    words = ("task", "--cluster", str(spec), "--job", "ps", "--index", "0", "--no-gateway")
    with cluster(tmp_path, *words) as running:
        state = running.wait_for()
        assert {(one["job"], one["state"]) for one in state["tasks"]} == {
            ("ps", "ready"),
            ("worker", "elsewhere"),
        }
        assert port_is_open(port)
        (other := tmp_path / "other").mkdir()
        with cluster(other, *words) as refused:
            assert refused.process.wait(60) == 61
            error = json.loads(refused.errors.read_text())
            assert error["id"] == "port-taken"
            assert str(port) in error["message"]
            assert status(refused, 1)["error"]["id"] == "port-taken"
        assert running.interrupt() == 0
        running.wait_until_gone()


def test_tensorflow_that_cannot_be_imported(tmp_path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tensorflow.py").write_text("raise ImportError('no TensorFlow today')\n")
    path = f"{broken}{os.pathsep}{ROOT}"
    with cluster(tmp_path, "up", "--no-gateway", env={"PYTHONPATH": path}) as running:
        assert running.process.wait(60) == 61
        error = json.loads(running.errors.read_text())
        assert error["id"] == "fork-server-died"
        log = (running.directory / "logs" / "fork-server.log").read_text()
        assert "no TensorFlow today" in log
        running.wait_until_gone()


class Stop:
    """The signal to stop, for a supervisor in this process."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self.stopped = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def now(self) -> None:
        self.stopped = True
        self._writer.send(b"x")

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def supervised(tmp_path: Path, **wishes: int) -> tuple[RunState | ClusterError, list[str]]:
    """Run a supervisor in this process until all is ready; its end, and what happened."""
    run = RunDirectory(str(tmp_path / "run"))
    run.prepare()
    stop = Stop()
    kinds: list[str] = []

    def tell(event: Event) -> None:
        kinds.append(event.kind)
        if event.kind == "ready":
            threading.Thread(target=stop.now).start()

    plan = plan_up(ps=1, workers=1, training=None, gateway=None, **wishes)
    try:
        return Supervisor(plan, run, stop, tell).run(), kinds
    except ClusterError as error:
        return error, kinds
    finally:
        stop.close()


def test_a_port_that_somebody_took_meanwhile(tmp_path, monkeypatch) -> None:
    """Between the search for ports and the start of the servers one was taken: try others."""
    found = free_ports
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        taken = other.getsockname()[1]
        answers = iter([[*found(2), taken]])
        monkeypatch.setattr(
            supervising, "free_ports", lambda count: next(answers, None) or found(count)
        )
        end, kinds = supervised(tmp_path)
        assert isinstance(end, RunState)
        assert kinds.count("port-taken") == 1
        assert kinds[-2:] == ["ready", "stopping"]


def test_ports_that_are_always_taken(tmp_path, monkeypatch) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        taken = other.getsockname()[1]
        found = free_ports
        monkeypatch.setattr(supervising, "free_ports", lambda _: [*found(2), taken])
        end, kinds = supervised(tmp_path)
    assert isinstance(end, ClusterError)
    assert end.id == "port-taken"
    assert kinds.count("port-taken") == 5
    assert RunDirectory(str(tmp_path / "run")).read().state == "failed"
