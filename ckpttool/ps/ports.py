"""Ports: free ones, and whether a given one can be had.

TensorFlow's servers listen on all addresses of the machine whatever the cluster says
(tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc binds ``0.0.0.0`` or ``[::]``),
so a port is free only where it is on all of them.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from ckpttool.errors import ClusterError
from ckpttool.ps.cluster import Address

__all__ = ["free_ports", "is_ours", "port_taken", "require_free"]


def free_ports(count: int) -> list[int]:
    """So many ports that nobody has; each is held until the last is found."""
    with ExitStack() as held:
        sockets = [held.enter_context(_everywhere()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def require_free(port: int, who: str) -> None:
    """Find out before a server is started that its port is taken.

    Raises:
        ClusterError: id ``port-taken``.
    """
    with _everywhere() as one:
        # As gRPC does: what an ended server left behind is no hindrance.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError as error:
            raise port_taken(port, who, error.strerror or str(error)) from None


def port_taken(port: int, who: str, why: str) -> ClusterError:
    """The error of a server that cannot have its port."""
    return ClusterError(
        f"{who} cannot listen on port {port}",
        why=why,
        hint=f"see who has it: ss -ltnp 'sport = :{port}'",
        id="port-taken",
    )


def is_ours(address: Address) -> bool:
    """Whether a host's name or address is one of this machine's.

    Raises:
        ClusterError: id ``unknown-host``: nobody knows the name.
    """
    try:
        found = socket.getaddrinfo(address.host, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ClusterError(
            f"nobody knows the host {address.host}",
            why=error.strerror or str(error),
            hint="check the cluster spec, and the name server",
            id="unknown-host",
        ) from None
    for family, kind, protocol, _, where in found:
        with socket.socket(family, kind, protocol) as one:
            try:
                one.bind(where)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
            else:
                return True
    return False


def _everywhere() -> socket.socket:
    """A socket that, bound, listens on all addresses of both families where there are two."""
    if socket.has_dualstack_ipv6():
        made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return made
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
