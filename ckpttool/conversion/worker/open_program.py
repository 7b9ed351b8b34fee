"""``open_program``: a job's origin → the program that is converted, restored."""

from __future__ import annotations

from ckpttool.conversion.job import Job
from ckpttool.conversion.worker.program import Program

__all__ = ["open_program"]


def open_program(job: Job) -> Program:
    """Open what a job is about; whoever calls this closes it. Raises as the makers do."""
    kind = job.origin.kind
    if kind == "graph":
        from ckpttool.conversion.worker.tf1 import open_graph

        return open_graph(job)
    if kind == "savedmodel":
        from ckpttool.conversion.worker.saved_model import open_saved_model

        return open_saved_model(job)
    if kind == "model":
        from ckpttool.conversion.worker.model import open_model

        return open_model(job)
    from ckpttool.conversion.worker.keras_file import open_keras_file

    return open_keras_file(job)
