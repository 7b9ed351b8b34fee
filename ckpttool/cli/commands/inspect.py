"""``ckpttool inspect``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.inspect import InspectView
from ckpttool.ops.inspect import inspect

__all__ = ["command"]


@options.command(
    "inspect",
    examples=[
        "ckpttool inspect run/",
        "ckpttool inspect run/@1000 --tree --depth 2",
        "ckpttool inspect run/ --json",
    ],
)
@options.source
@click.option("--tree", is_flag=True, help="The variables by scope, with subtotals.")
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only so many levels of the tree; implies --tree.",
)
@options.progress
@options.output(notes=True)
def command(out: Output, source: str, tree: bool, depth: int | None) -> int:
    """Say what a checkpoint or a run is, and what is in it.

    Its style, step, totals by kind and dtype, data files, partitioned and largest variables,
    and what is wrong at a glance; of a run directory first its checkpoints and what saves
    left behind. In a pipe: tab-separated lines that begin with what they are, such as
    "shard" or "problem". A checkpoint with missing data files is no error here: see verify.
    """
    with out.progress("inspect", "checkpoints") as report:
        result = inspect(source, tree=tree or depth is not None, depth=depth, progress=report)
    for note in result.notes:
        out.note(note)
    code = out.show(InspectView(result))
    if result.unreadable is not None:
        raise result.unreadable
    return code
