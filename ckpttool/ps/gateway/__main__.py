"""``python -m ckpttool.ps.gateway JOB``: listen, say where on stdout, serve until SIGTERM.

HTTP, and gRPC where it is asked for, in one loop: they have one service.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import ssl
import sys
from typing import TYPE_CHECKING

import uvicorn

from ckpttool.conversion.wire import decode
from ckpttool.errors import (
    CkpttoolError,
    ClusterError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from ckpttool.ps.cluster import Address, parse_address
from ckpttool.ps.gateway.guard import CONNECTIONS, HEAD_BYTES, Guard, PatientProtocol
from ckpttool.ps.gateway.metrics import Metrics
from ckpttool.ps.gateway.rest import application
from ckpttool.ps.gateway.service import Service
from ckpttool.ps.live_protocol import failure
from ckpttool.ps.setup import GatewaySetup
from ckpttool.storage.system import raise_os_error

if TYPE_CHECKING:
    from ckpttool.ps.gateway.rpc_server import RpcServer

__all__ = ["main"]

_IDLE_SECONDS = 30
_TOKEN_BYTES = 4096
#: A thread that computes (a long list becomes JSON) gives way to the loop after so long. The
#: loop asks for it several times a request: with Python's 5 ms a read takes five times as long.
_SWITCH_SECONDS = 0.0005


def main() -> int:
    """Run the gateway; 1 where it cannot serve at all, and stdout says why."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, stream=sys.stderr)
    # uvicorn raises the signal that ended it once more; what is open is closed on the way.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        setup = decode(GatewaySetup, sys.argv[1])
        asyncio.run(_serve(setup))
    except CkpttoolError as error:
        _say(failure(error))
        return 1
    return 0


async def _serve(setup: GatewaySetup) -> None:
    address = _allowed(setup.bind, setup)
    rpc_address = None if setup.grpc is None else _allowed(setup.grpc, setup)
    token = None if setup.token_file is None else _token(setup.token_file)
    tls = {
        "ssl_certfile": setup.tls_certificate,
        "ssl_keyfile": setup.tls_key,
        "ssl_ca_certs": setup.client_ca,
        "ssl_cert_reqs": ssl.CERT_REQUIRED if setup.client_ca else ssl.CERT_NONE,
    }
    listening = _listen(address)
    service = Service(setup.run_dir, setup.max_age)
    metrics = Metrics()
    try:
        config = uvicorn.Config(
            Guard(application(service, metrics), token),
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=HEAD_BYTES,
            **(tls if setup.tls_certificate else {}),  # type: ignore[arg-type]
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                "the gateway cannot speak TLS",
                why=f"{setup.tls_certificate}, {setup.tls_key}: {error}"[:300],
                hint="give --tls-cert and --tls-key a certificate and its key, as PEM",
                id="gateway-certificate",
            ) from None
        rpc = None
        if rpc_address is not None:
            # Those who do not ask for it do not wait for grpc to be imported.
            from ckpttool.ps.gateway.health import health
            from ckpttool.ps.gateway.rpc import calls
            from ckpttool.ps.gateway.rpc_server import RpcServer

            handlers = [calls(service, metrics, token), health(service)]
            rpc = RpcServer(rpc_address, setup, handlers)
            await rpc.start()
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if setup.tls_certificate else "http"
        said: dict[str, object] = {"rest": f"{scheme}://{shown}:{port}"}
        _say(said if rpc is None else said | {"grpc": rpc.address})
        await _Server(config, rpc).serve(sockets=[listening])
    finally:
        service.close()


class _Server(uvicorn.Server):
    """The HTTP server, which takes the other one with it when it ends."""

    def __init__(self, config: uvicorn.Config, rpc: RpcServer | None) -> None:
        super().__init__(config)
        self._rpc = rpc

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        both = [super().shutdown(sockets)]
        if self._rpc is not None:
            both.append(self._rpc.stop())
        await asyncio.gather(*both)


def _allowed(bind: str, setup: GatewaySetup) -> Address:
    """An address to listen on; refuses to be reached from others without a token and TLS.

    Raises:
        UsageError: id ``cluster-spec``: it is none.
        RefusedError: id ``gateway-open``.
        UsageError: id ``gateway-certificate``.
    """
    address = parse_address(bind, any_port=True)
    if bool(setup.tls_certificate) != bool(setup.tls_key) or (
        setup.client_ca and not setup.tls_certificate
    ):
        raise UsageError(
            "the gateway cannot speak TLS",
            why="it needs a certificate and its key, both",
            hint="give --tls-cert and --tls-key",
            id="gateway-certificate",
        )
    if address.is_loopback or (setup.tls_certificate and (setup.token_file or setup.client_ca)):
        return address
    missing = "--token-file" if setup.tls_certificate else "--tls-cert and --tls-key"
    raise RefusedError(
        f"the gateway may not listen on {bind}",
        why="other machines reach it there, and could read the parameters or the token on the way",
        hint=f"add {missing}, or listen on 127.0.0.1",
        id="gateway-open",
    )


def _listen(address: Address) -> socket.socket:
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        listening = socket.create_server(where[:2], family=family, backlog=512)
        # Or an answer's body waits for the head to be acknowledged, 40 ms: asyncio sets this
        # only on sockets that it made.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise ClusterError(
            f"the gateway cannot listen on {address.host}:{address.port}",
            why=error.strerror or str(error),
            hint="give --gateway another address; port 0 is any that is free",
            id="gateway-address",
        ) from None


def _token(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            token = file.read(_TOKEN_BYTES).strip()
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no token in {path}", why="no such file", hint="check --token-file"
        ) from None
    except OSError as error:
        raise_os_error(error, f"cannot read {path}")
    if not token or not token.isascii() or b"\n" in token:
        raise UsageError(
            f"there is no token in {path}",
            why="a token is one line of ASCII that is not empty",
            hint="openssl rand -base64 32 > FILE",
        )
    return token


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
