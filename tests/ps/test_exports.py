"""Exports of a training that goes on: versions that appear whole, equal to their snapshots."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import ROOT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc"),
    pytest.mark.slow,
]

EXAMPLE = ROOT / "examples" / "recommender_tf2.py"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The example of the docs, with parts on two servers; a step now and then is enough."""
    for package in ("tensorflow", "tf_keras"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    words = ("--ps", "2", "--workers", "1", "--partition", "fixed", "--no-gateway")
    with cluster(
        tmp_path_factory.mktemp("exports"),
        *("up", "--train", f"{EXAMPLE}:train", *words),
        *("--export", "regular=npz", "--export-every-steps", "200"),
        env={"RECOMMENDER_STEPS": "100000"},
    ) as running:
        running.wait_for()
        with LiveClient(str(running.directory), timeout=120) as live:
            until(lambda: live.ask("status")["variables"], running.said())
        yield running


def export(running: Cluster, **words: object) -> dict[str, object]:
    with LiveClient(str(running.directory), timeout=300) as live:
        answer = live.ask("export", wait=True, **words)
    assert answer["state"] == "done", f"{answer['why']}\n{running.said()}"
    return answer


@pytest.mark.parametrize(
    ("to", "file"),
    [("savedmodel", "saved_model.pb"), ("tflite", "model.tflite"), ("onnx", "model.onnx"),
     ("tfjs", "model.json")],
)  # fmt: skip
def test_each_target_is_proven_equal_to_its_snapshot(running, to, file) -> None:
    """``convert`` ran the original and the result on the same inputs, or it would have failed."""
    made = export(running, to=to, name=to)
    version = running.directory / "exports" / to / str(made["version"])
    assert Path(str(made["path"])) == version
    assert (version / file).exists()
    report = json.loads(version.with_suffix(".json").read_bytes())
    assert report["check"]["state"] in {"passed", "not_run"}  # tfjs needs node
    assert report["source"]["address"].endswith(f"snap-{made['snapshot']}")
    assert made["step"] is not None


def test_a_second_savedmodel_exchanges_values(running) -> None:
    """The values are those of its own snapshot, bit for bit."""
    export(running, to="savedmodel", name="again")
    with LiveClient(str(running.directory), timeout=120) as live:
        before = live.ask("status")["step"]
        until(lambda: live.ask("status")["step"] > before, "training does not go on")
    second = export(running, to="savedmodel", name="again")
    assert (second["version"], second["refreshed"]) == (2, True)
    snapshot = running.directory / "snapshots" / f"snap-{second['snapshot']}"
    with ckpttool.open(str(snapshot)) as stored, ckpttool.open(str(second["path"])) as served:
        tables = [served.read(name) for name in served if served[name].shape == (5000, 16)]
        (expected,) = [
            stored.read(name)
            for name in stored
            if stored[name].shape == (5000, 16) and stored[name].kind == "model"
        ]
    assert len(tables) == 1
    assert np.array_equal(tables[0], expected)


def test_an_export_that_is_due_is_made(running) -> None:
    folder = running.directory / "exports" / "regular"
    until((folder / "1" / "model.npz").exists, "no export was made", 300)
    with np.load(folder / "1" / "model.npz") as arrays:
        assert any(arrays[name].shape == (5000, 16) for name in arrays)


def test_an_export_that_fails_says_why_and_leaves_nothing(running) -> None:
    """Training goes on; the version directory does not appear."""
    with LiveClient(str(running.directory), timeout=300) as live:
        answer = live.ask(
            "export", to="tflite", name="bad", options=["--model", "absent.py:build"], wait=True
        )
        assert answer["state"] == "failed"
        assert "absent.py" in str(answer["why"])
        assert live.ask("status")["step"] is not None
    left = [path.name for path in (running.directory / "exports" / "bad").iterdir()]
    assert [name for name in left if name.isdigit()] == []
