"""The table of commands, and the group that imports only the one that was asked for.

``--help`` and completion of command names read the table alone.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, cast

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["ALIASES", "COMMANDS", "dispatch", "root"]

#: Name → the one line of ``--help`` (the same as the first line of the command's own
#: help: a test holds it). The command ``x`` is ``command`` in ``cli/commands/x.py``.
COMMANDS = {
    "inspect": "Say what a checkpoint or a run is, and what is in it.",
    "list": "List the variables: name, dtype, shape, bytes, shard, kind.",
    "load": "Print or save the values of chosen variables.",
    "diff": "Compare two sources: every difference at once.",
    "stats": "Say what values variables have: extremes, mean, norm, zeros, NaN, Inf, histogram.",
    "verify": "Check structure and every checksum.",
    "state": "Show the state file of a run, and what is wrong with it.",
    "latest": "Print the newest whole checkpoint of a run.",
    "rm": "Remove checkpoints by name, each as a whole, and keep the state file right.",
    "prune": "Delete old checkpoints by a retention policy; every decision has a reason.",
    "cp": "Copy a whole checkpoint: every data file and the graph, the index last.",
    "mv": "Move or rename a whole checkpoint: every data file and the graph.",
    "repartition": "Write the same variables in other data files or other slices.",
    "edit": "Rename, drop, cast or re-key variables, into a new checkpoint.",
    "average": "Write the mean of several checkpoints of one model.",
    "merge": "Write the variables of several checkpoints as one.",
    "convert": "Convert a checkpoint with its graph into what is served, and prove the result.",
    "serve-ps": "Train on a parameter-server cluster and export from it while it trains.",
    "explain": "Explain an error id or an exit code.",
    "doctor": "Show versions, what is installed, and what works here.",
    "completion": "Print the completion script of a shell.",
}
ALIASES = {"ls": "list", "get": "load"}
#: The order and the headings of ``--help``.
SECTIONS = {
    "Look and check": ("inspect", "list", "load", "diff", "stats", "verify", "state", "latest"),
    "Keep and remove": ("rm", "prune"),
    "Write": ("cp", "mv", "repartition", "edit", "average", "merge"),
    "Convert": ("convert",),
    "Serve while training": ("serve-ps",),
    "Help": ("explain", "doctor", "completion"),
}


class Root(options.Options, click.Group):
    """The group: commands come from the table, modules only when one is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = import_module(f"ckpttool.cli.commands.{name.replace('-', '_')}")
        return cast(click.Command, module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            raise _no_such_command(name)
        return command.name if command else None, command, args[1:]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=line)
            for name, line in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        labels = {name: name for name in COMMANDS}
        labels |= {name: f"{name}, {alias}" for alias, name in ALIASES.items()}
        width = max(map(len, labels.values()))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{labels[name]:<{width}}", COMMANDS[name]) for name in names])
        super().format_options(ctx, formatter)


def _no_such_command(name: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1, cutoff=0.5)
    hint = f"did you mean: ckpttool {near[0]}" if near else "ckpttool --help"
    if name in {"help", "version"}:
        hint = f"did you mean: ckpttool --{name}"
    elif "/" in name or os.path.exists(name):
        import shlex

        hint = f"did you mean: ckpttool inspect {shlex.quote(name)}"
    return UsageError(
        f"there is no command '{name}'",
        why=f"the commands are {', '.join(COMMANDS)}",
        hint=hint,
        id="no-such-command",
    )


@click.command(
    "ckpttool",
    cls=Root,
    context_settings=options.CONTEXT,
    invoke_without_command=True,
    epilog="ckpttool COMMAND --help says more about one. SRC is a checkpoint's prefix or one of "
    "its files, a run directory, RUN/@STEP, RUN/@latest, or a SavedModel.",
)
@options.version
@options.common
@click.pass_context
def root(ctx: click.Context) -> int:
    """Look into, check and change TensorFlow checkpoints."""
    if ctx.invoked_subcommand is None:
        options.current_output(ctx).tell(ctx.get_help())
        return 2
    return 0


def dispatch(arguments: list[str], out: Output) -> int:
    """Parse a command line and run its command; returns the exit code.

    Raises:
        click.ClickException: the command line makes no sense.
        CkpttoolError, OSError, …: whatever the command does.
    """
    if shell := os.environ.get("_CKPTTOOL_COMPLETE"):
        from ckpttool.cli.complete import answer

        return answer(shell, arguments, out, root)
    try:
        with root.make_context("ckpttool", list(arguments), obj=out) as context:
            return int(root.invoke(context))
    except click.exceptions.Exit as ended:
        return ended.exit_code
