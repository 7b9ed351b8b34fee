"""A TensorFlow 1 cluster from outside: its parameters, whole only with the trainers' help."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from ckpttool.errors import CorruptError, RefusedError
from ckpttool.limits import Limits
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import ROOT, clean_environment, run_cli
from tests.support.trained import values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

TRAINER = ROOT / "examples" / "trainer_tf1.py"


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


@contextmanager
def trainer(folder: Path, standing: Cluster, task: int, *words: str) -> Iterator[None]:
    """One worker of the example, as its user starts it."""
    log = (folder / f"trainer-{task}.log").open("wb")
    with log:
        process = subprocess.Popen(
            [
                *[sys.executable, str(TRAINER), "--cluster", str(standing.directory / "run.json")],
                *["--task", str(task), "--checkpoints", str(folder / "ck"), *words],
            ],
            env={
                **clean_environment(),
                "PYTHONPATH": str(ROOT),
                "CKPTTOOL_TEST_CLUSTER": standing.mark,
            },
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


@contextmanager
def attached(folder: Path, *words: str) -> Iterator[tuple[Cluster, LiveClient]]:
    """Two parameter servers, one worker that trains, and what attaches to them."""
    with ExitStack() as stack:
        standing = folder / "standing"
        standing.mkdir()
        up = stack.enter_context(
            cluster(standing, "up", "--ps", "2", "--workers", "1", "--no-gateway")
        )
        up.wait_for()
        stack.enter_context(trainer(folder, up, 0, *words))
        until((folder / "ck" / "checkpoint").exists, up.said())
        server = up.state["cluster"]["ps"][0]
        outside = folder / "outside"
        outside.mkdir()
        attach = stack.enter_context(
            cluster(
                outside,
                *["attach", "--ps", server, "--names", str(folder / "ck"), "--no-gateway"],
                *["--snapshot-every", "0"],
            )
        )
        attach.wait_for()
        yield attach, stack.enter_context(LiveClient(str(attach.directory), timeout=120))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, LiveClient]]:
    with attached(tmp_path_factory.mktemp("bare")) as pair:
        yield pair


def test_a_bare_cluster_is_read_and_says_that_it_is_not_of_one_moment(bare) -> None:
    _, live = bare
    status = live.ask("status")
    assert (status["mode"], status["consistent"]) == ("attached", False)
    made = live.ask("snapshot")
    assert made["consistent"] is False
    assert made["step_before"] <= made["step"] <= made["step_after"]
    found = values(made["prefix"])
    assert found["items"].shape == (5000, 16)
    assert run_cli(["verify", made["prefix"]]).returncode == 0
    with ckpttool.open(made["prefix"]) as source:
        assert source.read("model/items/Adagrad").shape == (5000, 16)
        assert source["model/items/Adagrad"].kind == "optimizer"
    parts = {one["name"]: one["parts"] for one in live.ask("list")["variables"]}["model/items"]
    assert [part["extent"] for part in parts] == [[2500, 16], [2500, 16]]


def test_a_whole_snapshot_is_refused_where_nothing_holds_the_training(bare) -> None:
    _, live = bare
    with pytest.raises(RefusedError) as caught:
        live.ask("snapshot", consistent=True)
    assert caught.value.id == "snapshot-not-whole"


def test_training_goes_on_and_nothing_of_ours_stays_on_the_servers(bare) -> None:
    """Snapshot after snapshot: the copies of each are gone before the next."""
    _, live = bare
    steps = [live.ask("snapshot")["step"] for _ in range(5)]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


def test_what_is_written_is_live_at_once(bare, tmp_path: Path) -> None:
    cluster, live = bare
    made = live.ask("snapshot")
    users = tmp_path / "users.npz"
    values_of = {"model/users": np.full((1000, 16), 7.0, np.float32)}
    np.savez(users, allow_pickle=False, **values_of)
    assert live.ask("write", source=str(users), names=["model/users"])["variables"] == 1
    after = values(live.ask("snapshot")["prefix"])["users"]
    # Training goes on from there: a few rows have moved, none has gone back.
    assert np.abs(after - 7.0).max() < 2.0
    assert np.abs(values(made["prefix"])["users"]).max() < 3.0
    assert cluster.process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("to", ["savedmodel", "tflite", "onnx", "tfjs"])
def test_it_is_exported_and_proven_while_it_trains(bare, to) -> None:
    """With the plain model of the example; ``convert`` ran the original and the result."""
    cluster, live = bare
    before = live.ask("status")["step"]
    with LiveClient(str(cluster.directory), timeout=900) as patient:
        options = ["--model", f"{TRAINER}:serve"]
        made = patient.ask("export", to=to, name=to, options=options, wait=True)
    assert made["state"] == "done", f"{made['why']}\n{cluster.said()}"
    report = json.loads(Path(f"{made['path']}.json").read_bytes())
    # tfjs runs in node, where that is installed.
    assert report["check"]["state"] in ({"passed", "not_run"} if to == "tfjs" else {"passed"})
    assert report["source"]["address"].endswith(f"snap-{made['snapshot']}")
    until(lambda: live.ask("status")["step"] > before, "the training stands still")


@pytest.mark.slow
def test_with_the_hook_every_snapshot_is_of_one_moment(tmp_path: Path) -> None:
    with attached(tmp_path, "--pause-hook") as (_, live):
        until(lambda: live.ask("status")["consistent"], "the hook does not say so")
        for _ in range(20):
            made = live.ask("snapshot", consistent=True)
            found = values(made["prefix"])
            assert made["consistent"] is True
            assert int(found["first"]) == int(found["last"]) == made["step"]
        until(lambda: live.ask("status")["step"] > made["step"], "training does not go on")


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", '[{"name": 1, "dtype": "float32"}]', '[{"name": "a", "dtype": "text"}]'],
)
def test_a_manifest_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    from ckpttool.ps.runtime.names import wanted_variables

    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(CorruptError) as caught:
        wanted_variables(str(path), Limits())
    assert caught.value.id == "manifest"


def test_a_manifest_names_variables(tmp_path: Path) -> None:
    from ckpttool.ps.runtime.names import part_names, wanted_variables

    path = tmp_path / "names.json"
    path.write_text(json.dumps([{"name": "a/b", "dtype": "float32", "shape": [2, 3]}]))
    (one,) = wanted_variables(str(path), Limits())
    assert (one.name, one.dtype, one.shape) == ("a/b", "float32", (2, 3))
    assert part_names("a/b", 1) == ("a/b/part_1", "a/part_1/b")
    assert part_names("a", 0) == ("a/part_0",)


def test_nobody_at_the_address_is_an_error_of_its_own(tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    names.write_text('[{"name": "a", "dtype": "float32"}]')
    words = ("attach", "--ps", "127.0.0.1:1", "--names", str(names), "--no-gateway")
    with cluster(tmp_path, *words) as attach:
        assert attach.process.wait(180) == 60
        assert "ps-unreachable" in attach.errors.read_text()
