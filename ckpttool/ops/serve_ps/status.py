"""What runs in a run directory, and ending it: ``serve-ps status`` and ``down``."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, replace
from typing import Any

from ckpttool.errors import CkpttoolError, RefusedError, StorageError
from ckpttool.ps.live_client import LiveClient
from ckpttool.ps.process import start_of
from ckpttool.ps.run_dir import RunDirectory, RunState, Standing

__all__ = ["DownResult", "StatusResult", "down", "status"]

#: Seconds that the training may take to answer; it is asked between two steps.
_ASK_SECONDS = 5.0
#: Seconds that a supervisor has to end its cluster (it takes one) before it is killed.
_END_SECONDS = 10.0
_LOOK = 0.02


@dataclass(frozen=True, slots=True)
class StatusResult:
    """What is there.

    Attributes:
        directory: the run directory, as an absolute path.
        state: what ``run.json`` says; ``failed`` where its supervisor died.
        standing: whether the supervisor lives.
        live: what the process with the parameters says (docs/architecture.md, ``status``);
            None: there is none that answers.
    """

    directory: str
    state: RunState
    standing: Standing
    live: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether the cluster is there, as far as can be known here."""
        return self.standing != "ended" and self.state.state not in {"stopped", "failed"}


@dataclass(frozen=True, slots=True)
class DownResult:
    """``was_running`` is false where there was nothing to end; ``killed``: it had to be."""

    directory: str
    was_running: bool
    pid: int | None
    killed: bool
    seconds: float


def status(directory: str) -> StatusResult:
    """Look at a run directory, and ask the process with the live parameters.

    Raises:
        NotFoundError: id ``no-cluster``. CorruptError: id ``run-state``.
    """
    run = RunDirectory(directory)
    state = run.read()
    stands = run.standing(state)
    warnings: list[str] = []
    if stands == "ended" and state.state not in {"stopped", "failed"}:
        warnings.append(
            f"the supervisor (process {state.pid}) died without ending its cluster; "
            "its processes ended with it"
        )
        state = replace(state, state="failed", tasks=(), gateway=None, gateway_grpc=None)
    if stands == "elsewhere":
        warnings.append(f"the cluster was started on {state.node}: it may have ended meanwhile")
    live = _ask(run.path, warnings) if stands == "running" else None
    return StatusResult(run.path, state, stands, live, tuple(warnings))


def down(directory: str) -> DownResult:
    """End the cluster of a run directory and wait until it has; none is no error.

    Raises:
        NotFoundError: id ``no-cluster``. CorruptError: id ``run-state``.
        RefusedError: id ``cluster-elsewhere``: it runs on another host.
        UnsafeError: id ``run-dir-shared``: others may have written what is to be ended.
    """
    run = RunDirectory(directory)
    state = run.read()
    stands = run.standing(state)
    if stands == "elsewhere" and state.state not in {"stopped", "failed"}:
        raise RefusedError(
            f"the cluster of {directory} runs on {state.node}",
            why="a process can be ended only where it runs",
            hint=f"on {state.node}: ckpttool serve-ps down {directory}",
            id="cluster-elsewhere",
        )
    if stands != "running":
        return DownResult(run.path, was_running=False, pid=None, killed=False, seconds=0.0)
    run.require_own()  # or it may name any process of ours
    started = time.monotonic()
    killed = False
    _signal(state.pid, signal.SIGTERM)
    while start_of(state.pid) == state.start:
        waited = time.monotonic() - started
        if waited > _END_SECONDS and not killed:
            killed = True
            _signal(state.pid, signal.SIGKILL)
        if waited > 2 * _END_SECONDS:
            raise StorageError(
                f"process {state.pid} does not end",
                why=f"{waited:.0f} seconds after it was killed it is still there",
                hint="the system holds it, for example in an access to a network disk",
                id="process-stays",
            )
        time.sleep(_LOOK)
    return DownResult(run.path, True, state.pid, killed, time.monotonic() - started)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has just ended


def _ask(directory: str, warnings: list[str]) -> dict[str, Any] | None:
    try:
        with LiveClient(directory, _ASK_SECONDS) as client:
            return client.ask("status")
    except CkpttoolError as error:
        if error.id != "live-unreachable":
            warnings.append(str(error))
        return None
