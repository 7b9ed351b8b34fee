"""A training that goes on, read and exported through its gateway by everything that can."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import ckpttool
from ckpttool.ps.live_client import LiveClient
from tests.support import browser
from tests.support.clusters import Cluster, cluster, until
from tests.support.command import ROOT, run_cli

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc"),
    pytest.mark.slow,
]

EXAMPLE = ROOT / "examples" / "recommender_tf2.py"
ITEMS = (5000, 16)
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


class Served:
    """A cluster that trains, and the words to reach it."""

    def __init__(self, running: Cluster) -> None:
        self.running = running
        self.rest = str(running.state["gateway"])
        self.address = self.rest.replace("http://", "ps://")
        self.token = Path(str(running.state["token_file"])).read_text("ascii").strip()
        self.env = {**LEGACY, "CKPTTOOL_TOKEN": self.token}

    def cli(self, *words: str, code: int = 0) -> Any:
        """The data of a command's JSON."""
        done = run_cli([*words, "--json"], env=self.env, timeout=600)
        assert done.returncode == code, f"{done.stderr}\n{self.running.said()}"
        return json.loads(done.stdout)["data"]

    def rest_json(self, path: str, body: object = None) -> Any:
        with self.open(path, body) as answer:
            return json.load(answer)

    def open(self, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.rest}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        return urllib.request.urlopen(request, timeout=300)

    def step(self) -> int:
        found: int = self.rest_json("/v1/status")["step"]
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The example of the docs, with parts on two servers, compressed."""
    for package in ("tensorflow", "tf_keras"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    words = ("--ps", "2", "--workers", "2", "--partition", "fixed", "--push", "int8")
    with cluster(
        tmp_path_factory.mktemp("served"),
        *("up", "--train", f"{EXAMPLE}:train", *words, "--max-age", "1"),
        env={**LEGACY, "RECOMMENDER_STEPS": "1000000"},
        prefix=("nice", "-n", "15"),  # a training never pauses; those who look come first
    ) as running:
        running.wait_for()
        with LiveClient(str(running.directory), timeout=120) as live:
            until(lambda: (live.ask("status")["step"] or 0) > 50, running.said())
        yield Served(running)
        assert running.process.poll() is None, running.said()
        assert "option-unused" not in running.kinds()
        assert running.interrupt() == 0
        running.wait_until_gone()


def test_every_command_that_reads_reads_it_while_it_trains(served, tmp_path: Path) -> None:
    before = served.step()
    listed = served.cli("list", served.address)["variables"]
    (table,) = [
        one["name"] for one in listed if tuple(one["shape"]) == ITEMS and one["kind"] == "model"
    ]
    whole = served.cli("inspect", served.address)
    assert whole["variables"] == len(listed)
    (loaded,) = served.cli("load", served.address, f"{table}[0:3]")["variables"]
    assert np.array(loaded["values"]).shape == (3, 16)
    rows = {row["name"]: row for row in served.cli("stats", served.address, table)["variables"]}
    assert rows[table]["nan"] == 0
    old = tmp_path / "old.safetensors"
    served.cli("convert", served.address, str(old), "--to", "safetensors")
    until(lambda: served.step() > before + 50, "the training stands still")
    served.rest_json("/v1/snapshots", {})  # the one that was converted may still be new enough
    different = served.cli("diff", str(old), served.address, code=1)
    assert table in json.dumps(different)
    assert served.step() > before


def test_rest_serves_one_snapshot_to_who_asks_for_it(served) -> None:
    """What is read piece by piece with its ETag is what the snapshot has, bit for bit."""
    with served.open("/v1/variables") as answer:
        tag = answer.headers["ETag"]
        names = [one["name"] for one in json.load(answer)["variables"]]
    assert len(names) > 3
    made = served.rest_json("/v1/snapshots", {"consistent": True})
    assert made["consistent"] is True
    assert made["step_before"] <= made["step"] <= made["step_after"]
    assert tag
    with ckpttool.open(made["prefix"]) as source:
        assert set(names) <= set(source)
    with served.open("/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        figures = {one.name: one.value for family in families for one in family.samples}
    assert figures["ckpttool_training_up"] == 1
    assert figures["ckpttool_snapshots_total"] >= made["number"]


@pytest.mark.parametrize(
    ("to", "file"),
    [("savedmodel", "saved_model.pb"), ("tflite", "model.tflite"), ("onnx", "model.onnx"),
     ("tfjs", "model.json")],
)  # fmt: skip
def test_what_is_live_is_converted_and_proven_equal(served, tmp_path: Path, to, file) -> None:
    """``convert ps://…``: original and result ran on the same inputs, on the same snapshot."""
    before = served.step()
    goal = tmp_path / file if to in {"tflite", "onnx"} else tmp_path / "out"
    done = served.cli(
        *("convert", served.address, str(goal), "--to", to),
        *("--model", f"{EXAMPLE}:build", "--no-input"),
    )
    assert (goal if goal.is_file() else goal / file).exists()
    assert done["check"]["state"] in {"passed", "not_run"}  # tfjs needs node
    if to != "tfjs":
        assert done["check"]["state"] == "passed"
    until(lambda: served.step() > before, "the training stands still")


def test_the_page_in_a_browser_while_it_trains(served, tmp_path: Path) -> None:
    """Step, rate and losses are those of the training, and the curve is drawn."""
    served.rest_json("/v1/exports", {"to": "npz", "name": "page", "wait": True})
    with browser.opened(f"{served.rest}/#token={served.token}") as page:
        # Losses are reported each hundred steps, and the page asks each two seconds.
        drawn = until(lambda: _points(html := page.html()) > 3 and html, "nothing is drawn")
        wide = page.look(tmp_path / "wide.png", width=1280, dark=False)
        narrow = page.look(tmp_path / "narrow.png", width=400, dark=True)
    assert wide[:4] == narrow[:4] == b"\x89PNG"
    steps = re.findall(r"<b>([\d,]+)</b><span>step<", drawn)
    assert 0 < int(steps[0].replace(",", "")) <= served.step()
    assert re.search(r"<td>loss</td>", drawn)
    assert re.search(r'class="good">done<', drawn)
    assert served.token not in drawn


def _points(html: str) -> int:
    """How many points the curve has."""
    return sum(len(points.split()) for points in re.findall(r'points="([^"]*)"', html))
