"""What every command that writes a checkpoint has in common on the command line."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, NamedTuple, TypeVar, cast

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.rewrite import RewriteView
from ckpttool.errors import UsageError
from ckpttool.limits import default_limits
from ckpttool.ops.rewrite.plan_file import (
    SavedPlan,
    load_plan,
    require_directory,
    require_kept,
    require_unchanged,
    save_plan,
)
from ckpttool.ops.rewrite.run import Options, RewriteResult

__all__ = ["Rewriting", "destination_option", "link_option", "rewriting"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Where the plan that is being carried out lies in click's context.
_APPLIED = "ckpttool.plan"
#: What of a command's own may stand beside ``--apply``.
_BESIDE_APPLY = {"dry_run", "yes"}


class _Applied(NamedTuple):
    """A plan that is being carried out; ``dry_run`` is what was said this time."""

    plan: SavedPlan
    dry_run: bool


class Rewriting(NamedTuple):
    """How a command was asked to write."""

    dry_run: bool
    overwrite: bool
    yes: bool
    check: bool
    verify: bool
    link: bool
    jobs: int | None
    plan_file: str | None

    def run(self, out: Output, command: str, work: Callable[[Options], RewriteResult]) -> int:
        """Do the work, and show what it came to."""
        return self.show(out, lambda given: RewriteView(command, work(given)))

    def show(self, out: Output, work: Callable[[Options], RewriteView]) -> int:
        """Do the work, ask where something would be replaced, show its view.

        With ``--plan`` nothing is done and the plan is saved; with ``--apply`` it is first
        made sure that everything is as it was.
        """
        context = click.get_current_context()
        applied: _Applied | None = context.meta.get(_APPLIED)
        dry_run = self.dry_run
        if applied is not None:
            require_kept(applied.plan.inputs)
            now = work(self._options(dry_run=True))
            require_unchanged(applied.plan, now.data(), now.inputs)
            dry_run = applied.dry_run
        if self.plan_file is not None:
            view = work(self._options(dry_run=True))
            arguments = _without_plan(options.arguments(context))
            command = context.command.name or ""
            plan = SavedPlan(command, arguments, os.getcwd(), tuple(view.inputs), view.data())
            save_plan(self.plan_file, plan, overwrite=False)
            return out.show(view)
        asks = not (self.yes or applied)
        with out.progress("writing") as progress:
            view = work(
                self._options(
                    dry_run=dry_run,
                    confirm=(lambda place: out.confirm(f"replace {place}?")) if asks else None,
                    progress=progress,
                )
            )
        for note in view.notes:
            out.note(note)
        if self.verify and not dry_run:
            out.note(f"{view.destination} was read back: every checksum fits")
        return out.show(view)

    def _options(
        self,
        *,
        dry_run: bool,
        confirm: Callable[[str], None] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Options:
        return Options(
            dry_run=dry_run,
            overwrite=self.overwrite,
            check=self.check,
            link=self.link,
            jobs=self.jobs or 1,
            verify=self.verify,
            confirm=confirm,
            progress=progress,
            limits=default_limits(),
        )


def destination_option(function: _F) -> _F:
    """``-o DST`` for commands with several sources, as ``destination``."""
    return click.option(
        "-o",
        "--output",
        "destination",
        metavar="DST",
        required=True,
        help="What to write.",
        shell_complete=options.complete_addresses,
    )(function)


def link_option(function: _F) -> _F:
    """``--link``, for commands that may leave whole data files as they are."""
    return click.option(
        "--link",
        is_flag=True,
        help="Hard-link data files that stay as they are. Both checkpoints then share them: "
        "never write into one.",
    )(function)


def rewriting(function: _F) -> _F:
    """The options of a command that writes a checkpoint, as the argument ``how``."""

    def call(*args: object, **given: Any) -> int:  # noqa: ANN401
        names = ("dry_run", "overwrite", "yes", "check", "verify", "jobs", "plan_file")
        chosen = {name: given.pop(name) for name in names}
        how = Rewriting(**chosen, link=given.pop("link", False))
        return cast(int, function(*args, how=how, **given))

    wrapped: Any = update_wrapper(call, function)
    for option in (
        options.progress,
        options.jobs,
        click.option(
            "--apply",
            type=click.Path(),
            metavar="FILE",
            expose_value=False,
            callback=_apply,
            help="Carry out a saved plan, if everything is still as it says.",
        ),
        click.option(
            "--plan",
            "plan_file",
            type=click.Path(),
            metavar="FILE",
            help="Save the plan, and do nothing else.",
        ),
        options.yes,
        options.dry_run,
        options.overwrite,
        click.option("--verify", is_flag=True, help="Read the result back and check all of it."),
        click.option(
            "--verify-source",
            "check",
            is_flag=True,
            help="Compare all that is read with its checksums on the way.",
        ),
    ):
        wrapped = option(wrapped)
    return cast(_F, wrapped)


def _apply(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Run the command line of a saved plan in the place of this one."""
    del param
    if value is None or ctx.resilient_parsing:
        return
    given = _given(ctx)
    other = [one for one in given if one.expose_value and one.name not in _BESIDE_APPLY]
    if other:
        said = ", ".join(max(one.opts, key=len) for one in other)
        raise UsageError(
            f"--apply carries out a plan as it was saved: nothing can be added to it ({said})",
            why="it says itself what is read, what is done with it and where it is written",
            hint="make another plan; -n shows what is left to do of this one",
        )
    plan = load_plan(value, ctx.command.name or "")
    require_directory(plan.directory)
    ctx.meta[_APPLIED] = _Applied(plan, any(one.name == "dry_run" for one in given))
    name = ctx.info_name or ""
    with ctx.command.make_context(name, list(plan.arguments), parent=ctx.parent) as inner:
        ctx.exit(int(ctx.command.invoke(inner)))


def _given(ctx: click.Context) -> list[click.Parameter]:
    """The options and arguments that the command line has, whether looked at yet or not."""
    values, _, order = ctx.command.make_parser(ctx).parse_args(options.arguments(ctx))
    return [
        one
        for one in order  # every argument is in it
        if isinstance(one, click.Option) or _is_given(values.get(one.name or ""))
    ]


def _is_given(argument: object) -> bool:
    """Whether an argument is there: of one that is not, releases of click keep different things."""
    return isinstance(argument, str) or (isinstance(argument, tuple) and argument != ())


def _without_plan(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line as it is carried out later: what only makes or shows the plan is gone."""
    kept: list[str] = []
    waiting = deque(arguments)
    while waiting:
        argument = waiting.popleft()
        if argument == "--":
            return (*kept, argument, *waiting)
        if argument == "--plan":
            waiting.popleft()
        elif argument != "--json" and not argument.startswith("--plan="):
            kept.append(argument)
    return tuple(kept)
