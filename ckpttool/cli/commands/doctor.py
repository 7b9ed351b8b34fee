"""``ckpttool doctor``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.doctor import DoctorView, Terminal
from ckpttool.ops.doctor import doctor

__all__ = ["command"]


@options.command("doctor", examples=["ckpttool doctor", "ckpttool doctor /mnt/checkpoints"])
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path())
@options.output()
def command(out: Output, directory: str | None) -> int:
    """Show versions, what is installed, and what works here.

    It tries whether files can be written whole in DIR (default: the directory of temporary
    files), with a small file that is removed again. Ends with 1 when a check fails. Paste
    its output into a bug report.
    """
    screen = out.screen
    terminal = Terminal(out.stdout_is_terminal, screen.width, screen.color, out.encoding)
    return out.show(DoctorView(doctor(directory), terminal))
