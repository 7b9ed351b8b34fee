"""``ckpttool serve-ps``: the group of its subcommands, each imported when it is run."""

from __future__ import annotations

from importlib import import_module
from typing import cast

import click

from ckpttool.cli import options

__all__ = ["SUBCOMMANDS", "command"]

#: Name → the one line of ``--help``; ``x`` is ``command`` in ``cli/commands/ps/x.py``.
SUBCOMMANDS = {
    "up": "Start a cluster on this machine and keep it until Ctrl-C.",
    "task": "Run one task of a cluster of many machines.",
    "attach": "Attach to a TensorFlow 1 cluster that trains already.",
    "status": "Say what runs in a run directory.",
    "down": "End the cluster of a run directory.",
}


class Group(options.Options, click.Group):
    """Subcommands come from the table, modules only when one is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in SUBCOMMANDS:
            return None
        module = import_module(f"ckpttool.cli.commands.ps.{cmd_name}")
        return cast(click.Command, module.command)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, SUBCOMMANDS))
        with formatter.section("Commands"):
            formatter.write_dl([(f"{name:<{width}}", line) for name, line in SUBCOMMANDS.items()])
        super().format_options(ctx, formatter)


@click.command(
    "serve-ps",
    cls=Group,
    context_settings=options.CONTEXT,
    epilog="ckpttool serve-ps COMMAND --help says more about one.",
)
@options.common
def command() -> int:
    """Train on a parameter-server cluster and export from it while it trains.

    A cluster lives in a run directory, which has its state, logs, snapshots and exports.
    """
    return 0


command.examples = (
    "ckpttool serve-ps up --ps 2 --workers 2 --train train.py:train",
    "ckpttool serve-ps status ps-run",
)
