"""Keep a cluster in a run directory: ``serve-ps up``, ``task`` and ``attach``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

from ckpttool.errors import ChangedError, missing_package
from ckpttool.ops.serve_ps.request import Task
from ckpttool.ps.events import Event, StopSignal
from ckpttool.ps.plan import ClusterPlan
from ckpttool.ps.ports import is_ours
from ckpttool.ps.run_dir import RunDirectory, RunState
from ckpttool.ps.supervisor import Supervisor
from ckpttool.storage.local import open_directory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["OPEN_PORTS", "supervise", "warnings_of"]

#: What a person should know of every cluster.
OPEN_PORTS = (
    "the ports of TensorFlow's servers have neither password nor encryption, and TensorFlow opens "
    "them on all addresses of this machine: whoever reaches one can do what this user can"
)


def warnings_of(task: Task) -> list[str]:
    """What a person should know before a task of several machines is started.

    Raises:
        ClusterError: id ``unknown-host``: nobody knows its own host's name.
    """
    warnings = [OPEN_PORTS]
    address = task.spec.address(task.name)
    if task.name.job != "chief" and not is_ours(address):
        warnings.append(
            f"{address.host} is no address of this machine: right only if what is sent there is "
            "forwarded to it"
        )
    return warnings


def supervise(
    plan: ClusterPlan, directory: str, stop: StopSignal, tell: Callable[[Event], None]
) -> RunState:
    """Start what the plan says and keep it until it is done or to be stopped.

    Args:
        plan: a gateway in it gets the directory's token, unless it has another.
        directory: the run directory; it is made.
        stop: when to stop.
        tell: called with every event.

    Returns:
        What ``run.json`` says at the end; every process has ended.

    Raises:
        UnsupportedError: id ``package-missing``: TensorFlow is not installed.
        ChangedError: id ``cluster-running``: there runs one in this directory.
        UnsafeError: id ``run-dir-shared``.
        ClusterError, CkpttoolError: as ``Supervisor.run``.
    """
    if find_spec("tensorflow") is None:
        missing = missing_package(ModuleNotFoundError(name="tensorflow"))
        assert missing is not None
        raise missing
    run = RunDirectory(directory)
    run.prepare()
    opened = open_directory(run.path)
    try:
        lock = DirectoryLock(opened)
        try:
            lock.__enter__()
        except ChangedError as error:
            raise ChangedError(
                f"a cluster runs in {directory} already",
                why=error.why,
                hint=f"ckpttool serve-ps status {directory}; or give another --run-dir",
                id="cluster-running",
            ) from None
        try:
            if lock.taken_over:
                tell(Event("taken-over", f"{lock.note}: its cluster ended with it"))
            if plan.gateway is not None and plan.gateway.token_file is None:
                plan = replace(plan, gateway=replace(plan.gateway, token_file=run.make_token()))
            return Supervisor(plan, run, stop, tell).run()
        finally:
            lock.__exit__(None, None, None)
    finally:
        opened.close()
