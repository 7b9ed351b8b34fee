"""The children of a conversion: what converts, and what runs the result; and their log.

Knows the order of one conversion's processes; nothing of where its result goes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from ckpttool.conversion.check import CheckResult, check, not_run
from ckpttool.conversion.child import Bounds, RunTask, last_lines
from ckpttool.conversion.job import Job, Made, Origin
from ckpttool.conversion.log_file import begin_log
from ckpttool.conversion.origin import find_origin
from ckpttool.conversion.request import Request
from ckpttool.conversion.staging import Staging
from ckpttool.conversion.targets import Target
from ckpttool.conversion.wire import decode, encode, plain
from ckpttool.errors import ConversionError, LimitError
from ckpttool.limits import Limits

__all__ = ["Work", "kept_log", "of_running", "run_too"]

_TASK = "ckpttool.conversion.worker.convert"


@dataclass(frozen=True, slots=True)
class Work:
    """The children of one conversion."""

    request: Request
    target: Target
    origin: Origin
    folder: str
    log: str
    limits: Limits
    run: RunTask

    @property
    def _bounds(self) -> Bounds:
        return Bounds.of(self.limits, self.request.seconds, self.request.memory)

    def made(self, artefact: str) -> Made:
        """Let the child convert, or only record the reference."""
        cases = None
        if self.request.check.run and self.target.runs:
            cases = os.path.join(self.folder, "cases")
            os.mkdir(cases)
        job = Job(self.request, self.origin, artefact, cases)
        value = self.run(_TASK, _fields(job), folder=self.folder, log=self.log, bounds=self._bounds)
        return decode(Made, encode(value))

    def checked(self, made: Made, path: str) -> CheckResult:
        """Run the result and compare."""
        if not self.request.check.run:
            return not_run("no check was asked for")
        if not self.target.runs:  # values only: the child has read them back
            return CheckResult("passed", "bytes")
        started = time.monotonic()
        found = check(
            self.request,
            self.target,
            made,
            path,
            self.folder,
            log=self.log,
            bounds=self._bounds,
            run=self.run,
        )
        made.seconds["check"] = round(time.monotonic() - started, 3)
        return found


def _fields(job: Job) -> dict[str, object]:
    return plain(job)  # type: ignore[return-value]


def of_running(request: Request) -> dict[str, object]:
    """Options about running a result, and its processes, which do nothing where none is run."""
    return {
        "--check-data": request.check.data,
        "--tolerance": request.check.tolerance is not None,
        "--seed": request.check.seed is not None,
        "--timeout": request.seconds,
        "--memory": request.memory,
        "--log": request.log,
    }


@contextmanager
def kept_log(path: str | None, said: Callable[[str], None] | None) -> Iterator[str]:
    """A file for what the child prints; kept where it was asked for, and on failure.

    Raises:
        CkpttoolError: as ``begin_log``.
    """
    keep = path is not None
    if path is None:
        from tempfile import mkstemp

        descriptor, path = mkstemp(prefix="ckpttool-convert-", suffix=".log")
        os.close(descriptor)
    else:
        begin_log(path)
    try:
        yield path
    except (ConversionError, LimitError):
        keep = True
        if said is not None:
            for line in last_lines(path):
                said(line)
        raise
    finally:
        if not keep:
            with suppress(FileNotFoundError):  # whoever tidies the system's temporary files
                os.unlink(path)


def run_too(
    request: Request,
    target: Target,
    proven: CheckResult,
    made: Made,
    staging: Staging,
    log: str,
    limits: Limits,
    run: RunTask,
) -> CheckResult:
    """Run a result whose values are proven already: TensorFlow loads it, and it computes.

    There is no original to run; what its own functions and its signatures compute is compared.
    """
    settings = replace(request.check, only=True, execute=False)
    alone = replace(request, source=staging.artefact, like=None, maps=(), check=settings)
    origin = find_origin(alone, limits)
    work = Work(alone, target, origin, staging.scratch, log, limits, run)
    again = work.made(staging.artefact)
    ran = work.checked(again, staging.artefact)
    made.seconds["run"] = round(sum(again.seconds.values()), 3)
    if ran.state == "failed":
        return ran
    said = (f"it was not run: {ran.why}",) if ran.state == "not_run" else ()
    return replace(proven, metrics=ran.metrics, notes=(*said, *ran.notes), versions=ran.versions)
