"""The replays against TensorFlow itself: its bookkeeping and deletion, its clock controlled.

TensorFlow's own CheckpointManager and Saver run over real files; only the slow writing
of tensors is replaced, by touching the files that it would have written. The small
number runs always, the large one is marked `slow`.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpttool.policy.tensorflow_manager import ManagerReplay
from ckpttool.policy.tensorflow_saver import SaverReplay
from tests.support.tf_clock import Clock, FakeCheckpoint, TouchingSession, advance, controlled

SUFFIXES = (".index", ".data-00000-of-00001")
HISTORIES = [pytest.param(40, id="some"), pytest.param(600, id="many", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def tf() -> Iterator[Any]:
    module = pytest.importorskip("tensorflow")
    level = logging.getLogger("tensorflow").level
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    yield module
    logging.getLogger("tensorflow").setLevel(level)


@pytest.fixture
def clock(tf: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return controlled(monkeypatch)


def survivors(directory: Path) -> set[str]:
    """The prefixes with files; a prefix must have both of its files or none."""
    found = [
        {path.name.removesuffix(suffix) for path in directory.iterdir() if suffix in path.name}
        for suffix in SUFFIXES
    ]
    assert found[0] == found[1]
    return found[0]


def manager_history(tf: Any, clock: Clock, directory: Path, rng: random.Random) -> None:
    from tensorflow.python.checkpoint import checkpoint_management as management

    clock.now = 1.6e9
    expected: set[str] = set()
    manager, replay, number = None, None, 0
    settings: tuple[int | None, float | None] = (None, None)
    checkpoint = FakeCheckpoint(tf, clock)
    for _ in range(rng.randint(5, 25)):
        clock.now += advance(rng, settings[1])
        if manager is None or rng.random() < 0.2:
            settings = (rng.choice([1, 2, 3, 5, None]), rng.choice([None, 0, 0.1, 1, 2.5]))
            state = management.get_checkpoint_state(str(directory))
            if state is None:
                replay = ManagerReplay.started(clock.now)
            else:
                replay = ManagerReplay.recovered(
                    [os.path.basename(path) for path in state.all_model_checkpoint_paths],
                    state.all_model_checkpoint_timestamps,
                    state.last_preserved_timestamp,
                    clock.now,
                )
            manager = tf.train.CheckpointManager(
                checkpoint, str(directory), settings[0], settings[1]
            )
        assert replay is not None
        number = number + 1 if rng.random() < 0.8 else rng.randint(1, number + 1)
        manager.save(checkpoint_number=number)
        expected.add(f"ckpt-{number}")
        replay.save(f"ckpt-{number}", clock.now)
        for gone in replay.sweep(*settings):
            if gone.outcome == "deleted":
                expected.discard(gone.prefix)
        assert survivors(directory) == expected
        state = management.get_checkpoint_state(str(directory))
        assert [os.path.basename(p) for p in state.all_model_checkpoint_paths] == list(
            replay.managed
        )
        assert list(state.all_model_checkpoint_timestamps) == list(replay.managed.values())
        assert state.last_preserved_timestamp == replay.last_preserved


def saver_history(tf: Any, clock: Clock, directory: Path, rng: random.Random) -> None:
    v1 = tf.compat.v1
    clock.now = 1.6e9
    expected: set[str] = set()
    saver, replay, hours, number = None, None, 1.0, 0
    name = str(directory / "model.ckpt")
    with tf.Graph().as_default():
        v1.get_variable("v", initializer=0)
        session = TouchingSession(clock)
        for _ in range(rng.randint(5, 25)):
            clock.now += advance(rng, hours)
            if saver is None or rng.random() < 0.2:
                most = rng.choice([1, 2, 3, 5, 0, None])
                hours = rng.choice([0, 0.1, 1, 2.5, 10000])
                # The recorded list after a restart: none, or recovered as Estimator does,
                # or set with TensorFlow's infinite times.
                recovered = rng.choice(["none", "mtimes", "infinite"])
                before: list[str] = saver.last_checkpoints if saver else []
                saver = v1.train.Saver(max_to_keep=most, keep_checkpoint_every_n_hours=hours)
                if recovered == "mtimes":
                    saver.recover_last_checkpoints(before)
                elif recovered == "infinite":
                    saver.set_last_checkpoints(before)
                replay = SaverReplay(
                    most,
                    hours,
                    clock.now,
                    recovered=[
                        (os.path.basename(path), when) for path, when in saver._last_checkpoints
                    ],
                )
            assert replay is not None
            number = number + 1 if rng.random() < 0.8 else rng.randint(1, number + 1)
            saver.save(session, name, global_step=number, write_meta_graph=False)
            saved = f"model.ckpt-{number}"
            expected.add(saved)
            gone = replay.save(saved, clock.now)
            if gone and gone.outcome == "deleted":
                expected.discard(gone.prefix)
            assert survivors(directory) == expected
            listed = [os.path.basename(path) for path in saver.last_checkpoints]
            assert listed == list(replay.last)
            assert saver._next_checkpoint_time == replay.next_time


@pytest.mark.parametrize("histories", HISTORIES)
@pytest.mark.parametrize("history", [manager_history, saver_history])
def test_replay_equals_tensorflow(
    tf: Any,
    clock: Clock,
    tmp_path: Path,
    history: Callable[[Any, Clock, Path, random.Random], None],
    histories: int,
) -> None:
    for seed in range(histories):
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            history(tf, clock, directory, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error
