"""``ckpttool completion``."""

from __future__ import annotations

import os

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output

__all__ = ["command"]

_SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "completions")


@options.command(
    "completion",
    examples=["source <(ckpttool completion bash)      # in ~/.bashrc"],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@options.plain_output
def command(out: Output, shell: str) -> int:
    """Print the completion script of a shell.

    It completes commands, options, directories, checkpoints by their prefix, the steps of
    a run after RUN/@, and after 'load SRC' the names of its variables.
    """
    with open(os.path.join(_SCRIPTS, f"ckpttool.{shell}"), encoding="utf-8") as file:
        out.write(file.read())
    return 0
