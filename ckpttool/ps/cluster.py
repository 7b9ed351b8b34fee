"""A cluster's spec: which job has which addresses, read, validated, and told to TensorFlow.

Pure; the form is that of TF_CONFIG (tensorflow/python/distribute/cluster_resolver/
tfconfig_cluster_resolver.py) and of ``tf.train.ClusterSpec``.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import UsageError

__all__ = ["JOBS", "Address", "ClusterSpec", "TaskName", "parse_address", "parse_tf_config"]

#: The jobs of a parameter-server cluster, in the order in which they are shown.
JOBS = ("chief", "ps", "worker")
#: Jobs that other kinds of training have, and what to do about them.
_OTHER_JOBS = {
    "master": "TensorFlow 2 calls it chief",
    "evaluator": "an evaluator is no part of the cluster: start it by itself",
}


@dataclass(frozen=True, slots=True, order=True)
class TaskName:
    """One task: the job, and its number in it. Text of it: ``ps-0``."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"{self.job}-{self.index}"


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether it is of this machine alone, by its spelling; no name is looked up."""
        if self.host in {"localhost", "ip6-localhost"}:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, *, any_port: bool = False) -> Address:
    """``host:port`` or ``[::1]:port``; with ``any_port``, 0 is a port too.

    Raises:
        UsageError: id ``cluster-spec``.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # an IPv6 address without brackets: where does the port begin?
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else -1
    if not colon or not host or not (0 if any_port else 1) <= number <= 65535:
        raise _bad(f"{text!r} is no address", "it has to be HOST:PORT, or [IPv6]:PORT")
    return Address(host, number)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Addresses by job, validated.

    Raises:
        UsageError: id ``cluster-spec``: an unknown job, an empty one, no parameter server,
            an address that is none, or one that two tasks have.
    """

    jobs: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        seen: dict[Address, TaskName] = {}
        for job, addresses in self.jobs.items():
            if job not in JOBS:
                raise _bad(
                    f"there is no job {job!r} in a parameter-server cluster",
                    _OTHER_JOBS.get(job, f"the jobs are {', '.join(JOBS)}"),
                )
            if not addresses:
                raise _bad(f"the job {job} has no tasks", "each job needs an address at least")
            for index, text in enumerate(addresses):
                task = TaskName(job, index)
                address = parse_address(text)
                if address in seen:
                    raise _bad(f"{seen[address]} and {task} have the same address", text)
                seen[address] = task
        if "ps" not in self.jobs:
            raise _bad("the cluster has no parameter server", f"its jobs: {', '.join(self.jobs)}")
        if len(self.jobs.get("chief", ())) > 1:
            raise _bad("the cluster has several chiefs", "one coordinates a cluster")

    @classmethod
    def parse(cls, data: object) -> ClusterSpec:
        """Out of JSON: ``{"ps": ["host:port", …], …}``, or that under ``cluster``.

        The tasks of a job are a list, or a map of their numbers (as TF_CONFIG allows).
        """
        if isinstance(data, dict) and isinstance(data.get("cluster"), dict):
            data = data["cluster"]
        if not isinstance(data, dict) or not data:
            raise _bad("the cluster spec names no jobs", "it has to be a JSON object of lists")
        return cls({str(job): _addresses(str(job), tasks) for job, tasks in data.items()})

    @property
    def tasks(self) -> list[TaskName]:
        """Every task, chief first, then parameter servers."""
        return [
            TaskName(job, index) for job in JOBS for index in range(len(self.jobs.get(job, ())))
        ]

    def address(self, task: TaskName) -> Address:
        """Where a task listens.

        Raises:
            UsageError: id ``cluster-spec``: there is no such task.
        """
        addresses = self.jobs.get(task.job)
        if addresses is None:
            raise _bad(f"the cluster has no job {task.job!r}", f"its jobs: {', '.join(self.jobs)}")
        if not 0 <= task.index < len(addresses):
            raise _bad(
                f"the cluster has no task {task}",
                f"{task.job} has {len(addresses)}, numbered from 0",
            )
        return parse_address(addresses[task.index])

    @property
    def spans_hosts(self) -> bool:
        """Whether any address is not of this machine alone."""
        return any(not self.address(task).is_loopback for task in self.tasks)

    def as_dict(self) -> dict[str, list[str]]:
        """As ``tf.train.ClusterSpec`` takes it."""
        return {job: list(self.jobs[job]) for job in JOBS if job in self.jobs}

    def tf_config(self, task: TaskName) -> str:
        """The value of TF_CONFIG for a task."""
        named = {"type": task.job, "index": task.index}
        return json.dumps({"cluster": self.as_dict(), "task": named})

    def with_chief(self, address: str) -> ClusterSpec:
        """The same cluster as a coordinator sees it, which finds itself in it.

        The servers are better off without: a session of TensorFlow 1 waits for every task
        that its server knows of.
        """
        return ClusterSpec({"chief": (address,), **self.jobs})


def parse_tf_config(text: str) -> tuple[ClusterSpec, TaskName]:
    """The cluster and the own task out of the environment variable TF_CONFIG.

    Raises:
        UsageError: id ``cluster-spec``.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad("TF_CONFIG is no JSON", str(error)[:200]) from None
    spec = ClusterSpec.parse(data)
    task = data.get("task") if isinstance(data.get("cluster"), dict) else None
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise _bad("TF_CONFIG does not say which task this is", "it has no task.type, task.index")
    index = task["index"]
    number = int(index) if str(index).isascii() and str(index).isdigit() else -1
    name = TaskName(str(task["type"]), number)
    spec.address(name)
    return spec, name


def _addresses(job: str, tasks: object) -> tuple[str, ...]:
    if isinstance(tasks, dict):
        numbers = [str(number) for number in range(len(tasks))]
        if set(map(str, tasks)) != set(numbers):
            raise _bad(
                f"the tasks of {job} are not numbered from 0 without a gap", ", ".join(tasks)
            )
        by_number = {str(number): address for number, address in tasks.items()}
        tasks = [by_number[number] for number in numbers]
    if not isinstance(tasks, list) or not all(isinstance(one, str) for one in tasks):
        raise _bad(f"the tasks of {job} are no list of addresses", "write HOST:PORT for each")
    return tuple(tasks)


def _bad(what: str, why: str) -> UsageError:
    return UsageError(
        what,
        why=why,
        hint='write it like {"ps": ["host:port"], "worker": ["host:port", "host:port"]}',
        id="cluster-spec",
    )
