"""``ckpttool latest``."""

from __future__ import annotations

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.latest import LatestView
from ckpttool.ops.latest import latest

__all__ = ["command"]


@options.command(
    "latest",
    examples=["ckpttool latest run/", 'python eval.py --ckpt "$(ckpttool latest run/)"'],
    epilog="Exit codes: 10 there is none, 42 there may be one that is not readable.",
)
@options.directory
@options.output(quiet=True)
def command(out: Output, directory: str) -> int:
    """Print the newest whole checkpoint of a run.

    What the state file calls latest, if its index can be read and every data file is there
    and long enough; else the newest whole one by the state file's list, by the number in
    the name, by time, with a warning that says why. No data is read: see verify.
    """
    return out.show(LatestView(latest(directory), raw=not out.stdout_is_terminal))
