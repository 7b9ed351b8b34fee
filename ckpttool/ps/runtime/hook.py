"""Pauses a TensorFlow 1 trainer's own steps while a snapshot of one moment is copied.

What asks (``attach``) and those who are asked (a ``PauseHook`` in every worker) meet in
small variables on parameter server 0, in a container of our own: ``asked``, which only the
asking one writes, and one a worker that only its hook writes: ``[waiting, workers]``.
Nothing else is shared, and a hook waits no longer than it was told.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from ckpttool.errors import ClusterError, UsageError

__all__ = ["CONTAINER", "MOST_WORKERS", "Pause", "PauseHook"]

tf1 = tf.compat.v1
_R = tf.raw_ops
#: Of all that we put on a server.
CONTAINER = "ckpttool"
#: Workers whose hooks are looked for.
MOST_WORKERS = 256
_POLL = 0.003


class PauseHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Add one to the hooks of every trainer: ``MonitoredTrainingSession(hooks=[...])``.

    Costs one read of a number on server 0 a step, in the step's own run.

    Args:
        task: the number of this worker.
        workers: how many train: a snapshot is of one moment when all of them wait.
        patience: seconds after which training goes on whatever has become of the snapshot.
        server: the device on which hooks and snapshots meet.
    """

    def __init__(
        self, task: int, workers: int, *, patience: float = 30.0, server: str = "/job:ps/task:0"
    ) -> None:
        if not 0 <= task < workers <= MOST_WORKERS:
            raise UsageError(
                f"there is no worker {task} of {workers}",
                why=f"workers are numbered from 0, and there are {MOST_WORKERS} at most",
                id="hook-worker",
            )
        self._task = task
        self._workers = workers
        self._patience = patience
        self._server = server
        self._gave_up = 0

    def begin(self) -> None:
        """Make the operations; a session's graph cannot be added to later."""
        with tf1.device(self._server):
            self._asked = _asked_or_zero()
            state = _state(self._task)
            self._value = tf1.placeholder(tf.int64, [2])
            self._tell = _R.AssignVariableOp(resource=state, value=self._value)
            self._leave = _R.DestroyResourceOp(resource=state, ignore_lookup_error=True)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Say that this worker has a hook."""
        del coord
        self._say(session, waiting=False)

    def before_run(self, run_context: Any) -> Any:
        """Look, together with the step, whether a pause is asked for."""
        del run_context
        return tf1.train.SessionRunArgs(self._asked)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Wait here, between two steps, until the copy is made."""
        asked = int(run_values.results)
        if asked in {0, self._gave_up}:
            return
        # Not through the monitored session: its hooks would run.
        session = run_context.session
        self._say(session, waiting=True)
        end = time.monotonic() + self._patience
        while session.run(self._asked) == asked:
            if time.monotonic() > end:
                self._gave_up = asked  # who asked has died, or is too slow
                break
            time.sleep(_POLL)
        self._say(session, waiting=False)

    def end(self, session: Any) -> None:
        """Say that this worker trains no more."""
        session.run(self._leave)

    def _say(self, session: Any, *, waiting: bool) -> None:
        session.run(self._tell, {self._value: [int(waiting), self._workers]})


class Pause:
    """The asking side; its operations are added to the default graph.

    Args:
        session: on the cluster.
        server: the number of the server where it meets the hooks.
        timeout: seconds that waiting for the workers may take.
    """

    def __init__(self, session: Any, server: int, timeout: float = 20.0) -> None:
        self._session = session
        self._timeout = timeout
        with tf1.device(f"/job:ps/task:{server}"):
            self._value = tf1.placeholder(tf.int64, [])
            self._ask = _R.AssignVariableOp(resource=_asked(), value=self._value)
            states = [_state(task) for task in range(MOST_WORKERS)]
            self._present = tf.stack([_R.VarIsInitializedOp(resource=one) for one in states])
            self._states = [_R.ReadVariableOp(resource=one, dtype=tf.int64) for one in states]

    def complete(self) -> bool:
        """Whether every worker has a hook."""
        return bool(self._hooks())

    @contextmanager
    def held(self, *, pause: bool) -> Iterator[list[float]]:
        """All workers wait while the block runs.

        Gives a list; its one member becomes the seconds that it took.

        Raises:
            ClusterError: id ``gate-timeout``: not all came to wait.
        """
        seconds = [0.0]
        if not pause:
            yield seconds
            return
        started = time.monotonic()
        # Another number each time: a hook that gave up on one waits for the next.
        self._session.run(self._ask, {self._value: time.time_ns()})
        try:
            self._wait(started + self._timeout)
            yield seconds
        finally:
            self._session.run(self._ask, {self._value: 0})
            seconds[0] = time.monotonic() - started

    def _wait(self, end: float) -> None:
        hooks = self._hooks()
        while True:
            states = self._session.run([self._states[task] for task in hooks])
            waiting = sum(int(state[0]) for state in states)
            if waiting == len(hooks):
                return
            if time.monotonic() > end:
                raise ClusterError(
                    "the workers did not pause",
                    why=f"{waiting} of {len(hooks)} wait, after {self._timeout:g} seconds",
                    hint="a worker may have died without its hook's end(); start it again",
                    id="gate-timeout",
                )
            time.sleep(_POLL)

    def _hooks(self) -> list[int]:
        """The workers with hooks, if these are all workers; else none."""
        there = [int(task) for task in np.flatnonzero(self._session.run(self._present))]
        if not there:
            return []
        counts = {int(state[1]) for state in self._session.run([self._states[t] for t in there])}
        return there if counts == {len(there)} else []


def _asked() -> Any:
    return _R.VarHandleOp(
        dtype=tf.int64, shape=[], shared_name="ckpttool/asked", container=CONTAINER
    )


def _state(task: int) -> Any:
    name = f"ckpttool/hook/{task}"
    return _R.VarHandleOp(dtype=tf.int64, shape=[2], shared_name=name, container=CONTAINER)


def _asked_or_zero() -> Any:
    """What is asked; 0 before anybody ever has."""
    handle = _asked()
    return tf1.cond(
        _R.VarIsInitializedOp(resource=handle),
        lambda: _R.ReadVariableOp(resource=handle, dtype=tf.int64),
        lambda: tf.constant(0, tf.int64),
    )
