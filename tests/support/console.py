"""Runs the console examples of a Markdown file, as a person at a terminal would.

An example is a fenced block marked ``console``: lines that begin with ``$ `` are typed
into one bash, the lines after each are what it printed. The lines ``…`` and ``...`` stand
for any number of lines. What a command prints on stderr is part of what a person sees.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import clean_environment

__all__ = ["Block", "blocks", "matches", "run_block", "with_outputs"]

#: Printed between two commands; nothing else prints it.
_MARK = "\x1e\x1e"
_FENCE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """The commands of one fenced block, and what is said to follow each."""

    line: int
    commands: tuple[str, ...]
    outputs: tuple[str, ...]


def _parse(text: str, line: int) -> Block:
    commands: list[str] = []
    outputs: list[str] = []
    for row in text.splitlines():
        if row.startswith("$ "):
            commands.append(row[2:])
            outputs.append("")
        elif commands and commands[-1].endswith("\\"):
            commands[-1] += "\n" + row
        elif not commands:
            raise ValueError(f"line {line}: a console block begins with '$ ', not {row!r}")
        else:
            outputs[-1] += row + "\n"
    return Block(line, tuple(commands), tuple(outputs))


def blocks(markdown: str) -> list[Block]:
    """Every console block of a text, with the line it begins at."""
    return [
        _parse(match.group(1), markdown.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(markdown)
    ]


def matches(expected: str, printed: str) -> bool:
    """Whether what was printed is what is written; a line of dots stands for any lines."""
    pieces = re.split(r"^(?:…|\.\.\.)\n", expected, flags=re.MULTILINE)
    return re.fullmatch("(?:.*\n)*".join(map(re.escape, pieces)), printed) is not None


def with_outputs(markdown: str, printed: dict[int, list[str]]) -> str:
    """The text with the outputs of its blocks (by line) replaced, except those with dots."""

    def replace(match: re.Match[str]) -> str:
        block = _parse(match.group(1), markdown.count("\n", 0, match.start()) + 1)
        if block.line not in printed:
            return match.group()
        body = ""
        for command, old, new in zip(
            block.commands, block.outputs, printed[block.line], strict=True
        ):
            body += f"$ {command}\n{old if matches(old, new) else new}"
        return f"```console\n{body}```"

    return _FENCE.sub(replace, markdown)


def run_block(block: Block, folder: Path, width: int = 100) -> list[str]:
    """Type the commands of a block in ``folder``; what each printed on a terminal.

    The shell has `ckpttool` on its path, and no colours.
    """
    programs = folder.parent / "bin"
    programs.mkdir(exist_ok=True)
    launcher = programs / "ckpttool"
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m ckpttool "$@"\n')
    launcher.chmod(0o755)
    script = "".join(
        f"{command}\n__code=$?; printf '{_MARK}'; (exit $__code)\n" for command in block.commands
    )
    environment = clean_environment(
        {
            "COLUMNS": str(width),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TERM": "xterm",
        }
    )
    ours, theirs = os.openpty()
    try:
        with subprocess.Popen(
            ["bash", "--norc", "-c", script],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        ) as shell:  # fmt: skip
            os.close(theirs)
            output = _read_all(ours)
            shell.wait(timeout=600)
    finally:
        os.close(ours)
    printed = output.decode("utf-8").replace("\r\n", "\n").split(_MARK)
    return [_clean(text) for text in printed[:-1]]


def _read_all(terminal: int) -> bytes:
    """All that is written to a terminal until its last writer is gone."""
    output = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody writes any more
            return output
        if not piece:
            return output
        output += piece


def _clean(text: str) -> str:
    """What stays on the screen, without trailing spaces, which Markdown editors remove.

    A carriage return starts the line anew: so does a progress bar on a slow machine.
    """
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return "\n".join(line.rpartition("\r")[2].rstrip() for line in text.split("\n"))
