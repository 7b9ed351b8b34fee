"""Starts the children that use TensorFlow, by forking a process that has imported it.

Importing TensorFlow takes seconds of the processor in each process; a fork takes a
hundredth of one. The server runs no operation, for what TensorFlow starts then (threads,
devices) does not survive a fork. It never holds the supervisor's end of a channel.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.ps.channel import Inbox

__all__ = ["Child", "ForkServer"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Runs the server whatever ``sys.path`` is, without putting anything before the library.
_START = (
    "import sys; sys.path.append(sys.argv[1]);"
    "from ckpttool.ps.runtime.fork_server import main; main(int(sys.argv[2]))"
)
#: Children are numbered across servers, for those of one that died go on.
_NUMBERS = itertools.count(1)


@dataclass(slots=True)
class Child:
    """A child: ``pid`` is None until the server has told it."""

    number: int
    inbox: Inbox
    pid: int | None = None
    ended: bool = False

    def end(self) -> None:
        """Let it end itself, with all that it started."""
        self.inbox.close()

    def kill(self) -> None:
        """For one that does not: it is stopped, or does not let its watch run."""
        if self.pid is not None and not self.ended:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # it has ended (macOS says EPERM of a group of zombies)


class ForkServer:
    """The process, and the requests that go to it.

    What it says comes from ``read``, each as a dict with its ``event``: ``ready``; ``started``
    with ``number`` and ``pid``; ``ended`` with ``number`` and ``code`` (as ``subprocess`` counts
    codes); and ``Inbox.CLOSED``.

    Args:
        log: the file to which everything that it prints is added.
    """

    def __init__(self, log: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs, open(log, "ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                [sys.executable, "-P", "-c", _START, _ROOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._requests = ours.dup()
        self._inbox = Inbox(ours)
        # Both are one open socket, so reading never waits; a request is waited for.

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def fileno(self) -> int:
        """For a selector."""
        return self._inbox.fileno()

    def read(self) -> list[dict[str, Any]]:
        """What it has said since the last call; never waits."""
        return self._inbox.read()

    def spawn(
        self, module: str, job: Mapping[str, object], log: str, environment: Mapping[str, str]
    ) -> Child:
        """Ask for a child that calls ``run(job, channel)`` of a module of ``ps/runtime``.

        Args:
            module: its full name.
            job: what JSON can say.
            log: the file to which everything that it prints is added.
            environment: variables that it has besides those of the server.

        Raises:
            OSError: the server is gone.
        """
        number = next(_NUMBERS)
        request = {"number": number, "module": module, "job": job, "environment": environment}
        data = json.dumps(request).encode() + b"\n"
        ours, theirs = socket.socketpair()
        try:
            with theirs, open(log, "ab") as output:
                sent = 0
                descriptors = [theirs.fileno(), output.fileno()]
                while sent < len(data):
                    sent += self._send(data[sent:], descriptors)
                    descriptors = []
        except BaseException:
            ours.close()
            raise
        return Child(number, Inbox(ours))

    def close(self) -> None:
        """Let it end; children are not affected."""
        self._requests.close()
        self._inbox.close()

    def wait(self, seconds: float) -> None:
        """Reap it, and kill it when it has not ended until then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def end_children(self, children: Sequence[Child], seconds: float) -> None:
        """Hear of the ends of children that were told to end, until so many seconds are over."""
        deadline = time.monotonic() + seconds
        by_number = {child.number: child for child in children}
        while time.monotonic() < deadline and not all(child.ended for child in children):
            select.select([self], [], [], max(0.0, deadline - time.monotonic()))
            for message in self.read():
                if message is Inbox.CLOSED:
                    return
                child = by_number.get(message.get("number", 0))
                if child is not None:
                    child.pid = message.get("pid", child.pid)
                    child.ended = message["event"] == "ended"

    def _send(self, data: bytes, descriptors: list[int]) -> int:
        while True:
            try:
                return socket.send_fds(self._requests, [data], descriptors)
            except BlockingIOError:
                select.select([], [self._requests], [])


def _environment() -> dict[str, str]:
    """Ours, with TensorFlow told to be quiet, and text that is no Unicode allowed in logs."""
    env = dict(os.environ)
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    env["PYTHONIOENCODING"] = "utf-8:backslashreplace"
    env["PYTHONUNBUFFERED"] = "1"
    return env
