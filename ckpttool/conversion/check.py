"""The check: whether a result computes what its source does, and what is said of that.

Compares; runs nothing itself. The reference are the cases of ``job.Made``, the results come
from the task ``execute``, which runs a result in its own runtime and process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from ckpttool.conversion.child import Bounds, RunTask, run_task
from ckpttool.conversion.job import Case, Execution, Made, Ran
from ckpttool.conversion.metrics import Figures, Tolerance, compare, faults, merged, tolerance_of
from ckpttool.conversion.ports import Port
from ckpttool.conversion.request import CheckSettings, Request
from ckpttool.conversion.targets import Target
from ckpttool.conversion.wire import decode, encode, plain
from ckpttool.errors import (
    ConversionError,
    ConverterMissingError,
    CorruptError,
    IncompleteError,
    ResultDiffersError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CheckResult", "check", "not_run", "require_agreement", "require_proof"]

_TASK = "ckpttool.conversion.worker.execute"
#: Faults that are spelled out in an error; the report has them all.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What the check found.

    Attributes:
        state: a failed check is an error (52), unless ``--check-only`` asked for the answer.
        how: by running the result, or by comparing bytes.
        why: why it did not run, or failed.
        metrics: signature → output → figures.
        notes: how names were matched, and what weakens the proof.
        versions: the runtime and its version.
    """

    state: Literal["passed", "failed", "not_run"]
    how: Literal["run", "bytes"] = "run"
    why: str = ""
    metrics: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def not_run(why: str) -> CheckResult:
    """The result of a check that was not asked for, or could not be made."""
    return CheckResult("not_run", why=why)


def check(
    request: Request,
    target: Target,
    made: Made,
    path: str,
    folder: str,
    *,
    log: str,
    bounds: Bounds,
    run: RunTask = run_task,
) -> CheckResult:
    """Run a result on the inputs of the reference, and compare.

    Args:
        request: its check says how far it may be off; its settings, how exact it can be.
        target: the kind of the result.
        made: has the reference.
        path: where the result lies.
        folder: an existing directory for what it computes.
        log: of the child.
        bounds: of the child.
        run: what runs it.

    Raises:
        ConversionError: id ``converter-timeout``. LimitError: id ``converter-memory``.
    """
    if not made.cases:
        return not_run(made.unchecked or "the source has no signature to run")
    if (why := _other_form(target, path)) is not None:
        return CheckResult("failed", why=f"it cannot be run: {why}")
    wanted = {one.signature for one in made.cases}
    signatures = tuple(one for one in made.reference if one.name in wanted)
    batch = request.settings.batch
    job = Execution(target.name, path, signatures, made.cases, folder, batch)
    try:
        value = run(_TASK, plain(job), folder=folder, log=log, bounds=bounds)  # type: ignore[arg-type]
    except (ConverterMissingError, UnsupportedError) as error:
        return not_run(f"{error.what}: {error.why}" + (f"; {error.hint}" if error.hint else ""))
    except ConversionError as error:
        if error.id == "converter-timeout":
            raise
        return CheckResult("failed", why=f"it cannot be run: {error.why}")
    except (CorruptError, IncompleteError) as error:  # of the result: the source was read before
        return CheckResult("failed", why=f"it cannot be run: {error.what}: {error.why}")
    return _judged(request, made, decode(Ran, encode(value)), is_exact=target.name == "savedmodel")


def _other_form(target: Target, path: str) -> str | None:
    """Why what stands at a path cannot be a result of this kind; None where it may be."""
    form = "directory" if os.path.isdir(path) else "file"
    if form != target.form:
        return f"it is a {form}, and a result of {target.name} is a {target.form}"
    if target.marks and not any(os.path.exists(os.path.join(path, one)) for one in target.marks):
        return f"there is no {' or '.join(target.marks)} in it"
    return None


def require_agreement(settings: CheckSettings, *, is_measured: bool = False) -> None:
    """Check that the settings make sense, and none is about a check that another leaves out.

    Args:
        settings: of the check.
        is_measured: there are examples to measure ranges with, which are the check's inputs.

    Raises:
        UsageError: ids ``tolerance``, ``options-contradict``.
    """
    tolerance = settings.tolerance
    if tolerance is not None and not 0 <= tolerance < math.inf:
        raise UsageError(
            f"--tolerance {tolerance} accepts nothing, or anything",
            why="an NRMSE is 0 for the same, and 1 for a result of zeros",
            hint="give a number such as 0.01; --no-check leaves the check out",
            id="tolerance",
        )
    about = {
        "--check-only": settings.only,
        "--check run": settings.execute,
        "--check-data": settings.data is not None,
        "--tolerance": settings.tolerance is not None,
        "--require-check": settings.require,
        "--seed": settings.seed is not None,
    }
    given = [name for name, is_given in about.items() if is_given]
    if given and not settings.run:
        raise UsageError(
            f"--no-check and {given[0]} do not go together",
            why=f"{given[0]} is about the check, which --no-check leaves out",
            hint="leave one of them out",
            id="options-contradict",
        )
    real = "--check-data" if settings.data is not None else "--calibration" if is_measured else ""
    if real and settings.seed is not None:
        raise UsageError(
            f"{real} and --seed do not go together",
            why=f"--seed makes inputs up, and {real} gives real ones",
            hint="leave one of them out",
            id="options-contradict",
        )


def require_proof(result: CheckResult, request: Request, target: Target) -> None:
    """Check that a result may be put into its place.

    Raises:
        ResultDiffersError: the check failed.
        ConverterMissingError: id ``check-not-run``: it was to be proven, and could not be.
    """
    if result.state == "failed":
        raise ResultDiffersError(
            f"the result of converting {request.source} to {target.name} differs from it",
            why=result.why,
            hint="nothing is in place; --report FILE keeps all figures, --tolerance NRMSE accepts "
            "more, --check-data FILE.npz checks with real inputs",
        )
    if result.state == "not_run" and request.check.require:
        raise ConverterMissingError(
            f"the result of converting {request.source} to {target.name} cannot be checked",
            why=result.why,
            hint="leave out --require-check to have it unproven",
            id="check-not-run",
        )


class _Judgement(NamedTuple):
    """What is said of one output."""

    metrics: dict[str, object]
    faults: list[str]
    doubts: list[str]
    is_zero: bool


def _judged(request: Request, made: Made, ran: Ran, *, is_exact: bool) -> CheckResult:
    problems = list(ran.problems)
    doubts: list[str] = []
    metrics: dict[str, object] = {}
    for signature in made.reference:
        cases = [
            (case, ran.cases[case.path])
            for case in made.cases
            if case.signature == signature.name and case.path in ran.cases
        ]
        if not cases:
            continue
        of_outputs: dict[str, object] = {}
        zeros: list[bool] = []
        for port in signature.outputs:
            judgement = _of_output(request, port, cases, is_exact=is_exact)
            if judgement is None:
                continue  # that it is missing is among the problems
            of_outputs[port.name] = judgement.metrics
            where = f"{signature.name} {port.name}"
            problems += [f"{where}: {one}" for one in judgement.faults]
            doubts += [f"{where}: {one}" for one in judgement.doubts]
            zeros.append(judgement.is_zero)
        if zeros and all(zeros):  # a model that does nothing agrees with every other such
            doubts.append(
                f"{signature.name}: the source gives zero for all of these inputs; give others: "
                "--check-data"
            )
        metrics[signature.name] = of_outputs
    found = CheckResult("passed", metrics=metrics, notes=ran.notes, versions=ran.versions)
    if problems:
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        return replace(found, state="failed", why="; ".join(problems[:_NAMED]) + more)
    if made.unchecked or doubts:
        # What was compared agrees. That is no proof of the rest.
        return replace(found, state="not_run", why="; ".join([made.unchecked, *doubts]).strip("; "))
    return found


def _of_output(
    request: Request, port: Port, cases: Sequence[tuple[Case, str]], *, is_exact: bool
) -> _Judgement | None:
    parts: list[Figures] = []
    found: list[str] = []
    is_zero = True
    accuracy: dict[str, object] = {}
    for case, path in cases:
        loaded = _load(case.path, path, port.name)
        if loaded is None:
            return None
        reference, result, labels = loaded
        fault = _misfit(reference, result, is_exact=is_exact)
        if fault is not None:
            found.append(fault)
            continue
        parts.append(compare(reference, result))
        is_zero = is_zero and reference.dtype.kind in "fc" and not reference.any()
        accuracy |= _accuracy(reference, result, labels)
    settings = request.settings
    precisions = [port.dtype, *(case.precision for case, _ in cases), settings.quantize or ""]
    tolerance = tolerance_of([one for one in precisions if one])
    figures = merged(parts)
    if parts:
        found += faults(figures, tolerance, request.check.tolerance, port.dtype)
    doubts = []
    if parts and not figures.finite:
        doubts.append(
            "the source gives no finite number for these inputs; give others: --check-data"
        )
    metrics = _metrics(figures, tolerance, request.check.tolerance, port) | accuracy
    metrics |= {"passed": not found, "why": "; ".join(found)}
    return _Judgement(metrics, found, doubts, bool(parts) and is_zero)


def _load(
    reference: str, result: str, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """An output of a case on both sides, and the labels that were given for it."""
    import numpy as np

    key = f"out:{name}"
    with np.load(reference, allow_pickle=False) as ours, np.load(result) as theirs:
        if key not in theirs:
            return None
        return ours[key], theirs[key], ours.get(f"label:{name}")


def _misfit(reference: np.ndarray, result: np.ndarray, *, is_exact: bool) -> str | None:
    """Why two arrays cannot be compared; None where they can."""
    kinds = {"u": "i", "U": "S", "O": "S"}
    ours, theirs = (kinds.get(one.dtype.kind, one.dtype.kind) for one in (reference, result))
    if ours != theirs or (is_exact and ours != "S" and reference.dtype != result.dtype):
        return f"it is {_named(result)}, and the source's {_named(reference)}"
    if reference.shape != result.shape:
        return f"its shape is {list(result.shape)}, and the source's {list(reference.shape)}"
    return None


def _named(array: np.ndarray) -> str:
    return "string" if array.dtype.kind in "SUO" else array.dtype.name


def _accuracy(
    reference: np.ndarray, result: np.ndarray, labels: np.ndarray | None
) -> dict[str, object]:
    """The share of rows whose largest element is the one of the label, on both sides."""
    if labels is None:
        return {}
    source, other = (float((one.argmax(-1) == labels).mean()) for one in (reference, result))
    return {"accuracy": {"source": source, "result": other, "difference": other - source}}


def _metrics(
    figures: Figures, tolerance: Tolerance, given: float | None, port: Port
) -> dict[str, object]:
    limits = asdict(tolerance)
    del limits["exact"]
    return {
        "dtype": port.dtype,
        **asdict(figures),
        "limits": limits if given is None else {"nrmse": given},
    }
