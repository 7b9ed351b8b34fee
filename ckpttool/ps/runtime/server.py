"""A child that is one task of the cluster: TensorFlow's own gRPC server, and nothing else.

Such a server cannot be stopped, and never ends by itself; its process is ended instead.
"""

from __future__ import annotations

import threading
from typing import Any

from ckpttool.ps.channel import Channel
from ckpttool.ps.cluster import ClusterSpec, TaskName
from ckpttool.ps.live_protocol import failure
from ckpttool.ps.ports import port_taken

__all__ = ["run"]


def run(job: dict[str, Any], channel: Channel) -> None:
    """Listen for ever. Tells ``ready``, or ``failed`` with the error ``port-taken``.

    Args:
        job: ``jobs`` (addresses by job), ``job`` and ``index``.
        channel: to the supervisor.
    """
    import tensorflow as tf

    spec = ClusterSpec({name: tuple(addresses) for name, addresses in job["jobs"].items()})
    task = TaskName(job["job"], job["index"])
    try:
        server = tf.distribute.Server(
            tf.train.ClusterSpec(spec.as_dict()), job_name=task.job, task_index=task.index
        )
    except tf.errors.UnknownError as error:
        if "Could not start gRPC server" not in str(error):
            raise
        taken = port_taken(spec.address(task).port, str(task), "another process has it")
        channel.send({"event": "failed", **failure(taken)})
        return
    channel.send({"event": "ready"})
    threading.Event().wait()
    del server  # until then somebody has to hold it
