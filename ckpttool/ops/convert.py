"""``convert``: a source and a graph → a file that is served, with proof, or nothing.

Puts the parts of ``ckpttool/conversion`` together: where the graph is, what the target needs,
the child that converts, the check, and the move of the whole result into its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ckpttool.conversion.check import CheckResult, not_run, require_agreement, require_proof
from ckpttool.conversion.child import Bounds, RunTask, run_task
from ckpttool.conversion.former import companions, files_of, written_to
from ckpttool.conversion.given_files import require_given
from ckpttool.conversion.job import Made, Origin
from ckpttool.conversion.log_file import require_log
from ckpttool.conversion.origin import find_origin
from ckpttool.conversion.ports import Signature
from ckpttool.conversion.report import (
    REPORT_ENDING,
    make_report,
    report_path,
    require_report_free,
    write_report,
)
from ckpttool.conversion.request import Request
from ckpttool.conversion.staging import Output, Staging, require_free
from ckpttool.conversion.targets import (
    SOURCES,
    TARGETS,
    Requirement,
    Target,
    find_target,
    installed,
    require_installed,
    require_no_choice,
    require_settings,
)
from ckpttool.errors import NotFoundError, UsageError
from ckpttool.limits import Limits, default_limits
from ckpttool.ops.convert_apart import require_apart
from ckpttool.ops.convert_child import Work, kept_log, run_too
from ckpttool.storage import stat_path

__all__ = ["ConvertResult", "Offer", "convert", "offers"]


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
        report: where the report stands; None where there is none.
        applied: false for a plan, and where only a check was asked for.
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
    report: str | None
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
    replacing: Callable[[], None] | None = None,
    run: RunTask = run_task,
) -> ConvertResult:
    """Convert, check, and move the result into its place.

    Args:
        request: what is asked for.
        dry_run: find out all that can be known without TensorFlow, and write nothing.
        limits: bounds on what files may claim, and on the child.
        said: told the last lines of the child's log when it fails.
        replacing: called before the work where a former result is to be replaced, after all
            that would refuse it; may raise.
        run: what runs a task in a child.

    Raises:
        UsageError: ids ``target-unknown``, ``target-setting``, and of the options' words.
        ConverterMissingError: something that the target needs is not installed.
        NoGraphError: there is no graph to convert with.
        RefusedError: ids ``exists``, ``destination-other``, ``output-is-source``,
            ``training-graph``.
        ConversionError: TensorFlow or a converter failed.
        ResultDiffersError: the result computes something else; nothing is in place.
        ConverterMissingError: id ``check-not-run``: it cannot be proven, as was asked for.
    """
    limits = limits or default_limits()
    target = find_target(request.target, request.destination, request.model)
    request = replace(request, target=target.name)
    report = _require_sense(request, target, dry_run=dry_run)
    if request.check.only:
        return _check_only(request, target, limits, said, run)
    if target.form == "prefix":
        return _checkpoint(request, target, limits, replacing, dry_run=dry_run)
    origin = _origin(request, target, limits)  # a wrong name is said before a name that is taken
    require_given(request)
    require_apart(request, origin)
    form: Literal["file", "directory"] = "directory" if target.form == "directory" else "file"
    require_free(request.destination, form, target.marks, overwrite=request.overwrite)
    if dry_run:
        return _result(request, origin, not_run("this is a plan"))
    outdated = companions(request.destination, target, limits) if request.overwrite else set()
    if replacing is not None and stat_path(request.destination) is not None:
        replacing()
    with Staging(request.destination, overwrite=request.overwrite) as staging:
        staging.outdated |= outdated
        if origin.kind == "values":
            from ckpttool.ops.convert_weights import write_weights

            made, checked = write_weights(request, target, origin, staging.artefact, limits)
        elif origin.kind == "export":
            from ckpttool.ops.convert_refresh import refresh

            made, checked = refresh(request, origin, staging.artefact, limits)
            if request.check.execute and checked.state == "passed":
                with kept_log(request.log, said) as log:
                    checked = run_too(request, target, checked, made, staging, log, limits, run)
        else:
            from ckpttool.ops.convert_live import on_disk

            with kept_log(request.log, said) as log:
                local = on_disk(origin, staging.scratch, limits)
                work = Work(request, target, local, staging.scratch, log, limits, run)
                made = work.made(staging.artefact)
                checked = work.checked(made, staging.artefact)
        outputs = staging.outputs
        document = None
        if report is not None:
            files = [(one.path, staging.staged(one)) for one in outputs]
            document = make_report(request, origin, made, checked, files, limits)
        is_apart = request.check.report is not None
        if document is not None and report is not None:
            if not is_apart:
                staging.replaced.add(os.path.basename(report))
                write_report(f"{staging.artefact}{REPORT_ENDING}", document)
            elif checked.state == "failed":
                write_report(report, document)
        require_proof(checked, request, target)
        made = _put_in_place(staging, made)
        if document is not None and report is not None and is_apart:
            write_report(report, document)
    return _result(request, origin, checked, made, outputs, report)


def _require_sense(request: Request, target: Target, *, dry_run: bool) -> str | None:
    """Refuse what shows before anything is read; where the report goes."""
    require_settings(target, request.settings, is_made=not request.check.only)
    require_agreement(request.check, is_measured=request.settings.calibration is not None)
    Bounds.of(default_limits(), request.seconds, request.memory)
    if request.check.only and (request.overwrite or dry_run):
        raise _only_looks("--overwrite" if request.overwrite else "--dry-run")
    if request.like is None or request.check.execute:
        require_installed(f"--to {target.name}", target.needs)
    report = report_path(request, target)
    if report is not None and not dry_run:
        require_report_free(report, request.destination)
    if not request.check.only:
        require_apart(request)
    if request.log is not None:
        require_log(request.log, written_to(request.destination, report))
    return report


def _origin(request: Request, target: Target, limits: Limits) -> Origin:
    """Where graph and values come from; a target without a graph needs only the values."""
    if request.like is not None:
        from ckpttool.ops.convert_refresh import refresh_origin

        return refresh_origin(request, limits)
    if not target.graph:
        from ckpttool.ops.convert_weights import values_origin

        return values_origin(request, limits)
    require_no_choice(request, target)
    return find_origin(request, limits)


def _checkpoint(
    request: Request,
    target: Target,
    limits: Limits,
    replacing: Callable[[], None] | None,
    *,
    dry_run: bool,
) -> ConvertResult:
    """What ends as several files of one prefix has a way of its own into its place."""
    from ckpttool.ops.convert_checkpoint import write_checkpoint

    origin = _origin(request, target, limits)
    made, checked, outputs = write_checkpoint(request, target, limits, replacing, dry_run=dry_run)
    report = request.check.report
    if report is not None and not dry_run:
        files = [(one.path, one.path) for one in outputs]
        write_report(report, make_report(request, origin, made, checked, files, limits))
    return _result(request, origin, checked, None if dry_run else made, outputs, report)


def _check_only(
    request: Request,
    target: Target,
    limits: Limits,
    said: Callable[[str], None] | None,
    run: RunTask,
) -> ConvertResult:
    """Check what is at the destination already; nothing of it changes."""
    if stat_path(request.destination) is None:
        raise NotFoundError(
            f"there is no {request.destination} to check",
            why="--check-only looks at a result that is there",
            hint="leave --check-only out to make it",
        )
    from tempfile import TemporaryDirectory

    origin = _origin(request, target, limits)
    require_given(request)
    with (
        TemporaryDirectory(prefix="ckpttool-check-") as folder,
        kept_log(request.log, said) as log,
    ):
        from ckpttool.ops.convert_live import on_disk

        local = on_disk(origin, folder, limits)
        work = Work(request, target, local, folder, log, limits, run)
        made = work.made(request.destination)
        checked = work.checked(made, request.destination)
    there = files_of(request.destination, target, limits)
    outputs = tuple(Output(os.path.normpath(one), os.stat(one).st_size) for one in there)
    report = request.check.report
    if report is not None:
        files = [(one.path, one.path) for one in outputs]
        write_report(report, make_report(request, origin, made, checked, files, limits))
    if checked.state == "not_run":
        require_proof(checked, request, target)
    return _result(request, origin, checked, made, outputs, report)


def _put_in_place(staging: Staging, made: Made) -> Made:
    stay = staging.commit()
    if not stay:
        return made
    said = f"of the former result, could not be removed: {', '.join(stay)}"
    return replace(made, warnings=(*made.warnings, said))


def _result(
    request: Request,
    origin: Origin,
    check: CheckResult,
    made: Made | None = None,
    outputs: tuple[Output, ...] = (),
    report: str | None = None,
) -> ConvertResult:
    return ConvertResult(
        request.source,
        request.destination,
        request.target,
        origin.graph,
        outputs,
        origin.signatures if made is None else made.signatures,
        check,
        report,
        made is not None and not request.check.only,
        origin.warnings if made is None else (*made.warnings, *check.notes),
        origin.notes,
        {} if made is None else made.seconds,
    )


def _only_looks(option: str) -> UsageError:
    return UsageError(
        f"--check-only and {option} do not go together",
        why="nothing is written where only a check is asked for",
        hint="leave one of them out",
        id="options-contradict",
    )
