"""What ``serve-ps`` was asked for → the plan of a cluster. What makes no sense is told first."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ckpttool.errors import NotFoundError, RefusedError, UsageError
from ckpttool.ps.cluster import ClusterSpec, TaskName, parse_tf_config
from ckpttool.ps.plan import ClusterPlan, HostPlan
from ckpttool.ps.setup import AttachSetup, GatewaySetup, TrainSetup

__all__ = ["Task", "Training", "plan_attach", "plan_task", "plan_up", "read_task"]

_COORDINATOR = "ckpttool.ps.runtime.coordinator"
_ATTACH = "ckpttool.ps.runtime.attach"
_SPEC_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Training:
    """The function that trains and what it is told; ``setup.jobs`` is filled in later."""

    setup: TrainSetup
    exit_when_done: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a cluster whose others other hosts start."""

    spec: ClusterSpec
    name: TaskName


def plan_up(
    *,
    ps: int,
    workers: int,
    training: Training | None,
    gateway: GatewaySetup | None,
    exit_after: float | None = None,
) -> ClusterPlan:
    """A cluster on this machine, on ports that are found when it starts.

    Raises:
        UsageError: id ``train-function``: there cannot be such a function.
    """
    return ClusterPlan(
        ps=ps,
        workers=workers,
        host=_host(training),
        gateway=gateway,
        exit_when_done=training is not None and training.exit_when_done,
        exit_after=exit_after,
    )


def plan_attach(
    setup: AttachSetup, *, gateway: GatewaySetup | None, exit_after: float | None = None
) -> ClusterPlan:
    """A process that attaches to a cluster whose tasks others started.

    Raises:
        UsageError: id ``cluster-spec``: the server's address is none.
        NotFoundError: there is nothing at ``setup.names``.
    """
    spec = ClusterSpec({"ps": (setup.target,)})
    if not (os.path.exists(setup.names) or os.path.exists(f"{setup.names}.index")):
        raise NotFoundError(
            f"there is nothing at {setup.names}",
            why="--names says which variables the cluster has",
            hint="give a checkpoint of this training, its .meta, or a .json of names",
        )
    return ClusterPlan(
        spec=spec, host=HostPlan(_ATTACH, lambda _: setup), gateway=gateway, exit_after=exit_after
    )


def read_task(
    cluster: str | None, job: str | None, index: int | None, environment: Mapping[str, str]
) -> Task:
    """Which task of which cluster: from a file, or from TF_CONFIG.

    Raises:
        UsageError: id ``cluster-spec``: it is not valid; or too little is said.
        NotFoundError: there is no such file.
    """
    if cluster is None:
        text = environment.get("TF_CONFIG", "")
        if not text:
            raise UsageError(
                "no cluster is given",
                why="there is no --cluster FILE, and TF_CONFIG is not set",
                hint="ckpttool serve-ps task --cluster cluster.json --job ps --index 0",
                id="cluster-spec",
            )
        spec, name = parse_tf_config(text)
        # A launcher may set TF_CONFIG for all and say apart which task this one is.
        name = TaskName(job or name.job, name.index if index is None else index)
    else:
        if job is None or index is None:
            raise UsageError(
                "it is not said which task of the cluster this is",
                why="a file says who there is, and each host has another task",
                hint="add --job ps --index 0",
                id="cluster-spec",
            )
        spec, name = ClusterSpec.parse(_read_json(cluster)), TaskName(job, index)
    spec.address(name)
    return Task(spec, name)


def plan_task(
    task: Task,
    *,
    training: Training | None,
    gateway: GatewaySetup | None,
    insecure_cluster: bool,
    exit_after: float | None = None,
) -> ClusterPlan:
    """One task here. The chief runs the training function and has the gateway.

    Raises:
        UsageError: a chief without a function, or another task with one.
        RefusedError: id ``cluster-open``: the cluster spans hosts and nobody said that
            this is meant.
    """
    is_chief = task.name.job == "chief"
    if is_chief and training is None:
        raise UsageError(
            "the chief has nothing to do",
            why="it runs the training function, and there is no --train",
            hint="add --train train.py:function, or run your own coordinator without ckpttool",
            id="train-function",
        )
    if not is_chief and training is not None:
        raise UsageError(
            f"--train does not go with {task.name}",
            why="the chief runs the training function; the other tasks only serve",
            hint="give it to the task with --job chief",
            id="train-function",
        )
    if task.spec.spans_hosts and not insecure_cluster:
        raise RefusedError(
            "this cluster can be reached from other machines",
            why="TensorFlow's servers ask for no password and encrypt nothing: whoever reaches "
            "their ports can read and write all files and run what it wants",
            hint="on a network of your own, add --insecure-cluster",
            id="cluster-open",
        )
    return ClusterPlan(
        spec=task.spec,
        local=() if is_chief else (task.name,),
        host=_host(training),
        gateway=gateway if is_chief else None,
        exit_when_done=training is not None and training.exit_when_done,
        exit_after=exit_after,
    )


def _host(training: Training | None) -> HostPlan | None:
    if training is None:
        return None
    setup = training.setup
    _require_function(setup.train, setup.cwd)

    def with_cluster(spec: ClusterSpec) -> TrainSetup:
        return replace(setup, jobs=tuple((job, spec.jobs[job]) for job in spec.as_dict()))

    return HostPlan(_COORDINATOR, with_cluster, setup.train)


def _require_function(train: str, cwd: str) -> None:
    """What can be known of ``--train`` before TensorFlow is there to run it."""
    where, colon, name = train.rpartition(":")
    why = ""
    if not colon or not where or not name:
        why = "it has to be MODULE:FUNCTION or FILE.py:FUNCTION"
    elif where.endswith(".py") and not os.path.isfile(os.path.join(cwd, where)):
        why = f"there is no file {where}"
    if why:
        raise UsageError(
            f"--train {train} cannot be used",
            why=why,
            hint="for example --train train.py:train",
            id="train-function",
        )


def _read_json(path: str) -> object:
    try:
        with open(path, "rb") as file:
            return json.loads(file.read(_SPEC_BYTES))
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no file {path}",
            why="--cluster names it",
            hint="check the path",
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is no JSON",
            why=str(error)[:200],
            hint='write it like {"ps": ["host:port"], "worker": ["host:port", "host:port"]}',
            id="cluster-spec",
        ) from None
