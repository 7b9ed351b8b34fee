"""How the other forms of ``prune`` look: many runs, undo and the trash, rounds of a watch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.cli.views.prune import policy_data, prune_data
from ckpttool.ops.prune.many import RunReport
from ckpttool.ops.prune.undo import UndoResult
from ckpttool.ops.prune.watch import Round
from ckpttool.policy.facts import Retention
from ckpttool.policy.words import count
from ckpttool.sources.filenames import join

__all__ = ["PruneManyView", "UndoView", "round_record"]


class PruneManyView(View):
    """The runs below a root, one a line, with totals."""

    command = "prune"
    record_type = "run"

    def __init__(
        self,
        root: str,
        retention: Retention,
        reports: Sequence[RunReport],
        *,
        applied: bool,
        check: bool = False,
    ) -> None:
        self._root = root
        self._retention = retention
        self._reports = reports
        self._applied = applied
        self._check = check

    @property
    def exit_code(self) -> int:
        """3: not all runs could be pruned; with ``check``, 1: something may go."""
        codes = [report.result.carried.exit_code for report in self._reports if report.result]
        if any(report.error for report in self._reports) or any(codes):
            return 3
        return 1 if self._check and any(map(_goes, self._reports)) else 0

    @property
    def warnings(self) -> Sequence[str]:
        warnings = []
        for report in self._reports:
            if report.error is not None:
                warnings.append(f"{report.directory}: {report.error} [{report.error.id}]")
            texts = report.plan.warnings if report.plan else ()
            more = report.result.warnings if report.result else ()
            warnings += [f"{report.directory}: {text}" for text in (*texts, *more)]
        return warnings

    def data(self) -> Mapping[str, object]:
        return {**self._totals(), "runs": list(self.records())}

    def summary(self) -> Mapping[str, object]:
        return self._totals()

    def records(self) -> Iterator[Mapping[str, object]]:
        for report in self._reports:
            if report.plan is not None:
                yield prune_data(report.plan, report.result)
            elif report.error is not None:
                yield {"directory": report.directory, "error": report.error.as_dict()}

    def names(self) -> Iterator[str]:
        return tab_lines(
            (join(report.directory, removal.prefix),)
            for report in self._reports
            if report.plan is not None
            for removal in report.plan.removals
        )

    def plain(self) -> Iterator[str]:
        return tab_lines(self._rows(str))

    def human(self, screen: Screen) -> Iterator[object]:
        columns = [
            Column("run", style="cyan"),
            Column("went" if self._applied else "goes", "right"),
            Column("stays", "right", drop=2),
            Column("size", "right", drop=1),
            Column("", prose=True),
        ]
        yield from screen.table(columns, self._rows(bytes_text))
        verb = "were" if self._applied else "would be"
        total = bytes_text(sum(map(_bytes, self._reports)))
        gone = count(sum(map(_goes, self._reports)), "checkpoint")
        runs = count(len(self._reports), "run")
        yield screen.style(f"{gone} ({total}) of {runs} {verb} removed.", "bold yellow") + "\n"
        if any(report.result and report.result.carried.undo for report in self._reports):
            yield "Take one back: ckpttool prune RUN --undo\n"

    def _rows(self, size: object) -> Iterator[tuple[str, ...]]:
        for report in self._reports:
            stays = len(report.plan.keep) if report.plan else ""
            note = "" if report.error is None else f"{report.error} [{report.error.id}]"
            nbytes = _bytes(report)
            yield (
                report.directory,
                str(_goes(report)),
                str(stays),
                bytes_text(nbytes) if size is bytes_text else str(nbytes),
                note,
            )

    def _totals(self) -> dict[str, object]:
        results = [report.result.carried.removed for report in self._reports if report.result]
        return {
            "directory": self._root,
            "policy": policy_data(self._retention),
            "applied": self._applied,
            "freed_bytes": sum(one.freed for one in results)
            if self._applied
            else sum(map(_bytes, self._reports)),
            "trashed_bytes": sum(one.trashed for one in results),
            "undo": None,
        }


class UndoView(View):
    """What came back, or what is gone for good."""

    command = "prune"
    record_type = "checkpoint"

    def __init__(self, result: UndoResult) -> None:
        self._result = result

    @property
    def exit_code(self) -> int:
        return 3 if self._result.refused else 0

    @property
    def warnings(self) -> Sequence[str]:
        result = self._result
        warnings = [f"{prefix} stays in the trash: {why}" for prefix, why in result.refused]
        if result.refused and not result.emptied:
            warnings.append("the state file was not restored: not everything came back")
        if result.state == "changed":
            warnings.append(
                "the state file was written since, and its word stands: what came back is not "
                f"in its list (ckpttool state {shlex.quote(result.directory)} --set-latest NAME)"
            )
        return warnings

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "directory": result.directory,
            "applied": True,
            "restored": [] if result.emptied else result.prefixes,
            "emptied": result.prefixes if result.emptied else [],
            "left_alone": [{"path": path, "why": why} for path, why in result.refused],
            "freed_bytes": result.nbytes if result.emptied else 0,
            "trashed_bytes": 0,
            "undo": None,
            "state": result.state,
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        action = "emptied" if self._result.emptied else "restored"
        return ({"action": action, "prefix": prefix} for prefix in self._result.prefixes)

    def summary(self) -> Mapping[str, object]:
        return self.data()

    def names(self) -> Iterator[str]:
        return tab_lines((join(self._result.directory, one),) for one in self._result.prefixes)

    def plain(self) -> Iterator[str]:
        action = "emptied" if self._result.emptied else "restored"
        return tab_lines((action, prefix) for prefix in self._result.prefixes)

    def human(self, screen: Screen) -> Iterator[object]:
        result = self._result
        what = f"{count(len(result.prefixes), 'checkpoint')} ({bytes_text(result.nbytes)})"
        if result.emptied:
            yield screen.style(f"Removed {what} from the trash for good.", "bold green") + "\n"
            return
        names = ", ".join(result.prefixes[:10])
        more = f" and {len(result.prefixes) - 10} more" if len(result.prefixes) > 10 else ""
        yield screen.style(f"{what} came back", "bold green") + f": {escape(names)}{more}\n"
        if result.state == "restored":
            yield "The state file is as it was before.\n"


def round_record(directory: str, one: Round) -> dict[str, object]:
    """A round of ``--watch`` as a record."""
    record: dict[str, object] = {"type": "round", "time": one.time, "directory": directory}
    if one.error is not None:
        return record | {"error": one.error.as_dict()}
    removed = one.result.carried.removed if one.result else None
    return record | {
        "deleted": removed.prefixes if removed else [],
        "kept": len(one.plan.keep) if one.plan else 0,
        "freed_bytes": removed.freed if removed else 0,
        "trashed_bytes": removed.trashed if removed else 0,
        "state": one.result.carried.state if one.result else "unchanged",
        "warnings": [
            *(one.plan.warnings if one.plan else ()),
            *(one.result.warnings if one.result else ()),
        ],
    }


def _goes(report: RunReport) -> int:
    if report.result is not None:
        return len(report.result.carried.removed.prefixes)
    return len(report.plan.removals) if report.plan else 0


def _bytes(report: RunReport) -> int:
    if report.result is not None:
        removed = report.result.carried.removed
        return removed.freed + removed.trashed
    return report.plan.nbytes if report.plan else 0
