"""Signals as exceptions, so that ``with`` blocks clean up before the process ends.

The first SIGINT or SIGTERM raises in the main thread; a second one of either ends the
process at once, with nothing more tidied up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ckpttool.cli import early
from ckpttool.errors import CkpttoolError

__all__ = ["Finishing", "Stopped", "finishing", "stoppable"]

#: Seconds after which a signal whose exception was dropped is sent again.
_AGAIN = 0.01
#: Seconds in which signals are one wish to finish.
_SAME = 1.0


class InterruptedRunError(CkpttoolError):
    """SIGINT: Ctrl-C."""

    exit_code = 130
    default_id = "interrupted"


class TerminatedRunError(CkpttoolError):
    """SIGTERM: a scheduler, a container's stop, `kill`."""

    exit_code = 143
    default_id = "terminated"


class Stopped(BaseException):
    """The process was asked to end. No ``Exception``: nothing may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells say it."""
        return 128 + self.number

    def as_error(self) -> CkpttoolError:
        """The words for it."""
        kind = InterruptedRunError if self.number == signal.SIGINT else TerminatedRunError
        return kind(
            f"stopped by {signal.Signals(self.number).name}",
            why="the command did not finish; no file is left half-written",
            hint="run the same command again",
        )


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise ``Stopped`` in here for SIGINT and SIGTERM; restores what was before.

    One that came while the process started (``early``) is raised at once. A signal that
    the parent had ignored (``nohup``, a background job) stays ignored.

    What is raised while a destructor or the callback of a weak reference runs is dropped by
    Python, and the import system has such a callback: then it is raised again a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may have handlers
        return
    stopped = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped
        if stopped:
            os._exit(128 + number)
        stopped = True
        early.came.append(number)
        raise Stopped(number)

    def dropped(what: sys.UnraisableHookArgs) -> None:
        nonlocal stopped
        if not isinstance(what.exc_value, Stopped):
            hook(what)
            return
        stopped = False
        early.came.pop()
        # Not from here: that would be dropped too. To the thread itself, or it sleeps on.
        to = (threading.get_ident(), what.exc_value.number)
        again = threading.Timer(_AGAIN, signal.pthread_kill, to)
        again.daemon = True
        again.start()

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        if early.came and early.hold in before.values():
            stopped = True
            raise Stopped(early.came[0])
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


class Finishing:
    """Whether a command that runs until it is asked to stop was asked.

    Args:
        reader: a descriptor that becomes readable with the signal.
    """

    def __init__(self, reader: int) -> None:
        self._reader = reader
        self.stopped = False

    def fileno(self) -> int:
        """For a selector."""
        return self._reader

    def __call__(self, seconds: float) -> bool:
        """Wait for some seconds; returns true at once when SIGINT or SIGTERM came."""
        import select

        if not self.stopped:
            select.select([self], [], [], seconds)
        return self.stopped


@contextmanager
def finishing() -> Iterator[Finishing]:
    """For commands that run until they are asked to stop: a signal lets the step finish.

    A second signal ends the process at once, but one that comes right behind the first is
    the same wish: launchers send it to a process and again to its group.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    asked = Finishing(reader)
    first = 0.0

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if not asked.stopped:
            first = time.monotonic()
        elif time.monotonic() - first > _SAME:
            os._exit(128 + number)
        asked.stopped = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    wakeup = signal.set_wakeup_fd(writer)
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
