"""The standard health service of gRPC: whether the training answers.

It asks for no token, for what probes it has none (``grpc_health_probe``, Kubernetes).
"""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health_pb2

from ckpttool.errors import CkpttoolError
from ckpttool.ps.gateway.messages import SERVICE, Message
from ckpttool.ps.gateway.rpc import Context
from ckpttool.ps.gateway.service import Service

__all__ = ["health"]

_NAME = "grpc.health.v1.Health"
#: What may be asked for; the empty name is the gateway as a whole.
_KNOWN = frozenset({"", SERVICE})
#: Those who watch are told of a change after so many seconds,
_LOOK_SECONDS = 1.0
#: and there are at most so many of them, since none has shown a token.
_WATCHERS = 64

_Status = health_pb2.HealthCheckResponse


class _Health:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._watchers = 0

    async def check(self, request: Message, context: Context) -> Message:
        if request.service not in _KNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return _Status(status=await self._now())

    async def watch(self, request: Message, context: Context) -> None:
        if self._watchers >= _WATCHERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_WATCHERS} watch already")
        self._watchers += 1
        try:
            last = None
            while True:
                known = request.service in _KNOWN
                now = await self._now() if known else _Status.SERVICE_UNKNOWN
                if now != last:
                    await context.write(_Status(status=now))
                    last = now
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._watchers -= 1

    async def _now(self) -> int:
        try:
            await self._service.status()
        except CkpttoolError:
            return int(_Status.NOT_SERVING)
        return int(_Status.SERVING)


def health(service: Service) -> grpc.GenericRpcHandler:
    """The service, for a server of ``grpc.aio``."""
    answers = _Health(service)
    coding = {
        "request_deserializer": health_pb2.HealthCheckRequest.FromString,
        "response_serializer": _Status.SerializeToString,
    }
    handlers = {
        "Check": grpc.unary_unary_rpc_method_handler(answers.check, **coding),
        "Watch": grpc.unary_stream_rpc_method_handler(answers.watch, **coding),
    }
    return grpc.method_handlers_generic_handler(_NAME, handlers)
