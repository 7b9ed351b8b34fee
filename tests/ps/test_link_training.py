"""How tensors travel in a training: feedback on each worker, one line for an optimizer."""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ckpttool.ps.live_client import LiveClient
from tests.support.clusters import until
from tests.support.trained import trained, training, values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


def kinds(folder: Path) -> list[str]:
    """What the supervisor of a training that has ended said."""
    lines = (folder / "events.ndjson").read_text("utf-8").splitlines()
    return [json.loads(line).get("kind") for line in lines]


@pytest.mark.parametrize("feedback", [False, True])
def test_small_gradients_arrive_with_error_feedback(tmp_path: Path, feedback) -> None:
    """Two workers, each with a remainder of its own, for dense gradients and for rows."""
    words = ("--error-feedback",) if feedback else ()
    found = values(trained(tmp_path / "one", "pushed", "--push", "int8", *words))
    for arrived in (found["dense"], found["table"][3]):
        assert arrived[0] == pytest.approx(12700, abs=2.1)
        # Each of two workers may still have half a rounding.
        assert arrived[1] == (pytest.approx(10.0, abs=1.1) if feedback else 0.0)
    assert not np.delete(found["table"], 3, axis=0).any()
    assert "option-unused" not in kinds(tmp_path / "one")


def test_what_does_nothing_is_told_once(tmp_path: Path) -> None:
    trained(tmp_path / "one", "still", "--push", "int8", "--pull", "bf16")
    lines = (tmp_path / "one" / "events.ndjson").read_text("utf-8").splitlines()
    told = [event for event in map(json.loads, lines) if event.get("kind") == "option-unused"]
    assert [event["text"] for event in told] == [
        "of no effect: --push int8 and --pull bf16; the training does not use ctx.link for it"
    ]


@pytest.mark.slow
def test_tf_keras_fit_pushes_in_one_line(tmp_path: Path) -> None:
    """Partitioned, sparse and dense gradients, with feedback; it still learns."""
    pytest.importorskip("tf_keras")
    words = ("--partition", "fixed", "--push", "int8", "--error-feedback")
    last = trained(tmp_path / "fit", "fit_pushed", *words, env=LEGACY)
    assert json.loads(last.with_suffix(".json").read_bytes())["step"] == 125
    assert "option-unused" not in kinds(tmp_path / "fit")


@pytest.mark.slow
def test_a_worker_that_hangs_and_is_killed_holds_nobody(tmp_path: Path) -> None:
    """One that only hangs may hold the others: TensorFlow's executors wait for its answers."""
    with training(tmp_path, "module", "--snapshot-every", "0") as running:
        running.wait_for()
        with LiveClient(str(running.directory)) as live:
            until(lambda: (live.ask("status")["step"] or 0) > 5, running.said())
            os.kill(running.task("worker-0")["pid"], signal.SIGSTOP)
            step = live.ask("status")["step"]
            os.kill(running.task("worker-0")["pid"], signal.SIGKILL)
            until(lambda: live.ask("status")["step"] > step + 100, "the other one waits")
            assert live.ask("snapshot", consistent=True)["consistent"] is True
