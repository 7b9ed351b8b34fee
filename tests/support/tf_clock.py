"""TensorFlow's own retention code with its clock controlled and its slow writing replaced.

Its bookkeeping, its state files and its deletions are its own; only the writing of tensors
is replaced, by making the files that it would have written.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["Clock", "FakeCheckpoint", "TouchingSession", "advance", "controlled"]

_DATA = b"\1\2\3\4"


class Clock:
    """The time that TensorFlow sees, and how it writes a checkpoint at that time."""

    def __init__(self, index: bytes) -> None:
        self.now = 1.6e9
        self._index = index

    def time(self) -> float:
        return self.now

    def write(self, prefix: str) -> None:
        """The files of a checkpoint, saved now."""
        for suffix, data in ((".index", self._index), (".data-00000-of-00001", _DATA)):
            Path(prefix + suffix).write_bytes(data)
            os.utime(prefix + suffix, (self.now, self.now))


def controlled(monkeypatch: pytest.MonkeyPatch, index: bytes = b"") -> Clock:
    """Give TensorFlow this clock, and quick sessions, for the length of a test."""
    from tensorflow.python.checkpoint import checkpoint_management
    from tensorflow.python.client import session
    from tensorflow.python.lib.io import file_io
    from tensorflow.python.training import saver

    clock = Clock(index)
    fake = SimpleNamespace(time=clock.time)
    monkeypatch.setattr(checkpoint_management, "time", fake)
    monkeypatch.setattr(saver, "time", fake)
    monkeypatch.setattr(session, "SessionInterface", TouchingSession)
    write = file_io.atomic_write_string_to_file

    def write_dated(filename: str, *args: Any, **kwargs: Any) -> None:
        write(filename, *args, **kwargs)
        os.utime(filename, (clock.now, clock.now))

    # The state file is dated by the same clock as all else.
    monkeypatch.setattr(file_io, "atomic_write_string_to_file", write_dated)
    return clock


def advance(rng: random.Random, hours: float | None) -> float:
    """How much time passes; often exactly the interval, where strict and non-strict differ."""
    exact = (hours or 1.0) * 3600.0
    if rng.random() < 0.3:
        return rng.choice([0.0, exact, exact / 2, exact * 3, -rng.uniform(0, 2 * exact)])
    return rng.choice([exact, exact / 2, rng.uniform(0, exact)])


class FakeCheckpoint:
    """What CheckpointManager needs of a Checkpoint: a counter, and a write that is quick."""

    def __init__(self, tf: Any, clock: Clock) -> None:
        self.save_counter = tf.Variable(0, dtype=tf.int64)
        self._clock = clock

    def _write(self, prefix: str, options: Any) -> str:
        self._clock.write(prefix)
        for callback in options.experimental_write_callbacks:
            callback(prefix)
        return prefix


class TouchingSession:
    """What Saver needs of a Session: running the save op writes the files."""

    graph = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def run(self, _fetch: str, feed: dict[str, str]) -> str:
        (prefix,) = feed.values()
        self._clock.write(prefix)
        return prefix
