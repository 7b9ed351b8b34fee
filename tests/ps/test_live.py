"""What live.sock answers while a training goes on."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import ckpttool
from ckpttool.errors import CkpttoolError, UsageError
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, until
from tests.support.command import run_cli
from tests.support.trained import counters, training, values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

ROWS, WIDTH = 1001, 8


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A training that goes on, partitioned, for tests that only look."""
    folder = tmp_path_factory.mktemp("hosted")
    words = ("--partition", "fixed", "--snapshot-every", "0", "--keep-snapshots", "2")
    with training(folder, "module", *words) as cluster:
        cluster.wait_for()
        with client(cluster) as live:
            until(lambda: (live.ask("status")["step"] or 0) > 5, cluster.said())
        yield cluster


def client(cluster: Cluster) -> LiveClient:
    return LiveClient(str(cluster.directory))


def test_a_snapshot_is_of_one_moment_while_training_goes_on(running) -> None:
    """What every step writes first and last is the same; the step is the one that it has."""
    with client(running) as live:
        for _ in range(10):
            made = live.ask("snapshot", consistent=True)
            first, last = counters(made["prefix"])
            assert first == last == made["step"]
            assert made["step_before"] <= made["step"] <= made["step_after"]
            assert made["consistent"] is True
        assert live.ask("status")["syncs"] == {"ok": made["number"], "failed": 0}


def test_a_snapshot_verifies_and_has_the_parts_as_one(running) -> None:
    with client(running) as live:
        made = live.ask("snapshot")
        listed = {one["name"]: one for one in live.ask("list")["variables"]}
    assert run_cli(["verify", made["prefix"]]).returncode == 0
    found = values(made["prefix"])
    assert found["emb"].shape == (ROWS, WIDTH)
    assert found["words"].tolist() == [b"one", b"", b"three"]
    assert found["half"].dtype.name == "bfloat16"
    assert (found["w"] == made["step"] + 1).all()
    with ckpttool.open(made["prefix"]) as source:
        assert set(source) >= set(listed)
    parts = next(one["parts"] for name, one in listed.items() if name.endswith("emb"))
    assert [part["ps"] for part in parts] != [parts[0]["ps"]] * 2
    assert [part["extent"] for part in parts] == [[501, WIDTH], [500, WIDTH]]


def test_tensorflow_reads_a_snapshot(running) -> None:
    tf = pytest.importorskip("tensorflow")
    with client(running) as live:
        made = live.ask("snapshot")
    reader = tf.train.load_checkpoint(made["prefix"])
    shapes = reader.get_variable_to_shape_map()
    assert shapes["model/emb/.ATTRIBUTES/VARIABLE_VALUE"] == [ROWS, WIDTH]
    restored = tf.Module()
    restored.w = tf.Variable(tf.zeros([WIDTH, 2]))
    checkpoint = tf.train.Checkpoint(model=restored)
    checkpoint.read(made["prefix"]).assert_existing_objects_matched().expect_partial()
    assert (restored.w.numpy() == made["step"] + 1).all()


def test_who_comes_together_gets_one_and_old_ones_go(running) -> None:
    with client(running) as live:
        first = live.ask("snapshot")
        again = live.ask("snapshot", max_age=3600)
        assert again["number"] == first["number"]
        for _ in range(3):
            last = live.ask("snapshot")
        assert last["number"] == first["number"] + 3
        kept = live.ask("status")["snapshots"]
    assert [one["number"] for one in kept] == [last["number"] - 1, last["number"]]
    files = {path.name.partition(".")[0] for path in (running.directory / "snapshots").iterdir()}
    assert {name for name in files if name} == {f"snap-{one['number']}" for one in kept}


def test_status_says_what_there_is(running) -> None:
    with client(running) as live:
        status = until(lambda: (found := live.ask("status"))["rate"] and found)
    assert (status["mode"], status["consistent"], status["losses"]) == (
        "hosted",
        True,
        {"loss": 0.5},
    )
    assert {one["ps"] for one in status["per_ps"]} == {0, 1}
    assert status["bytes"] == sum(one["bytes"] for one in status["per_ps"])
    assert sum(status["durations"]["snapshot"]["counts"]) == status["syncs"]["ok"]


def test_a_request_that_makes_no_sense_is_answered(running) -> None:
    with client(running) as live:
        for request, words in (("dance", {}), ("snapshot", {"max_age": "x"}), ("export", {})):
            with pytest.raises(UsageError) as caught:
                live.ask(request, **words)
            assert caught.value.id == "live-request"
        with pytest.raises(CkpttoolError) as wrong:
            live.ask("export", to="savedmodel", name="../x")
        assert wrong.value.id == "export-name"


def test_values_are_written_into_live_variables(running, tmp_path: Path) -> None:
    """A rollback: what an earlier snapshot has is live again."""
    with client(running) as live:
        early = live.ask("snapshot")
        for path in (running.directory / "snapshots").glob(f"snap-{early['number']}.*"):
            shutil.copy(path, tmp_path)
        prefix = str(tmp_path / f"snap-{early['number']}")
        until(lambda: live.ask("status")["step"] > early["step"] + 20)
        later = live.ask("snapshot")
        assert live.ask("write", source=prefix)["variables"] == 6
        back = live.ask("snapshot")
    assert early["step"] <= back["step"] < later["step"]
    assert counters(back["prefix"])[0] == counters(back["prefix"])[1]
