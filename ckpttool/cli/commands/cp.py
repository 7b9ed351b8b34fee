"""``ckpttool cp``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.rewriting import Rewriting, link_option, rewriting
from ckpttool.ops.copy import copy_checkpoint

__all__ = ["command"]


@options.command(
    "cp",
    examples=["ckpttool cp run/@latest backup/", "ckpttool cp broken/model out/model --salvage"],
)
@options.source
@options.destination
@click.option(
    "--salvage",
    is_flag=True,
    help="Copy every variable that is intact, list the rest, and end with 3 where there is any.",
)
@link_option
@rewriting
@options.output(notes=True)
def command(out: Output, source: str, destination: str, salvage: bool, how: Rewriting) -> int:
    """Copy a whole checkpoint: every data file and the graph, the index last.

    DST is a prefix, a directory, or a SavedModel whose variables are replaced. The copy
    appears whole or not at all.
    """
    if not salvage:
        return how.run(out, "cp", lambda given: copy_checkpoint(source, destination, given))

    from ckpttool.cli.views.salvage import SalvageView
    from ckpttool.ops.salvage import salvage as copy_intact

    return how.show(out, lambda given: SalvageView(copy_intact(source, destination, given)))
