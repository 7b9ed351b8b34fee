"""The frames of ``live.sock``: a length and a JSON object, in both directions.

Knows neither requests nor who answers; see docs/architecture.md for the table of requests.
An error of one side is raised on the other as the same class.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ckpttool import errors
from ckpttool.errors import CkpttoolError, CorruptError, InternalError

__all__ = [
    "FRAME_BYTES",
    "SOCKET_NAME",
    "error_of",
    "failure",
    "receive",
    "send",
    "socket_address",
    "success",
]

SOCKET_NAME = "live.sock"
#: A listing of a hundred thousand variables; nothing here is a value.
FRAME_BYTES = 16 * 2**20

_LENGTH = struct.Struct(">I")
#: What a socket's address may have (108 on Linux, 104 on macOS, with a NUL).
_ADDRESS_BYTES = 100


def send(connection: socket.socket, message: Mapping[str, object]) -> None:
    """Send one message.

    Raises:
        InternalError: it is longer than a frame may be.
        OSError: the connection failed.
    """
    data = json.dumps(message).encode()
    if len(data) > FRAME_BYTES:
        raise InternalError(
            "a message of live.sock is too long",
            why=f"it has {len(data)} bytes, over {FRAME_BYTES}",
        )
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next message, or None where the other side has closed between two messages.

    Raises:
        CorruptError: id ``live-protocol``: not what this protocol looks like.
        OSError: the connection failed, or its time is over.
    """
    head = _exactly(connection, _LENGTH.size, may_end=True)
    if not head:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > FRAME_BYTES:
        raise _malformed(f"a message claims {length} bytes, over {FRAME_BYTES}")
    try:
        message = json.loads(_exactly(connection, length))
    except (ValueError, RecursionError) as error:
        raise _malformed(str(error)[:200]) from None
    if not isinstance(message, dict):
        raise _malformed("a message is no JSON object")
    return message


def success(value: object) -> dict[str, object]:
    """The answer that says it was done."""
    return {"ok": True, "value": value}


def failure(error: CkpttoolError) -> dict[str, object]:
    """The answer that says why it was not."""
    return {"ok": False, "error": {"kind": type(error).__name__, **error.as_dict()}}


def error_of(record: Mapping[str, Any]) -> CkpttoolError:
    """The error again, of the same class."""
    kind = getattr(errors, str(record.get("kind")), InternalError)
    if not (isinstance(kind, type) and issubclass(kind, CkpttoolError)):
        kind = InternalError
    words = {name: str(record.get(name, "")) for name in ("why", "hint", "id")}
    return kind(str(record.get("message", "")), **words)


@contextmanager
def socket_address(directory: str) -> Iterator[str]:
    """The address to bind or connect to; a path may be longer than a socket's may.

    Then it leads through an open descriptor of the directory (Linux).
    """
    path = os.path.join(directory, SOCKET_NAME)
    if len(os.fsencode(path)) <= _ADDRESS_BYTES:
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def _exactly(connection: socket.socket, count: int, *, may_end: bool = False) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 2**20))
        if not piece:
            if may_end and not data:
                return b""
            raise _malformed(f"the connection ended after {len(data)} of {count} bytes")
        data += piece
    return bytes(data)


def _malformed(why: str) -> CorruptError:
    return CorruptError(
        "the answer on live.sock makes no sense",
        why=why,
        hint="stop what runs there: ckpttool serve-ps down DIR",
        id="live-protocol",
    )
