"""``ckpttool state``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.state import StateView
from ckpttool.errors import UsageError
from ckpttool.ops.state import state

__all__ = ["command"]


@options.command(
    "state",
    examples=[
        "ckpttool state run/",
        "ckpttool state moved_run/ --fix",
        "ckpttool state run/ --set-latest ckpt-7",
    ],
    epilog="With --check the exit code is 1 if it has problems.",
)
@options.directory
@click.option("--check", is_flag=True, help="Exit code 1 if something in it is not so.")
@click.option(
    "--fix",
    is_flag=True,
    help="Make it say what is there: names for paths of another place, nothing that is gone, a "
    "whole checkpoint as the latest. Rebuild it where it is missing or unreadable.",
)
@click.option(
    "--set-latest",
    metavar="PREFIX",
    help="Call this checkpoint the latest.",
    shell_complete=options.complete_addresses,
)
@options.min_age
@options.dry_run
@options.yes
@options.output(quiet=True)
def command(
    out: Output,
    directory: str,
    check: bool,
    fix: bool,
    set_latest: str | None,
    min_age: float,
    dry_run: bool,
    yes: bool,
) -> int:
    """Show the state file of a run, and what is wrong with it.

    Its list, oldest first, with where each path leads today; the checkpoints beside it that
    it does not name; and its problems. In a pipe: a line for each path, with its time,
    whether it exists, and whether it is the latest. -q prints the paths alone.
    """
    if not fix and set_latest is None:
        return out.show(StateView(state(directory), check=check))
    if check or (fix and set_latest is not None):
        raise UsageError(
            "--check, --fix and --set-latest exclude each other",
            why="each is another thing to do",
            hint="ckpttool state --help",
        )
    from ckpttool.cli.views.state_fix import StateFixView
    from ckpttool.ops.state_fix import apply_fix, plan_fix

    planned = plan_fix(directory, set_latest=set_latest, min_age=min_age)
    if dry_run or not planned.changes:
        return out.show(StateFixView(planned))
    if not yes:
        if out.mode == "human":
            out.show(StateFixView(planned))
        out.confirm(f"Rewrite {planned.path}?")
    return out.show(StateFixView(apply_fix(planned, min_age=min_age), applied=True))
