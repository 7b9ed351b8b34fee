"""``ckpttool state``."""

from __future__ import annotations

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.state import StateView
from ckpttool.ops.state import state

__all__ = ["command"]


@options.command("state", epilog="Example: ckpttool state run/ --json")
@options.directory
@options.output(quiet=True)
def command(out: Output, directory: str) -> int:
    """Show the state file of a run, and what is wrong with it.

    Its list, oldest first, with where each path leads today; the checkpoints beside it that
    it does not name; and its problems. In a pipe: a line for each path, with its time,
    whether it exists, and whether it is the latest. -q prints the paths alone.
    """
    return out.show(StateView(state(directory)))
