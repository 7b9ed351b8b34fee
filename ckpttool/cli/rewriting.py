"""What every command that writes a checkpoint has in common on the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, TypeVar, cast

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.rewrite import RewriteView
from ckpttool.limits import default_limits
from ckpttool.ops.rewrite.run import Options, RewriteResult
from ckpttool.storage import stat_path

__all__ = ["Rewriting", "destination_option", "rewriting"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How a command was asked to write."""

    dry_run: bool
    overwrite: bool
    yes: bool
    check: bool
    verify: bool

    def run(
        self, out: Output, command: str, destination: str, work: Callable[[Options], RewriteResult]
    ) -> int:
        """Do the work, and show what it came to."""
        return self.show(out, destination, lambda given: RewriteView(command, work(given)))

    def show(self, out: Output, destination: str, work: Callable[[Options], RewriteView]) -> int:
        """Ask where something would be replaced, do the work, show its view."""
        replaces = self.overwrite and stat_path(f"{destination}.index") is not None
        if replaces and not self.dry_run and not self.yes:
            out.confirm(f"replace {destination}?")
        with out.progress("writing") as progress:
            view = work(
                Options(
                    dry_run=self.dry_run,
                    overwrite=self.overwrite,
                    check=self.check,
                    verify=self.verify,
                    progress=progress,
                    limits=default_limits(),
                )
            )
        for note in view.notes:
            out.note(note)
        return out.show(view)


def destination_option(function: _F) -> _F:
    """``-o DST`` for commands with several sources, as ``destination``."""
    return click.option(
        "-o", "--output", "destination", metavar="DST", required=True, help="What to write."
    )(function)


def rewriting(function: _F) -> _F:
    """The options of a command that writes a checkpoint, as the argument ``how``."""

    def call(*args: object, **given: Any) -> int:  # noqa: ANN401
        names = ("dry_run", "overwrite", "yes", "check", "verify")
        how = Rewriting(**{name: given.pop(name) for name in names})
        return cast(int, function(*args, how=how, **given))

    wrapped: Any = update_wrapper(call, function)
    for option in (
        options.progress,
        options.yes,
        options.dry_run,
        options.overwrite,
        click.option("--verify", is_flag=True, help="Read the result back and check all of it."),
        click.option(
            "--check", is_flag=True, help="Compare all that is read with its checksums on the way."
        ),
    ):
        wrapped = option(wrapped)
    return cast(_F, wrapped)
