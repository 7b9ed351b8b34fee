"""FAULTS 6: a real CheckpointManager and a real Saver save in a loop while prunes run.

Never a broken newest, never a state file whose latest is not there, never a touched `_temp`:
a trainer whose temporary files were taken away would end with an error.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckpttool.errors import ChangedError
from ckpttool.formats.state import parse_state
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import plan_prune
from ckpttool.policy.facts import Retention
from ckpttool.sources.whole import flaws
from ckpttool.storage import open_directory
from tests.support.command import ROOT, clean_environment
from tests.support.runs import prefixes

pytestmark = pytest.mark.slow

#: Saves until a file `stop` appears, with pauses in which nothing is written.
MANAGER = """
import random, sys, time, pathlib
import tensorflow as tf
run = pathlib.Path(sys.argv[1])
checkpoint = tf.train.Checkpoint(a=tf.Variable(tf.zeros([64, 64])), b=tf.Variable(1))
manager = tf.train.CheckpointManager(checkpoint, str(run), max_to_keep=30)
while not (run / "stop").exists():
    path = manager.save()
    assert tf.train.latest_checkpoint(str(run)) == path
    time.sleep(random.choice([0, 0, 0.01, 0.4]))
checkpoint.restore(manager.latest_checkpoint).assert_consumed()
"""
SAVER = """
import random, sys, time, pathlib
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
run = pathlib.Path(sys.argv[1])
tf.get_variable("a", initializer=tf.zeros([64, 64]))
saver = tf.train.Saver(max_to_keep=30)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    step = 0
    while not (run / "stop").exists():
        step += 1
        path = saver.save(session, str(run / "model.ckpt"), global_step=step)
        assert tf.train.latest_checkpoint(str(run)) == path
        time.sleep(random.choice([0, 0, 0.01, 0.4]))
    saver.restore(session, tf.train.latest_checkpoint(str(run)))
"""


def assert_latest_is_whole(run: Path) -> str:
    """What the state file calls latest is there and whole, whenever one looks."""
    for _ in range(50):
        text = (run / "checkpoint").read_bytes()
        latest = parse_state(text).model_checkpoint_path
        assert latest is not None
        name = latest.rpartition("/")[2]
        with open_directory(str(run)) as directory:
            wrong = flaws(directory, name, Limits())
        if not wrong:
            return name
        # A Saver or a Manager that saved meanwhile may have deleted it itself.
        assert (run / "checkpoint").read_bytes() != text, f"{name}: {wrong[0]}"
    raise AssertionError("the state file changes faster than it can be read")


@pytest.mark.parametrize(("trainer", "style"), [(MANAGER, "manager"), (SAVER, "saver")])
def test_beside_a_trainer(tmp_path: Path, trainer: str, style: str) -> None:
    pytest.importorskip("tensorflow")
    run = tmp_path / "run"
    run.mkdir()
    log = (tmp_path / "log").open("wb")
    environment = clean_environment({"TF_CPP_MIN_LOG_LEVEL": "3"})
    training = subprocess.Popen(
        [sys.executable, "-c", trainer, str(run)], stdout=log, stderr=log, env=environment
    )
    watch = [sys.executable, "-m", "ckpttool", "prune", str(run), "--watch", "0.3", "-y"]
    watch += ["--max-to-keep", "4", "--policy", style, "--min-age", "0.2", "--order", "state"]
    watching = subprocess.Popen(
        watch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=ROOT, text=True
    )
    removed = 0
    try:
        deadline = time.monotonic() + 60
        while not (run / "checkpoint").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        # Two hundred prunes, and on a slow machine as many more as it takes to see
        # the trainer's checkpoints go.
        deadline = time.monotonic() + 120
        for number in itertools.count():
            if number >= 200 and (removed > 50 or time.monotonic() > deadline):
                break
            settings = Retention(
                style="manager" if style == "manager" else "saver",
                max_to_keep=1 + number % 3,
                min_age=0.1,
                order="state",
            )
            try:
                plan = plan_prune(str(run), Request(settings))
                result = apply_plan(plan, trash=number % 10 == 0)
            except ChangedError as error:
                assert error.id == "locked"  # noqa: PT017 - the watch is at work just then
            else:
                removed += len(result.carried.removed.prefixes)
            assert training.poll() is None, (tmp_path / "log").read_text()
            assert_latest_is_whole(run)
            time.sleep(0.03)
    finally:
        (run / "stop").touch()
        watching.send_signal(signal.SIGTERM)
        lines, errors = watching.communicate(timeout=60)
        code = training.wait(timeout=60)
        log.close()
    assert code == 0, (tmp_path / "log").read_text()
    assert watching.returncode == 0, errors
    records = [json.loads(line) for line in lines.splitlines()]
    assert records[-1]["type"] == "summary"
    assert removed > 50
    newest = assert_latest_is_whole(run)
    assert newest in prefixes(run)
    # Only now, with the trainer gone, is there anything to tidy up.
    assert [path.name for path in run.iterdir() if "_temp" in path.name] == []
