"""Answers requests on ``live.sock``; what they mean is the affair of ``LiveHost``.

Every connection has a thread, since most requests wait for a snapshot that they share.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from ckpttool.errors import ChangedError, CkpttoolError, InternalError, LimitError, UsageError
from ckpttool.ps.live_protocol import (
    SOCKET_NAME,
    failure,
    receive,
    send,
    socket_address,
    success,
)

__all__ = ["CONNECTIONS", "LiveServer"]

#: At the same time: the gateway has a few, `status` and exports one each.
CONNECTIONS = 64
#: Seconds at the end for answers under way: `stop` ends the training that answers it.
_LAST_ANSWERS = 1.0

#: A request's arguments → its value.
Handler = Callable[[Mapping[str, Any]], object]


class LiveServer:
    """Listens from ``__enter__`` to ``__exit__``.

    Args:
        directory: the run directory.
        handlers: what answers each request.
    """

    def __init__(self, directory: str, handlers: Mapping[str, Handler]) -> None:
        self._directory = directory
        self._handlers = handlers
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._open: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        """Start to listen.

        Raises:
            ChangedError: id ``live-taken``: another training answers there.
        """
        try:
            self._bind()
            self._socket.listen(CONNECTIONS)
        except BaseException:
            self._socket.close()
            raise
        threading.Thread(target=self._accept, name="ckpttool-live", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            os.unlink(os.path.join(self._directory, SOCKET_NAME))
        except FileNotFoundError:
            pass  # somebody tidied up
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()
        self._shutdown(socket.SHUT_RD)  # no more questions; who has asked gets an answer
        with self._lock:
            answering = list(self._open.values())
        last = time.monotonic() + _LAST_ANSWERS
        for thread in answering:
            thread.join(max(0.0, last - time.monotonic()))
        self._shutdown(socket.SHUT_RDWR)

    def _shutdown(self, how: int) -> None:
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(how)
                except OSError:
                    pass  # the other side was quicker

    def _bind(self) -> None:
        with socket_address(self._directory) as address:
            if os.path.exists(address):
                self._require_dead(address)
                os.unlink(address)
            before = os.umask(0o177)
            try:
                self._socket.bind(address)
            finally:
                os.umask(before)

    def _require_dead(self, address: str) -> None:
        """Check that nobody answers on a socket that is there: a killed one leaves its file."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(address)
            except OSError:
                return
        raise ChangedError(
            f"a training answers in {self._directory} already",
            why=f"its {SOCKET_NAME} is open",
            hint="give this one another run directory, or end that one",
            id="live-taken",
        )

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            if not self._places.acquire(blocking=False):
                self._refuse(connection)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            with self._lock:
                self._open[connection] = thread
                thread.start()

    def _refuse(self, connection: socket.socket) -> None:
        error = LimitError(
            "too many connections to live.sock",
            why=f"{CONNECTIONS} are open",
            hint="ask again in a moment",
            id="live-busy",
        )
        try:
            send(connection, failure(error))
        except OSError:
            pass  # it has gone
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while (message := receive(connection)) is not None:
                send(connection, self._answer(message))
        except (OSError, CkpttoolError):
            pass  # it has gone, or speaks something else
        finally:
            with self._lock:
                del self._open[connection]
                connection.close()
            self._places.release()

    def _answer(self, message: Mapping[str, Any]) -> dict[str, object]:
        try:
            handler = self._handlers.get(str(message.get("do")))
            if handler is None:
                raise UsageError(
                    f"live.sock knows no request {message.get('do')!r}"[:200],
                    why=f"it knows {', '.join(self._handlers)}",
                    id="live-request",
                )
            return success(handler(message))
        except CkpttoolError as error:
            return failure(error)
        except (TypeError, ValueError, KeyError) as error:
            traceback.print_exc()
            return failure(
                UsageError(
                    f"the request {message.get('do')} of live.sock makes no sense",
                    why=f"{type(error).__name__}: {error}"[:300],
                    id="live-request",
                )
            )
        except Exception as error:  # noqa: BLE001 - a request may not end the training
            traceback.print_exc()
            return failure(
                InternalError(
                    f"a bug in ckpttool: {type(error).__name__}",
                    why=str(error)[:300],
                    hint="its traceback is in the log of the training",
                )
            )
