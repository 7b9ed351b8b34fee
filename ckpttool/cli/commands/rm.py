"""``ckpttool rm``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.screen import bytes_text
from ckpttool.cli.views.rm import RmView
from ckpttool.ops.rm import plan_rm, rm
from ckpttool.policy.words import count

__all__ = ["command"]


@options.command(
    "rm",
    examples=["ckpttool rm run/model.ckpt-1000", "ckpttool rm run/@500 run/@600 -y --trash"],
    epilog="ckpttool prune RUN --undo takes back what went to the trash.",
)
@options.sources
@click.option("--trash", is_flag=True, help="With -y: move into the trash instead of deleting.")
@options.min_age
@options.dry_run
@options.yes
@options.progress
@options.output(quiet=True)
def command(
    out: Output, sources: tuple[str, ...], trash: bool, min_age: float, dry_run: bool, yes: bool
) -> int:
    """Remove checkpoints by name, each as a whole, and keep the state file right.

    All files of a checkpoint go, its graph too, the index first. When the latest goes, the
    state file names the newest whole one that is left, or goes itself. On a terminal it asks,
    and what goes moves into the trash.
    """
    plan = plan_rm(sources, min_age=min_age)
    if dry_run:
        return out.show(RmView(plan))
    if not yes:
        if out.mode == "human":
            out.show(RmView(plan))
        what = f"{count(plan.count, 'checkpoint')} ({bytes_text(plan.nbytes)})"
        out.confirm(f"Move {what} into the trash?")
        trash = True
    with out.progress("rm") as report:
        done = rm(plan, trash=trash, progress=report)
    return out.show(RmView(done, applied=True))
