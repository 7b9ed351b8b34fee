"""What every command that writes a checkpoint has in common on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypeVar, cast

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.rewrite import RewriteView
from ckpttool.limits import default_limits
from ckpttool.ops.rewrite.plan_file import (
    SavedPlan,
    load_plan,
    require_directory,
    require_unchanged,
    save_plan,
)
from ckpttool.ops.rewrite.run import Options, RewriteResult
from ckpttool.storage import stat_path

__all__ = ["Rewriting", "destination_option", "link_option", "rewriting"]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Where the plan that is being carried out lies in click's context.
_PLAN = "ckpttool.plan"


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How a command was asked to write."""

    dry_run: bool
    overwrite: bool
    yes: bool
    check: bool
    verify: bool
    link: bool
    jobs: int | None
    plan_file: str | None

    def run(
        self, out: Output, command: str, destination: str, work: Callable[[Options], RewriteResult]
    ) -> int:
        """Do the work, and show what it came to."""
        return self.show(out, destination, lambda given: RewriteView(command, work(given)))

    def show(self, out: Output, destination: str, work: Callable[[Options], RewriteView]) -> int:
        """Ask where something would be replaced, do the work, show its view.

        With ``--plan`` nothing is done and the plan is saved; with ``--apply`` it is first
        made sure that everything is as it was.
        """
        context = click.get_current_context()
        saved: SavedPlan | None = context.meta.get(_PLAN)
        if saved is not None:
            now = work(self._options(dry_run=True))
            require_unchanged(saved, now.data(), now.inputs)
        if self.plan_file is not None:
            view = work(self._options(dry_run=True))
            arguments = _without_plan(options.arguments(context))
            command = context.command.name or ""
            plan = SavedPlan(command, arguments, os.getcwd(), tuple(view.inputs), view.data())
            save_plan(self.plan_file, plan, overwrite=False)
            return out.show(view)
        replaces = self.overwrite and stat_path(f"{destination}.index") is not None
        if replaces and not self.dry_run and not self.yes and saved is None:
            out.confirm(f"replace {destination}?")
        with out.progress("writing") as progress:
            view = work(self._options(dry_run=self.dry_run, progress=progress))
        for note in view.notes:
            out.note(note)
        if self.verify and not self.dry_run:
            out.note(f"{destination} was read back: every checksum fits")
        return out.show(view)

    def _options(
        self, *, dry_run: bool, progress: Callable[[int, int], None] | None = None
    ) -> Options:
        return Options(
            dry_run=dry_run,
            overwrite=self.overwrite,
            check=self.check,
            link=self.link,
            jobs=self.jobs or 1,
            verify=self.verify,
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
    plan = load_plan(value, ctx.command.name or "")
    require_directory(plan.directory)
    ctx.meta[_PLAN] = plan
    name = ctx.info_name or ""
    with ctx.command.make_context(name, list(plan.arguments), parent=ctx.parent) as inner:
        ctx.exit(int(ctx.command.invoke(inner)))


def _without_plan(arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line as it is carried out later: what only makes or shows the plan is gone."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip or argument in _ONLY_NOW or argument.startswith("--plan="):
            skip = False
        elif argument == "--plan":
            skip = True
        else:
            kept.append(argument)
    return tuple(kept)


_ONLY_NOW = {"-n", "--dry-run", "--json"}
