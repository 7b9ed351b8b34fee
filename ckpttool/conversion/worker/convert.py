"""The task that converts: open the program, record the reference, write the target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

from ckpttool.conversion.job import Case, Job, Made
from ckpttool.conversion.targets import find_target, installed
from ckpttool.conversion.wire import decode, encode, plain
from ckpttool.conversion.worker.open_program import open_program
from ckpttool.conversion.worker.program import Written

__all__ = ["run"]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Do a ``Job``; the value is a ``Made``."""
    return plain(_convert(decode(Job, encode(job))))  # type: ignore[return-value]


def _convert(job: Job) -> Made:
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        seconds[what] = round(time.monotonic() - started, 3)

    target = find_target(job.request.target, job.request.destination, job.request.model)
    with timed("import"):
        writer = import_module(f"ckpttool.conversion.worker.{target.module}")
    with timed("restore"):
        program = open_program(job)
    cases: tuple[Case, ...] = ()
    unchecked = ""
    with closing(program):
        reference = tuple(one.signature for one in program.functions)
        written = Written(reference)
        if not job.request.check.only:
            with timed("convert"):
                written = writer.write(program, job.artefact, job.request.settings)
        if job.cases is not None:
            # Only now: a run may change the variables of the original.
            from ckpttool.conversion.worker.reference import record

            with timed("reference"):
                cases, unchecked = record(program, job.cases, job.request)
    return Made(
        written.signatures,
        (*program.warnings, *written.warnings),
        cases,
        reference,
        unchecked,
        seconds,
        dict(written.facts),
        {name: installed(name).version or "" for name in target.needs},
    )
