"""How a writing command looks: what changes and why, the data files, what was done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.rewrite.run import RewriteResult
from ckpttool.ops.rewrite.tensors import Input
from ckpttool.policy.words import plural

__all__ = ["RewriteView"]

#: Changes that are shown to people; all are in JSON and in a pipe.
_SHOWN = 40


class RewriteView(View):
    """The result of ``cp``, ``repartition``, ``edit`` and the like.

    In a pipe: a line ``shard PATH BYTES VARIABLES`` for each data file, and in a dry run
    one ``change VARIABLE WHAT WHY`` for each change before them.
    """

    #: What the variables of its changes are.
    changed: ClassVar[str] = "changed"

    def __init__(self, command: str, result: RewriteResult) -> None:
        self.command = command  # type: ignore[misc]  # one view for several commands
        self._result = result

    @property
    def destination(self) -> str:
        """The prefix that was written."""
        return self._result.destination

    @property
    def notes(self) -> Sequence[str]:
        """How the source's address was understood."""
        return self._result.notes

    @property
    def inputs(self) -> Sequence[Input]:
        """The files that were read, for a saved plan."""
        return self._result.inputs

    @property
    def warnings(self) -> Sequence[str]:
        return self._result.warnings

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "source": result.source,
            "destination": result.destination,
            "shards": [
                {"path": shard.path, "bytes": shard.nbytes, "variables": shard.variables}
                for shard in result.shards
            ],
            "bytes": result.nbytes,
            "variables": result.variables,
            "changes": [
                {"variable": change.variable, "what": change.what, "reason": change.reason}
                for change in result.changes
            ],
            "applied": result.applied,
        }

    def plain(self) -> Iterator[str]:
        result = self._result
        if not result.applied:
            yield from tab_lines(
                ("change", one.variable, one.what, one.reason) for one in result.changes
            )
        yield from tab_lines(
            ("shard", shard.path, str(shard.nbytes), str(shard.variables))
            for shard in result.shards
        )

    def human(self, screen: Screen) -> Iterator[object]:
        result = self._result
        changes = result.changes
        if changes and not result.applied:
            reasons = {one.reason for one in changes}
            rows: list[tuple[str, ...]] = [
                (one.variable, one.what, one.reason) for one in changes[:_SHOWN]
            ]
            columns = [
                Column("variable"),
                Column("change", prose=True),
                Column("why", style="dim", prose=True),
            ]
            if len(reasons) == 1:  # said once, not on every line
                columns, rows = columns[:2], [row[:2] for row in rows]
            yield from screen.table(columns, rows)
            if len(changes) > _SHOWN:
                yield f"… and {len(changes) - _SHOWN} more: all with --json\n"
            if len(reasons) == 1 and reasons != {""}:
                yield screen.text(screen.style(f"why: {escape(reasons.pop())}", "dim"))
            yield "\n"
        columns = [
            Column("data file"),
            Column("bytes", align="right"),
            Column("entries", align="right", drop=1),
        ]
        yield from screen.table(
            columns,
            (
                (shard.path, bytes_text(shard.nbytes), f"{shard.variables:,}")
                for shard in result.shards
            ),
        )
        done, would = ("moved to", "move to") if self.command == "mv" else ("wrote", "write")
        if not result.applied:
            done = f"would {would}"
        said = (
            f"{done} {escape(result.destination)}: {result.variables:,} "
            f"{plural(result.variables, 'variable')}, "
            f"{bytes_text(result.nbytes)}"
        )
        if changes:
            said += f", {len(changes):,} {self.changed}"
        yield "\n" + screen.text(screen.style(said, "bold"))
        if not result.applied:
            yield "nothing was written (--dry-run)\n"
