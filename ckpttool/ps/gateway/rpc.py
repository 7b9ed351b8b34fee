"""The service over gRPC: the calls of ``gateway.proto``, their errors as statuses.

A call that streams sees one snapshot from its first piece to its last. Knows neither ports
nor certificates.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    IncompleteError,
    InternalError,
    LimitError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    UnreachableError,
    UnsupportedError,
    UsageError,
)
from ckpttool.ps.gateway import messages
from ckpttool.ps.gateway.guard import ANSWER_SECONDS, is_token, refusal
from ckpttool.ps.gateway.held import Held
from ckpttool.ps.gateway.messages import Message, MessageType
from ckpttool.ps.gateway.metrics import Metrics
from ckpttool.ps.gateway.service import PIECE_BYTES, Body, Service
from ckpttool.ps.live_protocol import failure
from ckpttool.sources.base import Source
from ckpttool.sources.selection import Index, parse_index

__all__ = ["Context", "calls"]

#: What stands before a member that is a message: its number and its length.
_FIELD_BYTES = 6
#: Characters of each part of an error: metadata has to stay under 8 KiB.
_ERROR_CHARACTERS = 300

_CODES: tuple[tuple[type[CkpttoolError], grpc.StatusCode], ...] = (
    (UsageError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (PermissionDeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (ChangedError, grpc.StatusCode.FAILED_PRECONDITION),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    (LimitError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (NoSpaceError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (UnsupportedError, grpc.StatusCode.UNIMPLEMENTED),
    (CorruptError, grpc.StatusCode.DATA_LOSS),
    (IncompleteError, grpc.StatusCode.DATA_LOSS),
    (UnreachableError, grpc.StatusCode.UNAVAILABLE),
)

_log = logging.getLogger(__name__)

#: Of grpc, which has no types: ``ServicerContext``, ``RpcMethodHandler``.
Context = Any
Handler = Any
#: An answer, or a stream of them, as the bytes of a message.
Unary = Callable[[Message], Awaitable[bytes]]
Stream = Callable[[Message], AsyncGenerator[bytes]]


class _Calls:
    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    async def status(self, _: Message) -> bytes:
        return _bytes(messages.filled(messages.Status, await self._service.status()))

    async def variables(self, request: Message) -> AsyncGenerator[bytes]:
        held = await self._service.pinned(request.snapshot)
        with self._metrics.loading("list"):
            pieces = await asyncio.to_thread(held.form, _listing)
        for piece in pieces:
            yield piece

    async def read(self, request: Message) -> AsyncGenerator[bytes]:
        name = request.name or request.key.decode("utf-8", "surrogateescape")
        if not name:
            raise _wrong("a read names no variable", "neither name nor key is set")
        index = parse_index(request.index) if request.index else ()
        held = await self._service.pinned(request.snapshot)
        head = messages.ReadHead(snapshot=_snapshot(held))
        if held.tag == request.known:
            head.unchanged = True
            yield _bytes(messages.ReadPiece(head=head))
            return

        with self._metrics.loading("read"):
            body, first, pieces = await asyncio.to_thread(self._begin, held, name, index)
        self._metrics.served(body.rows, body.nbytes)
        head.dtype, head.bytes = body.variable.dtype, body.nbytes
        head.shape.extend(body.shape)
        yield _bytes(messages.ReadPiece(head=head, data=first))
        if pieces is not None:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield _bytes(messages.ReadPiece(data=piece))

    def _begin(
        self, held: Held, name: str, index: Index
    ) -> tuple[Body, bytes, Iterator[bytes] | None]:
        """A read, its first piece, and the others if there are any."""
        body = self._service.read(held, name, index)
        if body.nbytes <= PIECE_BYTES:
            return body, b"".join(body.pieces), None
        pieces = _cut(body.pieces)
        return body, next(pieces), pieces

    async def snapshot(self, request: Message) -> bytes:
        consistent = request.consistent if request.HasField("consistent") else None
        held = await self._service.snapshot(consistent=consistent)
        return _bytes(_snapshot(held))

    async def export(self, request: Message) -> bytes:
        if not request.to:
            raise _wrong("the export says not what to make", "to is empty")
        name = request.name or request.to
        made = await self._service.export(request.to, name, wait=request.wait)
        return _bytes(messages.filled(messages.Export, made))


def calls(service: Service, metrics: Metrics, token: bytes | None) -> grpc.GenericRpcHandler:
    """The service, for a server of ``grpc.aio``.

    Args:
        service: what answers.
        metrics: counts answers.
        token: None: nobody has to show one.
    """
    answers = _Calls(service, metrics)

    def path(name: str) -> str:
        return f"/{messages.SERVICE}/{name}"

    def unary(name: str, kind: MessageType, answer: Unary) -> Handler:
        async def call(data: bytes, context: Context) -> bytes:
            async with _answering(path(name), context, metrics, token):
                return await answer(_request(kind, data))

        return grpc.unary_unary_rpc_method_handler(call)

    def stream(name: str, kind: MessageType, answer: Stream) -> Handler:
        async def call(data: bytes, context: Context) -> None:
            async with (
                _answering(path(name), context, metrics, token),
                aclosing(answer(_request(kind, data))) as pieces,
            ):
                async for piece in pieces:
                    await context.write(piece)

        return grpc.unary_stream_rpc_method_handler(call)

    handlers = {
        "GetStatus": unary("GetStatus", messages.GetStatusRequest, answers.status),
        "ListVariables": stream("ListVariables", messages.ListVariablesRequest, answers.variables),
        "ReadVariable": stream("ReadVariable", messages.ReadVariableRequest, answers.read),
        "TakeSnapshot": unary("TakeSnapshot", messages.TakeSnapshotRequest, answers.snapshot),
        "MakeExport": unary("MakeExport", messages.MakeExportRequest, answers.export),
    }
    return grpc.method_handlers_generic_handler(messages.SERVICE, handlers)


@asynccontextmanager
async def _answering(
    path: str, context: Context, metrics: Metrics, token: bytes | None
) -> AsyncIterator[None]:
    """Ask for the token; bound the time; count the answer; end the call with what goes wrong."""
    code = grpc.StatusCode.CANCELLED  # by the client, or its deadline
    try:
        if not is_token(token, _shown(context)):
            code = grpc.StatusCode.UNAUTHENTICATED
            await _abort(context, code, refusal())
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
        code = grpc.StatusCode.OK
    except CkpttoolError as error:
        known = (code for kind, code in _CODES if isinstance(error, kind))
        code = next(known, grpc.StatusCode.INTERNAL)
        await _abort(context, code, error)
    except TimeoutError:
        code = grpc.StatusCode.DEADLINE_EXCEEDED
        await context.abort(code, f"it took longer than {ANSWER_SECONDS:g} seconds")
    except grpc.aio.AbortError:
        raise
    except grpc.aio.BaseError:  # nobody is there any more
        raise asyncio.CancelledError from None
    except Exception as error:  # noqa: BLE001 - a call may not take others with it
        _log.exception("a call failed")
        code = grpc.StatusCode.INTERNAL
        bug = InternalError(f"a bug in ckpttool: {type(error).__name__}", hint="see gateway.log")
        await _abort(context, code, bug)
    finally:
        metrics.answered(path, code.name)


def _shown(context: Context) -> list[bytes]:
    """What the request has as ``authorization``."""
    metadata = context.invocation_metadata() or ()
    return [value.encode("latin-1", "replace") for key, value in metadata if key == "authorization"]


async def _abort(context: Context, code: grpc.StatusCode, error: CkpttoolError) -> NoReturn:
    """End a call with an error: in words, and as the JSON that the REST interface answers with."""
    said = failure(error)["error"]
    assert isinstance(said, dict)
    short = {
        key: value[:_ERROR_CHARACTERS] if isinstance(value, str) else value
        for key, value in said.items()
    }
    text = messages.utf8(f"{short['message']}: {short['why']}" if short["why"] else error.what)
    await context.abort(
        code, text[: 2 * _ERROR_CHARACTERS], (("ckpttool-error", json.dumps(short)),)
    )
    raise AssertionError("abort ends the call")


def _request(kind: MessageType, data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise _wrong("the request is no message", f"{len(data)} bytes that are none") from None


def _bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _snapshot(held: Held) -> Message:
    message = messages.filled(messages.Snapshot, held.record)
    message.tag = held.tag
    return message


def _listing(held: Held, source: Source) -> list[bytes]:
    """The variables of a snapshot, as the pieces of an answer."""
    pieces = []
    piece = messages.ListPiece(snapshot=_snapshot(held), style=source.style)
    size = piece.ByteSize()
    for variable in source.variables():
        message = messages.variable_message(variable)
        nbytes = message.ByteSize() + _FIELD_BYTES
        if size + nbytes > PIECE_BYTES and piece.variables:
            pieces.append(_bytes(piece))
            piece, size = messages.ListPiece(), 0
        size += nbytes
        piece.variables.append(message)
    return [*pieces, _bytes(piece)]


def _cut(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that a message may have."""
    for piece in pieces:
        for start in range(0, len(piece), PIECE_BYTES):
            yield piece[start : start + PIECE_BYTES]


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(what, why=why, hint="see gateway.proto", id="gateway-request")
