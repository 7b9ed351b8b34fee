"""A door before ``ClusterCoordinator.schedule``: shut, and no step is under way.

A snapshot of one moment is made while it is shut. That takes no longer than the steps that
are queued, so few are let in: two a worker keep every worker busy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from ckpttool.errors import ClusterError

__all__ = ["PER_WORKER", "Gate"]

#: Steps a worker that may be scheduled and not finished.
PER_WORKER = 2
_POLL = 0.001
#: How often a waiting schedule looks whether the cluster failed.
_LOOK = 0.25


class Gate:
    """Takes the place of ``schedule``, ``join`` and ``done`` of a coordinator.

    So whoever uses the coordinator (``tf_keras``' ``fit`` has it from the strategy) goes
    through it. An error of a step that the gate comes upon while it waits is kept, and
    raised where TensorFlow would have: at the user's next call.

    Args:
        coordinator: a ``ClusterCoordinator``.
        workers: how many there are.
        timeout: seconds that shutting may take.
    """

    def __init__(self, coordinator: Any, workers: int, timeout: float = 120.0) -> None:
        self._schedule: Callable[..., Any] = coordinator.schedule
        self._join: Callable[[], None] = coordinator.join
        self._done: Callable[[], bool] = coordinator.done
        self._limit = PER_WORKER * max(1, workers)
        self._timeout = timeout
        self._shutting = threading.Lock()
        self._door = threading.Condition()
        self._shut = False
        self._error: BaseException | None = None
        self._under_way: list[Any] = []
        #: Steps that were let in.
        self.passed = 0
        coordinator.schedule = self.schedule
        coordinator.join = self.join
        coordinator.done = self.done

    @property
    def busy(self) -> bool:
        """Whether steps are under way."""
        return bool(self._waiting())

    def schedule(
        self, fn: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None
    ) -> Any:
        """As ``ClusterCoordinator.schedule``; waits while the door is shut, or all is busy."""
        self._wait_for_room()
        with self._door:
            self._door.wait_for(lambda: not self._shut)
            self._raise()
            value = self._schedule(fn, args=args, kwargs=kwargs)
            self._under_way += tf.nest.flatten(value)[:1]
            self.passed += 1
        return value

    def join(self) -> None:
        """As ``ClusterCoordinator.join``."""
        self._join()
        self._raise()

    def done(self) -> bool:
        """As ``ClusterCoordinator.done``."""
        finished = self._done()
        self._raise()
        return finished

    @contextmanager
    def shut(self) -> Iterator[None]:
        """No step is under way, and none begins, while the block runs.

        Raises:
            ClusterError: id ``gate-timeout``; id ``ps-lost``: a step failed meanwhile.
        """
        with self._shutting:
            with self._door:
                self._shut = True
            try:
                self._drain()
                yield
            finally:
                with self._door:
                    self._shut = False
                    self._door.notify_all()

    def _drain(self) -> None:
        end = time.monotonic() + self._timeout
        while True:
            try:
                if self._done():
                    return
            except Exception as error:
                self._error = error
                raise ClusterError(
                    "the training failed while a snapshot waited for its steps",
                    why=f"{type(error).__name__}: {str(error)[:300]}",
                    hint="look into the logs of the run directory",
                    id="ps-lost",
                ) from error
            if time.monotonic() > end:
                raise ClusterError(
                    "the steps under way did not end",
                    why=f"{len(self._waiting())} were queued, and {self._timeout:g} seconds passed",
                    hint="a worker may hang: look into the logs of the run directory",
                    id="gate-timeout",
                )
            time.sleep(_POLL)

    def _wait_for_room(self) -> None:
        look = time.monotonic() + _LOOK
        while len(waiting := self._waiting()) >= self._limit:
            # The oldest is likely to be the next that ends; if not, this is not long.
            waiting[0]._status_available_event.wait(_POLL)
            if time.monotonic() > look:
                self.done()  # raises what failed: a failed queue never empties by itself
                look = time.monotonic() + _LOOK

    def _waiting(self) -> list[Any]:
        """The steps under way: ``RemoteValue`` has no public word for it that does not wait."""
        with self._door:
            self._under_way = [
                value for value in self._under_way if not value._status_available_event.is_set()
            ]
            return list(self._under_way)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
