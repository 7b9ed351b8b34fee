"""The target SavedModel: the signatures of a program, and the variables that they use."""

from __future__ import annotations

from ckpttool.conversion.request import Settings
from ckpttool.conversion.worker.freezing import with_batch
from ckpttool.conversion.worker.program import Program, Written

__all__ = ["write"]


def write(program: Program, path: str, settings: Settings) -> Written:
    """Write a SavedModel directory.

    Args:
        program: what is converted.
        path: the directory, which does not exist yet.
        settings: ``batch``.
    """
    program.save(path, batch=settings.batch)
    return Written(
        tuple(with_batch(one.signature, settings.batch) for one in program.functions),
    )
