"""The service over HTTP: JSON for what describes, ``.npy`` for values.

An answer names its snapshot in its ETag. ``If-None-Match`` saves the body of what has not
changed; ``If-Match`` asks for the very snapshot that an earlier answer was of.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    InternalError,
    LimitError,
    NotFoundError,
    PermissionDeniedError,
    UnreachableError,
    UnsupportedError,
    UsageError,
)
from ckpttool.formats.elements import npy_descr
from ckpttool.formats.npy import header
from ckpttool.ps.gateway.held import Held
from ckpttool.ps.gateway.metrics import Metrics
from ckpttool.ps.gateway.openapi import OPENAPI, proto
from ckpttool.ps.gateway.page import page
from ckpttool.ps.gateway.service import PIECE_BYTES, Body, Service, item_bytes, sayable
from ckpttool.ps.live_protocol import failure
from ckpttool.sources.base import Source
from ckpttool.sources.selection import Index, parse_index

__all__ = ["application"]

#: The JSON of a request.
_BODY_BYTES = 16 * 2**10
_BODY_SECONDS = 10.0
_STRINGS = "application/x-ckpttool-strings"
_NPY = "application/x-npy"
_STATUS: tuple[tuple[type[CkpttoolError], int], ...] = (
    (UsageError, 400),
    (NotFoundError, 404),
    (PermissionDeniedError, 403),
    (ChangedError, 412),
    (LimitError, 413),
    (UnsupportedError, 422),
    (UnreachableError, 503),
)

Handler = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger(__name__)


class _Rest:
    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    async def status(self, _: Request) -> Response:
        return _json(await self._service.status())

    async def variables(self, request: Request) -> Response:
        held = await self._service.pinned(_wanted(request))
        if _is_known(request, held):
            return _unchanged(held)
        with self._metrics.loading("list"):
            body = await asyncio.to_thread(held.form, _listing)
        return Response(body, headers={"ETag": _etag(held)}, media_type="application/json")

    async def values(self, request: Request) -> Response:
        asked = _query(request, "name", "index")
        if "name" not in asked:
            raise _wrong("a read names no variable", "the parameter name is missing")
        index: Index = parse_index(asked["index"]) if asked.get("index") else ()
        held = await self._service.pinned(_wanted(request))
        if _is_known(request, held):
            return _unchanged(held)
        with self._metrics.loading("read"):
            body, data = await asyncio.to_thread(self._begin, held, asked["name"], index)
        self._metrics.served(body.rows, body.nbytes)
        head = _npy_header(body)
        headers = {
            "ETag": _etag(held),
            "Content-Length": str(len(head) + body.nbytes),
            "Ckpttool-Dtype": body.variable.dtype,
        }
        media = _NPY if head else _STRINGS
        if data is not None:
            return Response(head + data, headers=headers, media_type=media)

        async def stream() -> AsyncIterator[bytes]:
            yield head
            while (piece := await asyncio.to_thread(next, body.pieces, None)) is not None:
                yield piece

        return StreamingResponse(stream(), headers=headers, media_type=media)

    def _begin(self, held: Held, name: str, index: Index) -> tuple[Body, bytes | None]:
        body = self._service.read(held, name, index)
        return body, b"".join(body.pieces) if body.nbytes <= PIECE_BYTES else None

    async def snapshot(self, request: Request) -> Response:
        asked = await _object(request, "consistent")
        consistent = _flag(asked, "consistent")
        held = await self._service.snapshot(consistent=consistent)
        return _json(held.record, 201)

    async def export(self, request: Request) -> Response:
        asked = await _object(request, "to", "name", "wait")
        to, name = asked.get("to"), asked.get("name", asked.get("to"))
        if not isinstance(to, str) or not isinstance(name, str):
            raise _wrong("the export says not what to make", "to, and name, have to be texts")
        wait = _flag(asked, "wait") or False
        return _json(await self._service.export(to, name, wait=wait), 201 if wait else 202)

    async def metrics(self, _: Request) -> Response:
        try:
            status = await self._service.status()
        except CkpttoolError:
            status = None  # the rest can be told, and `up` is 0
        return Response(
            self._metrics.exposition(status), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def health(self, _: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def ready(self, _: Request) -> Response:
        try:
            await self._service.status()
        except CkpttoolError:  # why is told to those who have the token
            return Response("the training does not answer\n", 503, media_type="text/plain")
        return Response("ready\n", media_type="text/plain")

    async def proto(self, _: Request) -> Response:
        return Response(proto(), media_type="text/plain")

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(OPENAPI)

    async def page(self, _: Request) -> Response:
        content, policy = page()
        headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
        return Response(content, headers=headers, media_type="text/html")


def application(service: Service, metrics: Metrics) -> Starlette:
    """The ASGI application; the guard stands before it."""
    rest = _Rest(service, metrics)

    def counted(path: str, handler: Handler, method: str = "GET") -> Route:
        async def answer(request: Request) -> Response:
            try:
                response = await handler(request)
            except CkpttoolError as error:
                response = _failed(error)
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:  # noqa: BLE001 - it is answered, counted and in the log
                _log.exception("a request failed")
                bug = f"a bug in ckpttool: {type(error).__name__}"
                response = _failed(InternalError(bug, hint="see gateway.log"))
            metrics.answered(path, response.status_code)
            return response

        return Route(path, answer, methods=[method])

    routes = [
        counted("/", rest.page),
        counted("/healthz", rest.health),
        counted("/readyz", rest.ready),
        counted("/metrics", rest.metrics),
        counted("/openapi.json", rest.openapi),
        counted("/gateway.proto", rest.proto),
        counted("/v1/status", rest.status),
        counted("/v1/variables", rest.variables),
        counted("/v1/values", rest.values),
        counted("/v1/snapshots", rest.snapshot, "POST"),
        counted("/v1/exports", rest.export, "POST"),
    ]
    made = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    made.router.redirect_slashes = False  # to an address that the client has made up
    return made


def _json(value: object, status: int = 200) -> Response:
    # A name may be any bytes, which are lone surrogates here: only as ASCII JSON can say them.
    text = json.dumps(sayable(value), allow_nan=False)
    return Response(text, status, media_type="application/json")


def _failed(error: CkpttoolError) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    return _json({"error": failure(error)["error"]}, status)


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = _failed(
        NotFoundError(
            "the gateway has no such path",
            why=error.detail,
            hint="see /openapi.json",
            id="gateway-path",
        )
    )
    answer.status_code = error.status_code
    return answer


def _etag(held: Held) -> str:
    return f'"{held.tag}"'


def _wanted(request: Request) -> str | None:
    tag = request.headers.get("if-match")
    return None if tag is None else tag.strip().removeprefix('"').removesuffix('"')


def _is_known(request: Request, held: Held) -> bool:
    known = request.headers.get("if-none-match", "")
    return _etag(held) in {one.strip() for one in known.split(",")}


def _unchanged(held: Held) -> Response:
    return Response(status_code=304, headers={"ETag": _etag(held)})


def _npy_header(body: Body) -> bytes:
    """What stands before elements in a ``.npy``; nothing before strings."""
    dtype = body.variable.dtype
    if dtype == "string":
        return b""
    # NumPy has no type for bfloat16 and the like: they travel as bytes of that size.
    return header(npy_descr(dtype) or f"|V{item_bytes(dtype)}", body.shape)


def _listing(held: Held, source: Source) -> bytes:
    """The variables of a snapshot."""
    variables = [
        {
            "name": one.name,
            "key": one.key,
            "dtype": one.dtype,
            "shape": one.shape,
            "bytes": one.nbytes,
            "kind": one.kind,
        }
        for one in source.variables()
    ]
    answer = {"snapshot": sayable(held.record), "style": source.style, "variables": variables}
    return json.dumps(answer, allow_nan=False).encode()


def _query(request: Request, *names: str) -> dict[str, str]:
    """The parameters of a query, each known and given once; names may be any bytes."""
    text = request.scope["query_string"].decode("latin-1")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="surrogateescape", max_num_fields=8)
    except ValueError:  # there are more
        pairs = [("", "")]
    asked = dict(pairs)
    if len(asked) != len(pairs) or not asked.keys() <= set(names):
        raise _wrong("the query makes no sense", f"each of {', '.join(names)} may be given once")
    return asked


async def _object(request: Request, *names: str) -> dict[str, Any]:
    """The JSON object that a request carries; none is an empty one."""
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in request.stream():
                data += piece
                if len(data) > _BODY_BYTES:
                    raise LimitError(
                        "the request is too long",
                        why=f"it has over {_BODY_BYTES} bytes",
                        hint="send only what /openapi.json describes",
                        id="gateway-too-long",
                    )
    except TimeoutError:
        raise _wrong("the request did not come", f"within {_BODY_SECONDS:g} seconds") from None
    try:
        asked = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise _wrong("the request is no JSON", "it cannot be parsed") from None
    if not isinstance(asked, dict) or not asked.keys() <= set(names):
        raise _wrong("the request makes no sense", f"it is an object of {', '.join(names)}")
    return asked


def _flag(asked: Mapping[str, Any], name: str) -> bool | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong("the request makes no sense", f"{name} has to be true, false or null")
    return value


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(what, why=why, hint="see /openapi.json", id="gateway-request")
