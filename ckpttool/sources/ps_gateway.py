"""Connections to the gateway of a cluster, by the standard library: token, TLS, errors.

Redirects are not followed, so the token goes nowhere else. Knows no parameters.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from ipaddress import ip_address
from urllib.parse import urlsplit

from ckpttool.errors import (
    ChangedError,
    CorruptError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    UnreachableError,
    UnsupportedError,
    UsageError,
)
from ckpttool.storage.system import raise_os_error

__all__ = ["Gateway", "malformed"]

#: Seconds that the gateway may be silent: a snapshot of many gigabytes takes its time.
_SECONDS = 3600.0
_CONNECT_SECONDS = 10.0
_ERROR_BYTES = 2**16
_TOKEN_BYTES = 4096


class Gateway:
    """Connections to one gateway; one that is free is used again.

    Args:
        address: ``ps://host:port``, or ``pss://`` for TLS.

    Raises:
        UsageError: id ``gateway-url``.
        RefusedError: id ``token-in-clear``.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._host, self._port, self._tls = _parts(address)
        self._headers = _credentials(address, self._host, tls=self._tls is not None)
        self._free: list[HTTPConnection] = []
        self._closed = False

    @contextmanager
    def get(self, path: str, headers: dict[str, str] | None = None) -> Iterator[HTTPResponse]:
        """The answer to a request; the connection is used again where all of it was read.

        Raises:
            UnreachableError, PermissionDeniedError, NotFoundError, ChangedError, CorruptError.
        """
        try:
            connection, answer = self._answered(path, headers or {})
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        try:
            self._require_success(answer)
            yield answer
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        finally:
            if answer.isclosed() and not self._closed:  # all of it was read
                self._free.append(connection)
            else:
                connection.close()
                answer.close()

    def close(self) -> None:
        """Close what is open."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def _answered(self, path: str, headers: dict[str, str]) -> tuple[HTTPConnection, HTTPResponse]:
        while self._free:
            connection = self._free.pop()
            try:
                return connection, self._ask(connection, path, headers)
            except (OSError, HTTPException):
                pass  # the gateway has closed it meanwhile
        connection = self._connection()
        return connection, self._ask(connection, path, headers, new=True)

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port, timeout=_CONNECT_SECONDS)
        return HTTPSConnection(self._host, self._port, timeout=_CONNECT_SECONDS, context=self._tls)

    def _ask(
        self, connection: HTTPConnection, path: str, headers: dict[str, str], *, new: bool = False
    ) -> HTTPResponse:
        try:
            if new:
                connection.connect()
                connection.sock.settimeout(_SECONDS)
            connection.request("GET", path, headers={**self._headers, **headers})
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _require_success(self, answer: HTTPResponse) -> None:
        if answer.status == 200:
            return
        try:
            error = json.loads(answer.read(_ERROR_BYTES))["error"]
            what, why, hint = (str(error[name])[:500] for name in ("message", "why", "hint"))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise malformed(self._address, f"it answers {answer.status} without saying why") from (
                None
            )
        if answer.status in {401, 403}:
            raise PermissionDeniedError(
                f"the gateway {self._address} does not let this be read",
                why="it asks for its token, and CKPTTOOL_TOKEN has none or another one",
                hint="export CKPTTOOL_TOKEN_FILE=DIR/token, with the run directory of the cluster",
                id="gateway-token",
            )
        if answer.status == 404:
            raise NotFoundError(what, why=why, hint=hint)
        if answer.status == 412:
            raise ChangedError(what, why=why, hint=hint, id="snapshot-gone")
        if answer.status == 422:
            raise UnsupportedError(what, why=why, hint=hint, id="dtype-unsupported")
        raise UnreachableError(
            f"the gateway {self._address} cannot answer",
            why=f"{what}: {why}",
            hint=hint,
            id="gateway-failed",
        )

    def _unreachable(self, error: Exception) -> UnreachableError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return UnreachableError(
            f"the gateway {self._address} cannot be reached",
            why=str(why)[:300],
            hint="see where it listens: ckpttool serve-ps status DIR",
            id="gateway-unreachable",
        )


def _parts(address: str) -> tuple[str, int, ssl.SSLContext | None]:
    """Host, port, and the context of TLS of a ``pss://``."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
        spare = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    except ValueError:
        host = port = spare = None
    if not host or not port or spare or not host.isascii():
        raise UsageError(
            f"{address} is no address of a gateway",
            why="it has to be ps://HOST:PORT, or pss://HOST:PORT with TLS, and nothing after it",
            hint="see where it listens: ckpttool serve-ps status DIR",
            id="gateway-url",
        )
    return host, port, _tls() if parts.scheme.lower() == "pss" else None


def _tls() -> ssl.SSLContext:
    """Trusts CKPTTOOL_CA instead of the system, and shows CKPTTOOL_CLIENT_CERT."""
    authority = os.environ.get("CKPTTOOL_CA") or None
    own = os.environ.get("CKPTTOOL_CLIENT_CERT") or None
    try:
        context = ssl.create_default_context(cafile=authority)
        if own is not None:
            context.load_cert_chain(own)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            "the certificates for pss:// cannot be used",
            why=f"CKPTTOOL_CA={authority or ''} CKPTTOOL_CLIENT_CERT={own or ''}: {error}"[:400],
            hint="both name PEM files; that of the client holds its key too",
            id="gateway-url",
        ) from None
    return context


def _credentials(address: str, host: str, *, tls: bool) -> dict[str, str]:
    token = os.environ.get("CKPTTOOL_TOKEN", "").strip()
    path = os.environ.get("CKPTTOOL_TOKEN_FILE", "")
    if not token and path:
        try:
            with open(path, "rb") as file:
                token = file.read(_TOKEN_BYTES).decode("latin-1").strip()
        except OSError as error:
            raise_os_error(error, f"cannot read the token in {path}")
    if not token:
        return {}
    if not token.isascii() or not token.isprintable():
        raise UsageError(
            "the token cannot be sent",
            why="a token is one line of ASCII",
            hint="take it from the file token of the run directory",
            id="gateway-url",
        )
    if not tls and not _is_loopback(host):
        raise RefusedError(
            f"the token is not sent to {address}",
            why="without TLS whoever is on the way could read it",
            hint="use pss://, or a tunnel (ssh -L) and ps://127.0.0.1:PORT",
            id="token-in-clear",
        )
    return {"Authorization": f"Bearer {token}"}


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def malformed(address: str, why: str) -> CorruptError:
    """The error of an answer that no gateway gives."""
    return CorruptError(
        f"the answer of {address} makes no sense",
        why=why,
        hint="is it a gateway of ckpttool? ckpttool serve-ps status DIR says where that is",
        id="gateway-answer",
    )
