"""`prune` against TensorFlow itself: one directory swept by it, the other by us.

The same saves go to two directories, with TensorFlow's clock controlled. In one the
CheckpointManager (or Saver) sweeps as it saves; in the other it keeps all, and `prune` is
run instead. The `.index` and `.data` files that are left have to be the same ones.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from ckpttool.ops.prune.execute import apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import plan_prune
from ckpttool.policy.facts import Retention
from tests.support.runs import index_bytes
from tests.support.tf_clock import Clock, FakeCheckpoint, TouchingSession, advance, controlled

HISTORIES = [pytest.param(15, id="some"), pytest.param(520, id="many", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture
def clock(tf: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return controlled(monkeypatch, index_bytes())


def survivors(directory: Path) -> set[str]:
    return {
        path.name
        for path in directory.iterdir()
        if path.name.endswith(".index") or ".data-" in path.name
    }


def prune(directory: Path, retention: Retention) -> None:
    # Everything is long past by the real clock, so nothing is recent and nothing to come.
    request = Request(retention)
    apply_plan(plan_prune(str(directory), request))


def settings(rng: random.Random) -> tuple[int, float | None]:
    return rng.choice([1, 2, 3, 5]), rng.choice([None, 0.1, 1, 2.5])


def next_number(rng: random.Random, highest: int, active: list[str]) -> int:
    """A new number, or one that is saved again.

    Only an active one: what was evicted and is saved again left a trace in TensorFlow's
    memory alone, which no file shows. (The replays in tests/policy know that case, too.)
    """
    if active and rng.random() < 0.15:
        return int(rng.choice(active).rpartition("-")[2])
    return highest + 1


def manager_history(tf: Any, clock: Clock, here: Path, there: Path, rng: random.Random) -> None:
    """Phases with settings of their own; each is a manager that is built anew."""
    from tensorflow.python.checkpoint import checkpoint_management as management

    clock.now = 1.6e9
    checkpoint = FakeCheckpoint(tf, clock)
    highest = 0
    for _ in range(rng.randint(1, 4)):
        most, hours = settings(rng)
        # The clock goes back between phases only: a manager that lives through it knows more
        # than its state file, and what it knows nobody can replay.
        clock.now += rng.choice([1.0, 3600.0, -3600.0 * rng.random()])
        swept = tf.train.CheckpointManager(checkpoint, str(there), most, hours)
        kept = tf.train.CheckpointManager(checkpoint, str(here), None)
        for _ in range(rng.randint(1, 8)):
            clock.now += abs(advance(rng, hours)) or 1.0
            number = next_number(rng, highest, swept.checkpoints)
            highest = max(highest, number)
            for manager in (swept, kept):
                manager.save(checkpoint_number=number)
        prune(here, Retention(max_to_keep=most, every_n_hours=hours, order="state"))
        assert survivors(here) == survivors(there)
        states = [management.get_checkpoint_state(str(folder)) for folder in (here, there)]
        ours, theirs = (
            (
                [os.path.basename(path) for path in state.all_model_checkpoint_paths],
                list(state.all_model_checkpoint_timestamps),
                state.last_preserved_timestamp,
            )
            for state in states
        )
        assert ours == theirs


def saver_history(tf: Any, clock: Clock, here: Path, there: Path, rng: random.Random) -> None:
    """Phases with settings of their own; each Saver starts with an empty list."""
    v1 = tf.compat.v1
    clock.now = 1.6e9
    highest = 0
    with tf.Graph().as_default():
        v1.get_variable("v", initializer=0)
        session = TouchingSession(clock)
        for _ in range(rng.randint(1, 4)):
            most, hours = settings(rng)
            # A restart at the very moment of the last save would save it again.
            clock.now += 10.0
            built = clock.now
            every = 10000 if hours is None else hours
            swept = v1.train.Saver(max_to_keep=most, keep_checkpoint_every_n_hours=every)
            kept = v1.train.Saver(max_to_keep=10**6)
            for _ in range(rng.randint(1, 8)):
                # A Saver goes by its clock, a prune by the file's time as TensorFlow reads it
                # (nanoseconds / 1e9): half seconds are the same in both.
                clock.now = round((clock.now + (abs(advance(rng, hours)) or 1.0)) * 2) / 2
                number = next_number(rng, highest, swept.last_checkpoints)
                highest = max(highest, number)
                for saver, folder in ((swept, there), (kept, here)):
                    saver.save(
                        session, str(folder / "m"), global_step=number, write_meta_graph=False
                    )
            prune(
                here,
                Retention(
                    style="saver", max_to_keep=most, every_n_hours=hours, since=built, order="state"
                ),
            )
            assert survivors(here) == survivors(there)


@pytest.mark.parametrize("histories", HISTORIES)
@pytest.mark.parametrize("history", [manager_history, saver_history])
def test_what_is_left_is_what_tensorflow_left(
    tf: Any,
    clock: Clock,
    tmp_path: Path,
    history: Any,
    histories: int,
) -> None:
    for seed in range(histories):
        here, there = tmp_path / f"{seed}" / "ours", tmp_path / f"{seed}" / "theirs"
        here.mkdir(parents=True)
        there.mkdir()
        try:
            history(tf, clock, here, there, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
