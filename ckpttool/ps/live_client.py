"""Asks the process that holds live parameters, with the standard library alone.

For the gateway, the supervisor and ``serve-ps status``.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from ckpttool.errors import UnreachableError
from ckpttool.ps.live_protocol import (
    SOCKET_NAME,
    error_of,
    receive,
    send,
    socket_address,
)
from ckpttool.storage.base import Closing

__all__ = ["LiveClient"]


class LiveClient(Closing):
    """A connection to ``live.sock`` of a run directory; one request at a time.

    Opened at the first request, and again at the next one after it broke. Not for several
    threads: each has its own.

    Args:
        directory: the run directory.
        timeout: seconds that an answer may take.
    """

    def __init__(self, directory: str, timeout: float = 60.0) -> None:
        self._directory = directory
        self._timeout = timeout
        self._connection: socket.socket | None = None
        self._interrupted = False

    def ask(self, request: str, **arguments: object) -> dict[str, Any]:
        """The value of a request.

        Raises:
            UnreachableError: ids ``live-unreachable``, ``live-timeout``.
            CorruptError: id ``live-protocol``.
            CkpttoolError: whatever the other side raised, of the same class and id.
        """
        try:
            connection = self._connected()
            send(connection, {"do": request, **arguments})
            answer = receive(connection)
        except TimeoutError:
            self.close()
            raise UnreachableError(
                f"the training of {self._directory} does not answer",
                why=f"{request} took longer than {self._timeout:g} seconds",
                hint=f"look into the logs: {os.path.join(self._directory, 'logs')}",
                id="live-timeout",
            ) from None
        except OSError as error:
            self.close()
            raise self._unreachable(error.strerror or str(error)) from None
        except BaseException:
            self.close()
            raise
        if answer is None:
            self.close()
            raise self._unreachable("it closed the connection without an answer")
        if not answer.get("ok"):
            raise error_of(answer.get("error") or {})
        value = answer.get("value")
        return value if isinstance(value, dict) else {}

    def close(self) -> None:
        """End the connection; a second call does nothing."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """From another thread: let ``ask`` fail at once, and whenever it is called again."""
        self._interrupted = True
        connection = self._connection
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended

    def _connected(self) -> socket.socket:
        if self._connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(self._timeout)
                with socket_address(self._directory) as address:
                    connection.connect(address)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        if self._interrupted:
            raise OSError("it was interrupted")
        return self._connection

    def _unreachable(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"no live parameters in {self._directory}",
            why=f"{SOCKET_NAME}: {why}",
            hint=f"see what runs there: ckpttool serve-ps status {self._directory}",
            id="live-unreachable",
        )
