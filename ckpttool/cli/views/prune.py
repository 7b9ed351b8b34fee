"""How ``prune`` looks: what goes, what stays and why, and how to take it back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text, tab_lines
from ckpttool.cli.view import View
from ckpttool.cli.words import when
from ckpttool.ops.prune.execute import PruneResult
from ckpttool.ops.prune.plan import PrunePlan
from ckpttool.policy.facts import Decision, Retention
from ckpttool.policy.words import count, duration
from ckpttool.sources.filenames import join

__all__ = ["PruneView", "policy_data", "prune_data"]

#: Rows of checkpoints that go, and lines of what is left alone, on a terminal; the other
#: forms have all.
_SHOWN = 40
_EDGE = 10
#: Columns from which on there is room to say what would have kept each one that goes.
_WIDE = 100
_ORDERS = {
    "state": "the list in the state file",
    "name": "the number in the name",
    "step": "the step inside",
    "time": "the time of saving",
}


class PruneView(View):
    """A plan, or what came of it. With ``check``, exit code 1 says that something may go."""

    command = "prune"
    record_type = "checkpoint"

    def __init__(
        self, plan: PrunePlan, result: PruneResult | None = None, *, check: bool = False
    ) -> None:
        self._plan = plan
        self._result = result
        self._check = check

    @property
    def exit_code(self) -> int:
        if self._result is not None:
            return self._result.carried.exit_code
        return 1 if self._check and not self._plan.empty else 0

    @property
    def warnings(self) -> Sequence[str]:
        return [*self._plan.warnings, *(self._result.warnings if self._result else ())]

    def data(self) -> Mapping[str, object]:
        return prune_data(self._plan, self._result)

    def records(self) -> Iterator[Mapping[str, object]]:
        gone = set(self._gone)
        for decision in self._plan.outcome.decisions:
            verdict = decision.verdict
            if verdict == "delete" and decision.checkpoint.prefix not in gone:
                verdict = "leave"  # it changed, or the system did not let it go
            yield {"action": verdict, **_entry(decision)}

    def summary(self) -> Mapping[str, object]:
        data = prune_data(self._plan, self._result)
        del data["keep"], data["delete"]
        return data

    def names(self) -> Iterator[str]:
        return tab_lines((join(self._plan.directory, prefix),) for prefix in self._gone)

    def plain(self) -> Iterator[str]:
        yield from tab_lines(
            (
                decision.verdict,
                decision.checkpoint.prefix,
                _step(decision),
                f"{decision.checkpoint.time:.6f}",
                str(decision.checkpoint.nbytes),
                _why(decision),
            )
            for decision in self._plan.outcome.decisions
        )
        yield from tab_lines(
            ("delete", one.prefix, "", "", str(one.nbytes), "a leftover of an interrupted save")
            for one in self._plan.leftovers
        )

    def human(self, screen: Screen) -> Iterator[object]:
        plan = self._plan
        yield screen.text(
            f"{screen.style(escape(plan.directory), 'bold')}: "
            f"{_settings(plan.request.retention)}; order by {_ORDERS[plan.outcome.order]}"
        )
        if self._result is None:
            yield from self._table(screen)
        yield from self._left_alone(screen)
        if plan.unfinished:
            what = count(plan.unfinished, "checkpoint")
            yield f"An interrupted removal of {what} will be looked at first.\n"
        yield self._verdict_line(screen)
        if plan.state is not None and self._result is None:
            listed = plan.state.state.all_model_checkpoint_paths if plan.state.state else ()
            yield f"The state file will list {count(len(listed), 'checkpoint')}.\n"
        if self._result is not None:
            yield from self._done(screen, self._result)

    def _table(self, screen: Screen) -> Iterator[object]:
        columns = [
            Column(""),
            Column("checkpoint", style="cyan"),
            Column("step", "right", drop=3),
            Column("saved", drop=1),
            Column("size", "right", drop=2),
            Column("why", prose=True),
        ]
        if screen.width >= _WIDE and any(decision.unless for decision in self._plan.delete):
            columns.append(Column("stays with", style="dim", prose=True))
        rows = [*self._rows(self._plan.delete), *self._rows(self._plan.keep)]
        rows += [
            (
                "delete",
                one.prefix,
                "",
                "",
                bytes_text(one.nbytes),
                "an interrupted save left it",
                "",
            )
            for one in self._plan.leftovers[:_SHOWN]
        ]
        if rows:
            yield from screen.table(columns, [row[: len(columns)] for row in rows])

    def _rows(self, decisions: list[Decision]) -> list[tuple[str, ...]]:
        shown = decisions
        if len(decisions) > _SHOWN:
            shown = decisions[:_EDGE] + decisions[-_EDGE:]
        rows: list[tuple[str, ...]] = [
            (
                decision.verdict,
                decision.checkpoint.prefix,
                _step(decision),
                when(decision.checkpoint.time),
                bytes_text(decision.checkpoint.nbytes),
                _brief(decision),
                decision.unless,
            )
            for decision in shown
        ]
        if len(shown) < len(decisions):
            more = f"... {len(decisions) - len(shown)} more ..."
            rows.insert(_EDGE, (decisions[0].verdict, more, "", "", "", "(all with --json)", ""))
        return rows

    def _left_alone(self, screen: Screen) -> Iterator[str]:
        # What the state file does not list is counted in a warning.
        unlisted = {
            decision.checkpoint.prefix
            for decision in self._plan.outcome.of("leave")
            if decision.reasons[0].rule == "unlisted"
        }
        left = [(path, why) for path, why in self._plan.left_alone if path not in unlisted]
        for path, why in left[:_SHOWN]:
            label = screen.style("left alone", "dim")
            yield screen.text(f"{label}  {escape(path)}: {escape(why)}", hang=12)
        if len(left) > _SHOWN:
            yield f"left alone: {len(left) - _SHOWN} more (all with --json)\n"

    def _verdict_line(self, screen: Screen) -> str:
        plan = self._plan
        stay = count(len(plan.keep), "checkpoint")
        stays = f"{stay} ({bytes_text(sum(d.checkpoint.nbytes for d in plan.keep))}) " + (
            "stays" if len(plan.keep) == 1 else "stay"
        )
        if self._result is not None:
            return f"{stays}.\n"
        if not plan.removals:
            return screen.style("Nothing goes", "green") + f"; {stays}.\n"
        checkpoints, others = len(plan.delete), len(self._plan.leftovers)
        goes = count(checkpoints, "checkpoint") if checkpoints else ""
        if others:
            goes += (" and " if goes else "") + count(others, "leftover")
        total = bytes_text(plan.nbytes)
        verb = "goes" if checkpoints + others == 1 else "go"
        return screen.style(f"{goes} ({total}) {verb}", "bold yellow") + f", {stays}.\n"

    def _done(self, screen: Screen, result: PruneResult) -> Iterator[str]:
        removed = result.carried.removed
        what = f"{len(removed.prefixes)} ({bytes_text(removed.freed or removed.trashed)})"
        if result.carried.undo:
            yield screen.style(f"Moved {what} into the trash.", "bold green") + "\n"
            where = shlex.quote(self._plan.directory)
            yield f"Take it back: ckpttool prune {escape(where)} --undo\n"
            yield f"Free the space: ckpttool prune {escape(where)} --empty-trash\n"
        elif removed.prefixes:
            yield screen.style(f"Deleted {what}.", "bold green") + "\n"
        if result.finished:
            yield f"Finished an interrupted removal: {escape(', '.join(result.finished))}\n"
        if result.carried.state == "rewritten":
            yield "The state file was rewritten.\n"

    @property
    def _gone(self) -> list[str]:
        """The names of what goes, or went."""
        if self._result is not None:
            return self._result.carried.removed.prefixes
        return [removal.prefix for removal in self._plan.removals]


def prune_data(plan: PrunePlan, result: PruneResult | None) -> dict[str, object]:
    """A plan, or what came of it, as ``--json`` has it."""
    carried = result.carried if result else None
    removed = carried.removed if carried else None
    went = set(removed.prefixes) if removed else None
    deleted = [d for d in plan.delete if went is None or d.checkpoint.prefix in went]
    left = [{"path": path, "why": why} for path, why in plan.left_alone]
    if removed is not None:
        left += [{"path": prefix, "why": why} for prefix, why in removed.skipped]
        left += [{"path": prefix, "why": str(error)} for prefix, error in removed.failed]
    undo = f"ckpttool prune {shlex.quote(plan.directory)} --undo"
    return {
        "directory": plan.directory,
        "policy": policy_data(plan.request.retention),
        "order": plan.outcome.order,
        "keep": [_entry(decision) for decision in plan.keep],
        "delete": [_entry(decision) for decision in deleted],
        "leftovers": [
            {"path": one.prefix, "bytes": one.nbytes}
            for one in plan.leftovers
            if went is None or one.prefix in went
        ],
        "left_alone": left,
        "freed_bytes": plan.nbytes if removed is None else removed.freed,
        "trashed_bytes": removed.trashed if removed else 0,
        "applied": result is not None,
        "undo": undo if carried and carried.undo else None,
        "state": ("rewritten" if plan.state else "unchanged") if carried is None else carried.state,
        "finished": result.finished if result else [],
    }


def policy_data(retention: Retention) -> dict[str, object]:
    """The settings that were given, under the names of their options."""
    data: dict[str, object] = {"policy": retention.style, "scope": retention.scope}
    options: dict[str, object] = {
        "max_to_keep": retention.max_to_keep,
        "keep_every_n_hours": retention.every_n_hours,
        "since": retention.since,
        "keep_every_n_steps": retention.every_n_steps,
        "keep_within": retention.within,
        "max_total_size": retention.max_total_bytes,
        "order": retention.order,
    }
    data |= {name: value for name, value in options.items() if value is not None}
    return data | {"broken": retention.broken, "min_age": retention.min_age}


def _entry(decision: Decision) -> dict[str, object]:
    item = decision.checkpoint
    entry: dict[str, object] = {
        "prefix": item.prefix,
        "step": item.position,
        "time": item.time,
        "bytes": item.nbytes,
        "reasons": [{"rule": reason.rule, "text": reason.text} for reason in decision.reasons],
    }
    if decision.verdict == "delete":
        entry["unless"] = decision.unless or None
    return entry


def _brief(decision: Decision) -> str:
    """The reasons without those that go without saying once there is a stronger one."""
    reasons = decision.reasons
    if reasons[0].rule == "newest":
        reasons = tuple(one for one in reasons if one.rule not in {"max-to-keep", "named"})
    return "; ".join(reason.text for reason in reasons)


def _why(decision: Decision) -> str:
    why = "; ".join(reason.text for reason in decision.reasons)
    return f"{why} (stays with {decision.unless})" if decision.unless else why


def _settings(retention: Retention) -> str:
    """The policy as a person typed it."""
    words = [f"--policy {retention.style}", f"--scope {retention.scope}"]
    for option, value in (
        ("--max-to-keep", retention.max_to_keep),
        ("--keep-every-n-hours", retention.every_n_hours),
        ("--keep-every-n-steps", retention.every_n_steps),
    ):
        if value is not None:
            words.append(f"{option} {value:g}")
    if retention.within is not None:
        words.append(f"--keep-within {duration(retention.within)}")
    if retention.max_total_bytes is not None:
        words.append(f"--max-total-size {bytes_text(retention.max_total_bytes)}")
    return (
        " ".join(words)
        + (" --include-preserved" if retention.include_preserved else "")
        + (" --broken" if retention.broken else "")
    )


def _step(decision: Decision) -> str:
    position = decision.checkpoint.position
    return "" if position is None else str(position)
