"""How ``state --fix`` and ``--set-latest`` look: each change, and what the file says then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.state_fix import StateFix
from ckpttool.sources.filenames import join

__all__ = ["StateFixView"]


class StateFixView(View):
    """A plan, or with ``applied`` what was done."""

    command = "state"

    def __init__(self, fix: StateFix, *, applied: bool = False) -> None:
        self._fix = fix
        self._applied = applied

    @property
    def warnings(self) -> Sequence[str]:
        return [f"a trainer may be alive: {self._fix.busy}"] if self._fix.busy else []

    def data(self) -> Mapping[str, object]:
        fix = self._fix
        times = fix.after.all_model_checkpoint_timestamps
        latest = fix.after.model_checkpoint_path
        return {
            "path": fix.path,
            "latest": latest,
            "latest_location": None if latest is None else join(fix.directory, latest),
            "checkpoints": [
                {
                    "prefix": path,
                    "timestamp": times[place] if place < len(times) else None,
                    "exists": True,
                    "location": join(fix.directory, path),
                }
                for place, path in enumerate(fix.after.all_model_checkpoint_paths)
            ],
            "last_preserved": fix.after.last_preserved_timestamp,
            "unlisted": list(fix.unlisted),
            "problems": [],
            "changed": self._applied,
            "changes": list(fix.changes),
            "backup": fix.backup or None,
        }

    def names(self) -> Iterator[str]:
        return tab_lines((path,) for path in self._fix.after.all_model_checkpoint_paths)

    def plain(self) -> Iterator[str]:
        return tab_lines((change,) for change in self._fix.changes)

    def human(self, screen: Screen) -> Iterator[object]:
        fix = self._fix
        yield f"{screen.style(escape(fix.path), 'bold')}\n"
        if not fix.changes:
            yield screen.style("Nothing to change", "green") + ".\n"
            return
        for change in fix.changes:
            yield screen.text(f"  {escape(change)}", hang=4)
        listed = len(fix.after.all_model_checkpoint_paths)
        latest = escape(fix.after.model_checkpoint_path or "")
        if not self._applied:
            named = screen.style(latest, "cyan")
            yield screen.text(f"It will list {listed}, the latest {named}.")
            return
        done, named = screen.style("Rewritten", "bold green"), screen.style(latest, "cyan")
        yield screen.text(f"{done}: it lists {listed}, the latest {named}.")
        if fix.backup:
            yield screen.text(f"The old text is kept in {escape(fix.backup)}")
