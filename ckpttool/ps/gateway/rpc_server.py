"""The gRPC server of the gateway: its port, its certificates, and what bounds its clients.

It runs in the loop of the HTTP server, since both have one service, which is of one loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from ckpttool.errors import ClusterError
from ckpttool.ps.cluster import Address
from ckpttool.ps.gateway.guard import CONNECTIONS, HEAD_BYTES, HEAD_SECONDS
from ckpttool.ps.gateway.service import PIECE_BYTES
from ckpttool.ps.setup import GatewaySetup

__all__ = ["RpcServer"]

#: Seconds that calls under way have when the gateway ends.
_GRACE = 0.5

_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that another gateway has is an error
    ("grpc.max_receive_message_length", HEAD_BYTES),
    ("grpc.max_send_message_length", 2 * PIECE_BYTES),
    ("grpc.max_concurrent_streams", 256),  # of a connection; what comes more waits
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    ("grpc.server_handshake_timeout_ms", int(1000 * HEAD_SECONDS)),
    # Who has vanished without a word holds a snapshot open.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


class RpcServer:
    """Listens from ``start`` to ``stop``.

    Args:
        address: where; port 0: any.
        setup: whose certificates it shows and asks for; they have been read once already.
        handlers: the services.

    Raises:
        ClusterError: id ``gateway-address``.
    """

    def __init__(
        self, address: Address, setup: GatewaySetup, handlers: Sequence[grpc.GenericRpcHandler]
    ) -> None:
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=CONNECTIONS)
        self._server.add_generic_rpc_handlers(tuple(handlers))
        host = f"[{address.host}]" if ":" in address.host else address.host
        wanted = f"{host}:{address.port}"
        credentials = _credentials(setup)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(wanted)
            else:
                port = self._server.add_secure_port(wanted, credentials)
        except RuntimeError as error:
            raise ClusterError(
                f"the gateway cannot listen on {wanted}",
                why=str(error)[:300],
                hint="give --grpc another address; port 0 is any that is free",
                id="gateway-address",
            ) from None
        #: Where it listens, as clients take it: ``host:port``.
        self.address = f"{host}:{port}"

    async def start(self) -> None:
        """Begin to answer."""
        await self._server.start()

    async def stop(self) -> None:
        """Close the port at once; calls under way have a moment."""
        await self._server.stop(_GRACE)


def _credentials(setup: GatewaySetup) -> grpc.ServerCredentials | None:
    if setup.tls_certificate is None or setup.tls_key is None:
        return None
    pair = (_content(setup.tls_key), _content(setup.tls_certificate))
    if setup.client_ca is None:
        return grpc.ssl_server_credentials([pair])
    return grpc.ssl_server_credentials([pair], _content(setup.client_ca), require_client_auth=True)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
