"""Pruning many runs: every run directory below a root, each by itself.

Links are not followed, and what goes wrong in one run is reported and does not keep the
others from being pruned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import PruneResult, apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan, plan_prune
from ckpttool.policy.settings import check_retention
from ckpttool.sources.filenames import join
from ckpttool.storage import open_directory

__all__ = ["RunReport", "apply_many", "find_runs", "plan_many"]

_INDEX = ".index"
#: Hidden directories, our trash among them, and the parts of a save that may be under way.
_NO_RUN = re.compile(r"\A\.|_temp(?:_[0-9a-f]+)?\Z")


@dataclass(frozen=True, slots=True)
class RunReport:
    """What came of one run: a plan, a result, or an error."""

    directory: str
    plan: PrunePlan | None = None
    result: PruneResult | None = None
    error: CkpttoolError | None = None


def find_runs(root: str, state_name: str) -> Iterator[str]:
    """Every directory at or below ``root`` with a state file or an index, in order of path.

    Raises:
        NotFoundError, PermissionDeniedError: the root itself cannot be opened.
    """
    with open_directory(root):
        pass
    waiting = [root]
    while waiting:
        path = waiting.pop()
        inside: list[str] = []
        is_run = False
        try:
            with open_directory(path) as directory:
                for entry in directory.scan():
                    if entry.kind == "file":
                        is_run |= entry.name == state_name or entry.name.endswith(_INDEX)
                    elif entry.kind == "directory" and not _NO_RUN.search(entry.name):
                        inside.append(join(path, entry.name))
        except CkpttoolError:
            yield path  # planning it says what is wrong
            continue
        if is_run:
            yield path
        waiting += sorted(inside, reverse=True)


def plan_many(root: str, request: Request, limits: Limits | None = None) -> list[RunReport]:
    """Plan every run below ``root``.

    Raises:
        NotFoundError: id ``no-runs``: there is none.
        UsageError, RefusedError: the settings make no sense for any run.
    """
    if not request.best:  # else each run checks, when its metrics have been read
        check_retention(request.retention)
    reports = []
    # A run's checkpoints may be named by the state file of a directory above it, and a pin
    # may mean a checkpoint of one run.
    request = replace(request, root=root, idle_pins=True)
    for path in find_runs(root, request.state_name):
        try:
            reports.append(RunReport(path, plan_prune(path, request, limits=limits)))
        except CkpttoolError as error:
            reports.append(RunReport(path, error=error))
    if not reports:
        raise NotFoundError(
            f"there is no run in {root}",
            why=f"no directory in it has a {request.state_name} or an index",
            id="no-runs",
        )
    return reports


def apply_many(
    reports: list[RunReport],
    *,
    trash: bool,
    limits: Limits | None = None,
    done: Callable[[RunReport], None] = lambda _: None,
) -> list[RunReport]:
    """Apply the plans that were made; ``done`` is told of each."""
    applied = []
    for report in reports:
        if report.plan is not None and not report.plan.empty:
            try:
                result = apply_plan(report.plan, trash=trash, limits=limits)
                report = RunReport(report.directory, result.plan, result)  # noqa: PLW2901
            except CkpttoolError as error:
                report = RunReport(report.directory, error=error)  # noqa: PLW2901
        done(report)
        applied.append(report)
    return applied
