"""``ckpttool serve-ps status``."""

from __future__ import annotations

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.serve_ps import StatusView
from ckpttool.ops.serve_ps.status import status

__all__ = ["command"]


@options.command(
    "status",
    examples=["ckpttool serve-ps status ps-run", "ckpttool serve-ps status ps-run --json"],
    epilog="Exit codes: 1 no cluster runs there any more; 10 none was ever started there.",
)
@options.directory
@options.output()
def command(out: Output, directory: str) -> int:
    """Say what runs in a run directory.

    Tasks, the gateway's address, the step, snapshots and exports; for a cluster without
    --train also the TF_CONFIG that your own coordinator needs.
    """
    return out.show(StatusView(status(directory)))
