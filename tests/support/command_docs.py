# ruff: noqa: E501 - a paragraph of Markdown is one line
"""Writes docs/commands.md from the commands' own ``--help``.

``python -m tests.support.command_docs`` writes it anew; a test compares it.
"""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.app import ALIASES, COMMANDS, root
from ckpttool.ops.explain import EXIT_CODES
from tests.support.command import ROOT

__all__ = ["PATH", "text"]

PATH = ROOT / "docs" / "commands.md"

_HEAD = """\
# Commands

What `ckpttool COMMAND --help` says, in one page. This file is written by `python -m tests.support.command_docs`, and a test compares it with the commands.

- Results go to standard output, everything else to standard error.
- On a terminal a result is laid out for people; in a pipe it is tab-separated lines. `--json` and `--ndjson` are described in [json.md](json.md).
- An error is three lines (what, why, what next) and ends with its id in brackets: `ckpttool explain ID` says more.
- An option means the same wherever it appears. `-v` and `--color` may also stand before the command.
- What a file may claim is bounded; `CKPTTOOL_LIMITS="key_bytes=8M,rank=300"` changes single limits, and `ckpttool doctor --json` lists them all.
"""


def _help(command: click.Command, name: str, parent: click.Context | None) -> str:
    # Without terminal_width click would take that of whoever runs this.
    context = click.Context(command, parent, info_name=name, terminal_width=88, **options.CONTEXT)
    return f"```text\n{command.get_help(context)}\n```\n"


def text() -> str:
    """The whole page."""
    parts = [_HEAD, _help(root, "ckpttool", None)]
    above = click.Context(root, info_name="ckpttool")
    for name in COMMANDS:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        alias = next((f", {alias}" for alias, of in ALIASES.items() if of == name), "")
        parts += [f"## {name}{alias}\n", _help(command, name, above)]
        if isinstance(command, click.Group):
            group = click.Context(command, above, info_name=name)
            for word in command.list_commands(group):
                subcommand = command.get_command(group, word)
                assert subcommand is not None
                parts += [f"### {name} {word}\n", _help(subcommand, word, group)]
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    parts.append(f"## Exit codes\n\n| code | meaning |\n|---|---|\n{codes}")
    return "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
