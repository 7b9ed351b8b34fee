"""``ckpttool mv``."""

from __future__ import annotations

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.rewriting import Rewriting, rewriting
from ckpttool.ops.copy import move_checkpoint

__all__ = ["command"]


@options.command("mv", examples=["ckpttool mv run/@1000 run/best"])
@options.source
@options.destination
@rewriting
@options.output(notes=True)
def command(out: Output, source: str, destination: str, how: Rewriting) -> int:
    """Move or rename a whole checkpoint: every data file and the graph.

    The source stays as it is until the destination is complete. A state file that lists the
    old name is not changed: see ckpttool state.
    """
    return how.run(out, "mv", lambda given: move_checkpoint(source, destination, given))
