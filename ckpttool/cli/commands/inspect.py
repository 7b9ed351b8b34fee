"""``ckpttool inspect``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.inspect import InspectView
from ckpttool.errors import UsageError
from ckpttool.ops.inspect import inspect

__all__ = ["command"]


@options.command(
    "inspect",
    examples=[
        "ckpttool inspect run/",
        "ckpttool inspect run/@1000 --tree --depth 2",
        "ckpttool inspect run/model.ckpt-1000.meta --graph",
        "ckpttool inspect run/ --html report.html",
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
@click.option(
    "--graph",
    is_flag=True,
    help="What is in its graph: ops, placeholders, likely inputs and outputs, signs of training.",
)
@click.option(
    "--html",
    type=click.Path(),
    metavar="FILE",
    help="Write it as a page for a browser, with every variable's figures and histogram; the "
    "values are read for that.",
)
@options.overwrite
@options.progress
@options.output(notes=True)
def command(
    out: Output,
    source: str,
    tree: bool,
    depth: int | None,
    graph: bool,
    html: str | None,
    overwrite: bool,
) -> int:
    """Say what a checkpoint or a run is, and what is in it.

    Its style, step, totals by kind and dtype, data files, partitioned and largest variables,
    and what is wrong at a glance; of a run directory first its checkpoints and what saves
    left behind. In a pipe: tab-separated lines that begin with what they are, such as
    "shard" or "problem". A checkpoint with missing data files is no error here: see verify.

    The page of --html needs nothing from elsewhere, and works where scripts are forbidden.
    """
    tree = tree or depth is not None
    _require_sense(tree=tree, graph=graph, html=html, overwrite=overwrite)
    if html is None:
        with out.progress("inspect", "checkpoints") as report:
            result = inspect(source, tree=tree, depth=depth, graph=graph, progress=report)
        view = InspectView(result)
    else:
        from ckpttool.cli.html.save import save_report
        from ckpttool.cli.views.inspect_report import ReportView

        with out.progress("reading") as report:
            saved = save_report(source, html, overwrite=overwrite, progress=report)
        result, view = saved.inspected, ReportView(saved)
    for note in result.notes:
        out.note(note)
    code = out.show(view)
    if result.unreadable is not None:
        raise result.unreadable
    return code


def _require_sense(*, tree: bool, graph: bool, html: str | None, overwrite: bool) -> None:
    """Refuse options that would do nothing."""
    if html is not None and (tree or graph):
        raise UsageError(
            f"--html and {'--tree' if tree else '--graph'} exclude each other",
            why="the page has the scopes as a map, and says nothing else here",
            hint="leave out --tree, --depth and --graph",
        )
    if html is None and overwrite:
        raise UsageError(
            "--overwrite is for --html",
            why="nothing is written without it",
            hint="add --html FILE",
        )
