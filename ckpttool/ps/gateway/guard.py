"""Who may ask, and how much: the token, and bounds on what a client can hold up.

ASGI, and uvicorn's protocol; knows nothing of parameters.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence
from typing import Any

import h11
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ckpttool.errors import PermissionDeniedError
from ckpttool.ps.live_protocol import failure

__all__ = [
    "ANSWER_SECONDS",
    "CONNECTIONS",
    "HEAD_BYTES",
    "HEAD_SECONDS",
    "OPEN_PATHS",
    "Guard",
    "PatientProtocol",
    "is_token",
    "refusal",
]

#: Connections at a time, and requests; one more is told to come again.
CONNECTIONS = 512

#: A request's line and headers; a name and an index are in it.
HEAD_BYTES = 64 * 2**10
#: What is answered without a token: nothing of it tells a parameter.
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/gateway.proto"})

#: Seconds in which the head of a request has to come, once a connection is open,
HEAD_SECONDS = 10.0
#: and in which an answer has to be taken.
ANSWER_SECONDS = 3600.0


class PatientProtocol(H11Protocol):
    """uvicorn's, which would wait for ever for the head of a request (slowloris).

    And for the rest of a body whose request has been answered, as one without the token is.
    """

    _deadline: asyncio.TimerHandle | None = None
    _rest_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget_deadline()
        elif self._deadline is None:
            self._expect_head()
        if self.conn.their_state is not h11.SEND_BODY:
            self._forget_rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            # At once would take the answer from a client that is still sending.
            self._rest_deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self._forget_rest()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _forget_rest(self) -> None:
        if self._rest_deadline is not None:
            self._rest_deadline.cancel()
            self._rest_deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()


class Guard:
    """Asks for the token, bounds the time of an answer, and adds headers for browsers.

    Args:
        app: what answers.
        token: None: nobody has to show one.
    """

    def __init__(self, app: ASGIApp, token: bytes | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:  # noqa: ANN401 - an ASGI message
            if message["type"] == "http.response.start":
                message["headers"] += [
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-cache"),
                ]
            await send(message)

        if scope["path"] not in OPEN_PATHS and not self._is_allowed(scope):
            await _refusal()(scope, receive, with_headers)
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._app(scope, receive, with_headers)
        except TimeoutError:
            pass  # uvicorn closes a connection whose answer is not complete

    def _is_allowed(self, scope: Scope) -> bool:
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        return is_token(self._token, shown)


def is_token(token: bytes | None, shown: Sequence[bytes]) -> bool:
    """Whether the values of ``authorization`` in a request are the one that lets in."""
    if token is None:
        return True
    return len(shown) == 1 and hmac.compare_digest(shown[0], b"Bearer " + token)


def refusal() -> PermissionDeniedError:
    """The error of a request without the token."""
    return PermissionDeniedError(
        "the gateway asks for its token",
        why="the request has none, or another one",
        hint="send the header Authorization: Bearer TOKEN; it is in the file token of the "
        "run directory",
        id="gateway-token",
    )


def _refusal() -> JSONResponse:
    error = failure(refusal())["error"]
    return JSONResponse({"error": error}, 401, {"WWW-Authenticate": "Bearer"})
