"""What a supervisor has to start, as data: of ``serve-ps up``, ``task`` and ``attach``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ckpttool.ps.cluster import ClusterSpec, TaskName
from ckpttool.ps.setup import GatewaySetup

__all__ = ["ClusterPlan", "HostPlan"]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The process that sees the live parameters.

    Attributes:
        module: of ``ps/runtime``; its ``run`` gets ``setup`` (encoded) and ``attempt``.
        setup: what it is told (a dataclass), once the addresses of the cluster are known.
        train: the training function, for those who look; None: there is none.
    """

    module: str
    setup: Callable[[ClusterSpec], object]
    train: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Which processes, and when to stop.

    Attributes:
        ps, workers: how many, all of them here, on ports that are to be found; with
            ``spec``, they are its own.
        spec: the addresses where they are given; None: to be found.
        local: with ``spec``, the tasks that are started here.
        host, gateway: None: none.
        exit_when_done: stop when the training function has returned.
        exit_after: stop after so many seconds.
    """

    ps: int = 0
    workers: int = 0
    spec: ClusterSpec | None = None
    local: tuple[TaskName, ...] = ()
    host: HostPlan | None = None
    gateway: GatewaySetup | None = None
    exit_when_done: bool = False
    exit_after: float | None = None

    def on_ports(self, ports: list[int]) -> ClusterSpec:
        """The cluster on these ports of this machine, ``ps + workers`` of them."""
        addresses = tuple(f"127.0.0.1:{port}" for port in ports)
        jobs = {"ps": addresses[: self.ps], "worker": addresses[self.ps :]}
        return ClusterSpec({job: given for job, given in jobs.items() if given})

    @property
    def servers(self) -> tuple[TaskName, ...]:
        """The tasks that are TensorFlow's servers and start here."""
        if self.spec is not None:
            return self.local
        return (
            *(TaskName("ps", index) for index in range(self.ps)),
            *(TaskName("worker", index) for index in range(self.workers)),
        )
