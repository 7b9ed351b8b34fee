"""Messages between the supervisor and a child: JSON objects, one a line, over a socket pair.

The child's end is its lifeline too. The supervisor alone holds the other one, so whatever
ends the supervisor closes it, and the child ends itself and all that it started. (A death
signal of Linux does not do: the parent of these children is the fork server.)
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Channel", "Inbox"]

#: A message names a process, an address or an error.
_LINE_BYTES = 2**20


class Channel:
    """The child's end.

    Args:
        descriptor: of the socket; taken over.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, object]) -> None:
        """Tell the supervisor something; nothing happens where it is gone."""
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            pass  # it has ended, and so will we

    def watch(self) -> None:
        """End this process and its group as soon as the supervisor closes the channel.

        A thread waits for that; it runs while TensorFlow works, which lets go of the
        interpreter.
        """
        threading.Thread(target=self._wait, name="ckpttool-lifeline", daemon=True).start()

    def _wait(self) -> None:
        try:
            while self._socket.recv(4096):
                pass  # nothing is said to a child
        except OSError:
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)


class Inbox:
    """The supervisor's end of a channel: never waits."""

    CLOSED: Final[dict[str, Any]] = {"event": "closed"}

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._rest = b""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def read(self) -> list[dict[str, Any]]:
        """The messages that have come; ``CLOSED`` is the last one ever.

        A child that sends what is no message is treated as one that has closed.
        """
        try:
            data = self._socket.recv(2**16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages: list[dict[str, Any]] = []
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                return [*messages, self.CLOSED]
            messages.append(message)
        if not data or len(self._rest) > _LINE_BYTES:
            messages.append(self.CLOSED)
        return messages

    def close(self) -> None:
        """Let the child end; a second call does nothing."""
        self._socket.close()
