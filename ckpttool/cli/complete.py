"""What a shell offers on TAB: commands, options, addresses, variable names.

The scripts in ``completions/`` call ckpttool with ``_CKPTTOOL_COMPLETE`` set to the
shell's name and print-ready candidates come back, one a line. A checkpoint is offered as
its prefix, not as its files. Whatever goes wrong, the answer is "nothing to offer".
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from itertools import islice

import click
from click.shell_completion import CompletionItem, ShellComplete

from ckpttool.cli.output import Output
from ckpttool.errors import CkpttoolError

__all__ = ["addresses", "answer", "files", "variables"]

#: Past this many, names are offered up to their next slash.
_MANY = 100
#: What a directory or a checkpoint may hold before TAB stops reading it.
_MOST = 200_000

_STEP = re.compile(r"-(\d+)\.index$")


def answer(shell: str, arguments: list[str], out: Output, root: click.Command) -> int:
    """Print the candidates for the last word of a command line; returns 0.

    Args:
        shell: ``bash`` (the line is read from COMP_LINE and COMP_POINT), ``zsh`` or
            ``fish`` (``arguments`` are the words after the program, the last one being
            completed).
        arguments: see ``shell``.
        out: where to print.
        root: the group of commands.
    """
    if shell == "bash":
        arguments = _words_of(os.environ.get("COMP_LINE", ""), os.environ.get("COMP_POINT", ""))
    if not arguments:
        return 0
    *before, word = arguments
    try:
        for candidate in _candidates(before, word, out, root):
            if "\n" in candidate.value:
                continue  # a line a candidate: this one cannot be said
            if shell == "bash":
                out.write(_for_readline(candidate.value, word) + "\n")
            else:
                about = f"\t{candidate.help}" if candidate.help else ""
                out.write(f"{candidate.value}{about}\n")
    except (CkpttoolError, OSError, click.ClickException):
        pass
    return 0


def _candidates(
    before: list[str], word: str, out: Output, root: click.Command
) -> Iterator[CompletionItem]:
    """What the word can become, as whole words."""
    option, value = _option_and_value(word)
    completer = ShellComplete(root, {"obj": out}, "ckpttool", "_CKPTTOOL_COMPLETE")
    for item in completer.get_completions(before, word):
        for found in files(value) if item.type in {"file", "dir"} else [item]:
            yield CompletionItem(option + found.value, help=found.help)


def _option_and_value(word: str) -> tuple[str, str]:
    """``--output=run/`` → ``--output=`` and ``run/``; any other word is all value."""
    option, equals, value = word.partition("=")
    return (option + equals, value) if equals and option.startswith("--") else ("", word)


def _for_readline(candidate: str, word: str) -> str:
    """The candidate without the start of the word that readline leaves standing."""
    replaced = _unquoted(os.environ.get("COMP_WORD", word))
    return candidate[len(word) - len(replaced) :] if word.endswith(replaced) else candidate


def addresses(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Directories, checkpoint prefixes, and the steps of a run after ``@``."""
    del ctx
    folder, slash, base = incomplete.rpartition("/")
    where = folder + slash
    if base.startswith("@"):
        steps = {hit[1] for name, _ in _entries(where) if (hit := _STEP.search(name))}
        words = ["latest", *sorted(steps, key=int)] if steps else []
        return _items((where + "@" + word for word in words), incomplete)
    entries = list(_entries(where))
    prefixes = {name.removesuffix(".index") for name, _ in entries if name.endswith(".index")}
    folders = {name + "/" for name, is_folder in entries if is_folder}
    found = [where + name for name in sorted(prefixes | folders) if _wanted(name, base)]
    if not found:
        found = [where + name for name, _ in sorted(entries) if _wanted(name, base)]
    return _items(found, incomplete)


def files(incomplete: str) -> list[CompletionItem]:
    """Every file and directory."""
    folder, slash, base = incomplete.rpartition("/")
    where = folder + slash
    found = sorted(
        where + name + ("/" if is_folder else "")
        for name, is_folder in _entries(where)
        if _wanted(name, base)
    )
    return _items(found, incomplete)


def variables(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names of the source's variables; up to the next slash where there are many."""
    from ckpttool.limits import default_limits
    from ckpttool.sources.registry import open_source

    address = ctx.params.get("source")
    if not isinstance(address, str):
        return []
    with open_source(address, default_limits()) as source:
        names = [
            variable.name
            for variable in islice(source.variables(), _MOST)
            if variable.kind != "object_graph" and variable.name.startswith(incomplete)
        ]
    if len(names) > _MANY:
        end = len(incomplete)
        names = list(dict.fromkeys(name[: name.find("/", end) + 1] or name for name in names))
    return _items(names, incomplete)


def _items(values: Iterator[str] | list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]


def _wanted(name: str, base: str) -> bool:
    return name.startswith(base) and (not name.startswith(".") or base.startswith("."))


def _entries(folder: str) -> Iterator[tuple[str, bool]]:
    """Name and whether it is a directory, of what lies in a folder."""
    with os.scandir(os.path.expanduser(folder) or ".") as entries:
        for entry in islice(entries, _MOST):
            yield entry.name, entry.is_dir()


def _words_of(line: str, point: str) -> list[str]:
    """The words of a bash line up to the cursor, without the program.

    COMP_LINE and not COMP_WORDS: bash breaks words at ``@``, ``:`` and ``=`` too.
    """
    raw = os.fsencode(line)  # COMP_POINT counts bytes
    text = os.fsdecode(raw[: int(point)] if point.isdigit() else raw)
    words = _split(text) or []
    if text[-1:].isspace() and not (words and words[-1].endswith(text[-1])):
        words.append("")
    while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
        del words[0]  # an assignment in front of the command
    return words[1:]


def _unquoted(word: str) -> str:
    words = _split(word)
    return words[0] if words else word


def _split(text: str) -> list[str] | None:
    """Words as a shell sees them, where the last one may have an open quote."""
    for closing in ("", "'", '"'):
        lexer = shlex.shlex(text + closing, posix=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            return list(lexer)
        except ValueError:
            continue
    return None
