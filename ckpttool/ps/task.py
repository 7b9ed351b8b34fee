"""What the supervisor knows of one child of the fork server: where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ckpttool.errors import CkpttoolError
from ckpttool.ps.cluster import TaskName
from ckpttool.ps.fork_server import Child
from ckpttool.ps.restarts import Restarts
from ckpttool.ps.run_dir import TaskState

__all__ = ["Task"]


@dataclass(slots=True)
class Task:
    """A server, or the host; mutable, the supervisor's own.

    Attributes:
        log: the path of its log.
        port: where it listens; None: nowhere, or not known yet.
        failure: what it said before it ended.
        was_ready: whether it ever was.
        orphan: its fork server has died, so only its channel tells that it ends.
        silent: its channel is closed.
    """

    name: TaskName
    log: str
    port: int | None = None
    state: Literal["waiting", "starting", "ready", "done", "restarting", "ended"] = "waiting"
    child: Child | None = None
    restarts: Restarts = field(default_factory=Restarts)
    failure: CkpttoolError | None = None
    was_ready: bool = False
    orphan: bool = False
    silent: bool = False

    def begins(self, child: Child) -> None:
        """It was asked for."""
        self.child = child
        self.state = "starting"
        self.failure = None
        self.orphan = self.silent = False

    def as_state(self) -> TaskState:
        """For ``run.json``."""
        pid = None if self.child is None else self.child.pid
        return TaskState(
            self.name.job, self.name.index, pid, self.port, self.state, self.restarts.total
        )
