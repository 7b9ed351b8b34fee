"""How ``rm`` looks: what goes, what the state file says then, how to take it back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.prune.removal import Removal
from ckpttool.ops.rm import RmPlan, RmRun
from ckpttool.policy.words import count
from ckpttool.sources.filenames import join

__all__ = ["RmView"]


class RmView(View):
    """A plan, or with ``applied`` what came of it."""

    command = "rm"

    def __init__(self, plan: RmPlan, *, applied: bool = False) -> None:
        self._plan = plan
        self._applied = applied

    @property
    def exit_code(self) -> int:
        return max((run.carried.exit_code for run in self._plan.runs if run.carried), default=0)

    @property
    def warnings(self) -> Sequence[str]:
        warnings: list[str] = []
        for run in self._plan.runs:
            more = run.carried.warnings if run.carried else []
            warnings += [f"{run.directory}: {text}" for text in (*run.warnings, *more)]
        return warnings

    def data(self) -> Mapping[str, object]:
        carried = [run.carried for run in self._plan.runs if run.carried]
        return {
            "removed": [
                {"directory": run.directory, "prefix": one.prefix, "bytes": one.nbytes}
                for run, one in self._removals()
            ],
            "runs": [
                {
                    "directory": run.directory,
                    "state": _state(run),
                    "latest": run.latest,
                    "undo": _undo(run),
                }
                for run in self._plan.runs
            ],
            "freed_bytes": sum(one.removed.freed for one in carried)
            if self._applied
            else self._plan.nbytes,
            "trashed_bytes": sum(one.removed.trashed for one in carried),
            "applied": self._applied,
        }

    def names(self) -> Iterator[str]:
        return tab_lines((join(run.directory, one.prefix),) for run, one in self._removals())

    def plain(self) -> Iterator[str]:
        return tab_lines(
            ("delete", join(run.directory, one.prefix), str(one.nbytes))
            for run, one in self._removals()
        )

    def human(self, screen: Screen) -> Iterator[object]:
        for run, one in self._removals():
            what = f"{count(len(one.files), 'file')}, {bytes_text(one.nbytes)}"
            name = screen.style(escape(join(run.directory, one.prefix)), "cyan")
            verb = "gone" if self._applied else "goes"
            yield screen.text(f"{verb}  {name}  {screen.style(what, 'dim')}", hang=6)
        for run in self._plan.runs:
            if run.latest is not None:
                latest = escape(run.latest)
                yield screen.text(f"The latest of {escape(run.directory)} is {latest} then.")
            elif _state(run) == "removed":
                where = escape(run.directory)
                yield screen.text(f"The state file of {where} goes: nothing is left.")
            if undo := _undo(run):
                yield f"Take it back: {escape(undo)}\n"

    def _removals(self) -> Iterator[tuple[RmRun, Removal]]:
        for run in self._plan.runs:
            for removal in run.removals:
                if run.carried is None or removal.prefix in run.carried.removed.prefixes:
                    yield run, removal


def _state(run: RmRun) -> str:
    if run.carried is not None:
        return run.carried.state
    if run.state is None:
        return "unchanged"
    return "removed" if run.state.state is None else "rewritten"


def _undo(run: RmRun) -> str | None:
    if run.carried is None or not run.carried.undo:
        return None
    return f"ckpttool prune {shlex.quote(run.directory)} --undo"
