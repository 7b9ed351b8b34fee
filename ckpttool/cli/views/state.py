"""How ``state`` looks: the list with times, what is not listed, what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.state import StateEntry, StateResult

__all__ = ["StateView"]

#: Unlisted checkpoints that are named for people; all are in JSON.
_NAMED = 10


class StateView(View):
    """A state file; its problems are warnings, and with ``check`` the exit code."""

    command = "state"

    def __init__(self, result: StateResult, *, check: bool = False) -> None:
        self._result = result
        self._check = check

    @property
    def exit_code(self) -> int:
        """1 with ``check`` where something is wrong; a note is nothing wrong."""
        wrong = any(problem.severity != "note" for problem in self._result.problems)
        return 1 if self._check and wrong else 0

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "path": result.path,
            "latest": result.latest,
            "latest_location": result.latest_location,
            "checkpoints": [
                {
                    "prefix": entry.prefix,
                    "timestamp": entry.timestamp,
                    "exists": entry.exists,
                    "location": entry.location,
                }
                for entry in result.checkpoints
            ],
            "last_preserved": result.last_preserved,
            "unlisted": list(result.unlisted),
            "problems": [
                {
                    "id": problem.id,
                    "severity": problem.severity,
                    "object": problem.object,
                    "message": problem.message,
                }
                for problem in result.problems
            ],
            "changed": result.changed,
        }

    @property
    def warnings(self) -> Sequence[str]:
        return tuple(
            f"{problem.object}: {problem.message} [{problem.id}]"
            for problem in self._result.problems
        )

    def plain(self) -> Iterator[str]:
        return tab_lines(
            (
                entry.prefix,
                "" if entry.timestamp is None else repr(entry.timestamp),
                _presence(entry),
                "latest" if entry.prefix == self._result.latest else "",
            )
            for entry in self._entries
        )

    def human(self, screen: Screen) -> Iterator[object]:
        result = self._result
        yield f"{screen.style(escape(result.path), 'bold')}\n"
        if self._entries:
            timed = any(entry.timestamp is not None for entry in self._entries)
            columns = [
                Column("checkpoint", style="cyan"),
                Column("saved" if timed else "", drop=1),  # a Saver keeps no times
                Column(""),
            ]
            yield from screen.table(columns, map(self._row, self._entries))
        else:
            yield "it lists no checkpoint\n"
        if result.last_preserved is not None:
            yield f"last preserved: {_time_text(result.last_preserved)}\n"
        if result.unlisted:
            named = ", ".join(result.unlisted[:_NAMED])
            more = len(result.unlisted) - _NAMED
            rest = f" and {more} more" if more > 0 else ""
            yield screen.text(f"not listed: {escape(named)}{rest}")

    def names(self) -> Iterator[str]:
        return tab_lines((entry.prefix,) for entry in self._entries)

    @property
    def _entries(self) -> list[StateEntry]:
        """The list, and the latest path where it is not in it."""
        entries = list(self._result.checkpoints)
        latest = self._result.latest
        if latest is not None and all(entry.prefix != latest for entry in entries):
            entries.append(StateEntry(latest, None, self._result.latest_location))
        return entries

    def _row(self, entry: StateEntry) -> tuple[str, str, str]:
        remarks = ["latest"] if entry.prefix == self._result.latest else []
        if not entry.exists:
            remarks.append("missing")
        time = "" if entry.timestamp is None else _time_text(entry.timestamp)
        return entry.prefix, time, ", ".join(remarks)


def _presence(entry: StateEntry) -> str:
    return "exists" if entry.exists else "missing"


def _time_text(timestamp: float) -> str:
    """Local time with its offset; the number itself where no calendar has it."""
    if math.isfinite(timestamp):
        try:
            local = datetime.fromtimestamp(timestamp, UTC).astimezone()
            return local.isoformat(" ", "seconds")
        except (OverflowError, OSError, ValueError):
            pass
    return repr(timestamp)
