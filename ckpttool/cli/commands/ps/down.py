"""``ckpttool serve-ps down``."""

from __future__ import annotations

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.serve_ps import DownView
from ckpttool.ops.serve_ps.status import down

__all__ = ["command"]


@options.command("down", examples=["ckpttool serve-ps down ps-run"])
@options.directory
@options.output()
def command(out: Output, directory: str) -> int:
    """End the cluster of a run directory.

    Returns when every process of it has ended. That none runs is no error.
    """
    return out.show(DownView(down(directory)))
