"""``convert``: a source and a graph → a file that is served, with proof, or nothing.

Puts the parts of ``ckpttool/convert`` together: where the graph is, what the target needs,
the child that converts, the check, and the move of the whole result into its place.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from ckpttool.convert.check import CheckResult, not_run
from ckpttool.convert.child import Bounds, last_lines, run_task
from ckpttool.convert.job import Job, Made, Origin
from ckpttool.convert.origin import find_origin
from ckpttool.convert.ports import Signature
from ckpttool.convert.request import Request
from ckpttool.convert.staging import Output, Staging, require_free
from ckpttool.convert.targets import (
    SOURCES,
    TARGETS,
    Requirement,
    find_target,
    installed,
    require_installed,
    require_settings,
)
from ckpttool.convert.wire import decode, encode, plain
from ckpttool.errors import ConversionError, LimitError
from ckpttool.limits import Limits, default_limits

__all__ = ["ConvertResult", "Offer", "convert", "offers"]

_TASK = "ckpttool.convert.worker.convert"


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """What was made, or would be.

    Attributes:
        source: the address as it was given.
        destination: where the result stands.
        target: its kind.
        graph: where the graph came from; empty where none is needed.
        outputs: the files of the result; empty for a plan.
        signatures: what it computes; of a plan as far as that is known beforehand.
        check: whether it is proven.
        applied: false for a plan.
        warnings: what a person should know about the result.
        notes: how the source was understood.
        seconds: what was done → how long it took.
    """

    source: str
    destination: str
    target: str
    graph: str
    outputs: tuple[Output, ...]
    signatures: tuple[Signature, ...]
    check: CheckResult
    applied: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Offer:
    """A source of graphs or a target, and what is installed for it.

    ``role`` is ``source`` or ``target``; ``works`` whether all that it needs is there;
    ``checked`` whether a result can be proven here.
    """

    role: str
    name: str
    title: str
    holds: str
    needs: tuple[Requirement, ...]
    runs: tuple[Requirement, ...]

    @property
    def works(self) -> bool:
        return all(one.version is not None for one in self.needs)

    @property
    def checked(self) -> bool:
        return any(one.version is not None for one in self.runs)


def offers() -> tuple[Offer, ...]:
    """What can be converted, and to what; reads the metadata of packages only."""
    sources = [
        Offer("source", one.name, one.title, "", tuple(map(installed, one.needs)), ())
        for one in SOURCES
    ]
    targets = [
        Offer(
            "target",
            one.name,
            one.title,
            one.holds,
            tuple(map(installed, one.needs)),
            tuple(map(installed, one.runs)),
        )
        for one in TARGETS.values()
    ]
    return (*sources, *targets)


def convert(
    request: Request,
    *,
    dry_run: bool = False,
    limits: Limits | None = None,
    said: Callable[[str], None] | None = None,
) -> ConvertResult:
    """Convert, check, and move the result into its place.

    Args:
        request: what is asked for.
        dry_run: find out all that can be known without TensorFlow, and write nothing.
        limits: bounds on what files may claim, and on the child.
        said: told the last lines of the child's log when it fails.

    Raises:
        UsageError: ids ``target-unknown``, ``target-setting``, and of the options' words.
        ConverterMissingError: something that the target needs is not installed.
        NoGraphError: there is no graph to convert with.
        RefusedError: ids ``exists``, ``destination-other``, ``training-graph``.
        ConversionError: TensorFlow or a converter failed.
        ResultDiffersError: the result computes something else; nothing is in place.
    """
    limits = limits or default_limits()
    target = find_target(request.target, request.destination)
    request = replace(request, target=target.name)
    require_settings(target, request.settings)
    require_installed(f"--to {target.name}", target.needs)
    form: Literal["file", "directory"] = "directory" if target.form == "directory" else "file"
    require_free(request.destination, form, target.marks, overwrite=request.overwrite)
    origin = find_origin(request, limits)
    if dry_run:
        return _result(request, origin, not_run("this is a plan"))
    with Staging(request.destination, overwrite=request.overwrite) as staging:
        with _log(request.log, said) as log:
            made = _made(request, origin, staging, log, limits)
        checked = not_run("no check was asked for")
        outputs = staging.outputs
        staging.commit()
    return _result(request, origin, checked, made, outputs)


def _made(request: Request, origin: Origin, staging: Staging, log: str, limits: Limits) -> Made:
    """Let the child convert."""
    cases = None
    if request.check.run:
        cases = os.path.join(staging.scratch, "cases")
        os.mkdir(cases)
    job = Job(request, origin, staging.artefact, cases)
    bounds = Bounds.of(limits, request.seconds, request.memory)
    value = run_task(_TASK, _fields(job), folder=staging.scratch, log=log, bounds=bounds)
    return decode(Made, encode(value))


def _fields(job: Job) -> dict[str, object]:
    return plain(job)  # type: ignore[return-value]


@contextmanager
def _log(path: str | None, said: Callable[[str], None] | None) -> Iterator[str]:
    """A file for what the child prints; kept where it was asked for, and on failure."""
    keep = path is not None
    if path is None:
        descriptor, path = tempfile.mkstemp(prefix="ckpttool-convert-", suffix=".log")
        os.close(descriptor)
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
            os.unlink(path)


def _result(
    request: Request,
    origin: Origin,
    check: CheckResult,
    made: Made | None = None,
    outputs: tuple[Output, ...] = (),
) -> ConvertResult:
    return ConvertResult(
        request.source,
        request.destination,
        request.target,
        origin.graph,
        outputs,
        origin.signatures if made is None else made.signatures,
        check,
        made is not None,
        origin.warnings if made is None else made.warnings,
        origin.notes,
        {} if made is None else made.seconds,
    )
