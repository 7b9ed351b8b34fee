"""What a shell offers on TAB: commands, options, addresses, variable names.

The scripts in ``completions/`` call ckpttool with ``_CKPTTOOL_COMPLETE`` set to the
shell's name and print-ready candidates come back, one a line; for bash, a line before them
says whether they are ``paths`` or ``words``. A checkpoint is offered as its prefix, not as
its files. Whatever goes wrong, the answer is "nothing to offer".
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete

from ckpttool.cli.output import Output
from ckpttool.errors import CkpttoolError

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = ["addresses", "answer", "files", "topics", "variables"]

#: Past this many, names are offered up to their next slash.
_MANY = 100
#: What a directory or a checkpoint may hold before TAB stops reading it.
_MOST = 200_000

#: The type of candidates that are paths, or addresses made of one.
_PATH = "path"
#: What bash takes for more than itself: outside quotes, and inside double ones.
_SPECIAL = {"": re.compile(r"[^\w@%+=:,./^-]|^~"), '"': re.compile(r'["$`\\!]')}

#: Endings of the files by which a checkpoint is known, behind its prefix.
_KNOWN_BY = (".index", ".meta")
#: Endings of files that are a source each.
_SOURCES = (
    *(".h5", ".hdf5", ".keras", ".npy", ".npz", ".onnx"),
    *(".pb", ".pbtxt", ".safetensors", ".tflite"),
)
#: A V1 checkpoint is known by its graph: its own name has no ending.
_STEP = re.compile(r"-(\d+)\.(?:index|meta)$")


def answer(shell: str, arguments: list[str], out: Output, root: click.Command) -> int:
    """Print the candidates for the last word of a command line; returns 0.

    Args:
        shell: ``bash`` (the line is read from COMP_LINE and COMP_POINT), ``zsh`` or
            ``fish`` (``arguments`` are the words after the program; the last one is being
            completed, and as it was typed, maybe with an open quote).
        arguments: see ``shell``.
        out: where to print.
        root: the group of commands.
    """
    if shell == "bash":
        arguments = _words_of(os.environ.get("COMP_LINE", ""), os.environ.get("COMP_POINT", ""))
    if not arguments:
        return 0
    *before, word = arguments
    if shell != "bash":
        word = _unquoted(word)
    try:
        # A line a candidate: what has a line break in it cannot be said.
        found = [item for item in _candidates(before, word, out, root) if "\n" not in item.value]
        if shell == "bash":
            lines = _for_bash(found, word)
        else:
            lines = [f"{item.value}\t{item.help}" if item.help else item.value for item in found]
        out.write_bytes(b"".join(os.fsencode(f"{line}\n") for line in lines))
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
            yield CompletionItem(option + found.value, type=found.type, help=found.help)


def _option_and_value(word: str) -> tuple[str, str]:
    """``--output=run/`` → ``--output=`` and ``run/``; any other word is all value."""
    option, equals, value = word.partition("=")
    return (option + equals, value) if equals and option.startswith("--") else ("", word)


def _for_bash(found: list[CompletionItem], word: str) -> list[str]:
    """What readline puts in the place of the word, and before that, what sort it is.

    Paths are quoted by readline, which shows the last part of each, with a slash behind a
    directory. Other words it takes as they are, and shows whole.
    """
    if not found:
        return []
    replaced = _unquoted(os.environ.get("COMP_WORD", word))
    # Readline leaves the start of the word standing where that ends with a break character.
    standing = len(word) - len(replaced) if word.endswith(replaced) else 0
    rests = [item.value[standing:] for item in found]
    if all(item.type == _PATH for item in found):
        return ["paths", *map(_without_slash, rests)]
    quote = _open_quote(os.environ.get("COMP_LINE", ""), os.environ.get("COMP_POINT", ""))
    return ["words", *(_quoted(rest, quote) for rest in rests)]


def _without_slash(path: str) -> str:
    """A directory without the slash that readline puts behind it itself."""
    bare = path.rstrip("/")
    there = os.path.expanduser(bare)
    return bare if bare and os.path.isdir(there) and not os.path.islink(there) else path


def _quoted(word: str, quote: str) -> str:
    """A word as it is typed into bash, behind an opening quote or without one."""
    if quote == "'":
        return word.replace("'", "'\\''")
    return _SPECIAL[quote].sub(r"\\\g<0>", word)


def addresses(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Directories, checkpoint prefixes, files of models, and the steps of a run after ``@``."""
    del ctx
    folder, slash, base = incomplete.rpartition("/")
    where = folder + slash
    if base.startswith("@"):
        steps = {hit[1] for name, _ in _entries(where) if (hit := _STEP.search(name))}
        words = ["latest", *sorted(steps, key=int)] if steps else []
        return _items((where + "@" + word for word in words), incomplete, _PATH)
    entries = list(_entries(where))
    prefixes = {os.path.splitext(name)[0] for name, _ in entries if name.endswith(_KNOWN_BY)}
    folders = {name + "/" for name, is_folder in entries if is_folder}
    models = {name for name, is_folder in entries if not is_folder and name.endswith(_SOURCES)}
    offered = sorted(prefixes | folders | models)
    found = [where + name for name in offered if _wanted(name, base)]
    if not found:
        found = [where + name for name, _ in sorted(entries) if _wanted(name, base)]
    return _items(found, incomplete, _PATH)


def files(incomplete: str) -> list[CompletionItem]:
    """Every file and directory."""
    folder, slash, base = incomplete.rpartition("/")
    where = folder + slash
    found = sorted(
        where + name + ("/" if is_folder else "")
        for name, is_folder in _entries(where)
        if _wanted(name, base)
    )
    return _items(found, incomplete, _PATH)


def variables(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Names of the source's variables, as ``--names`` says; up to the next slash of many.

    The source of ``diff`` is its A; of every checkpoint of a run it is the latest.
    """
    from ckpttool.limits import default_limits
    from ckpttool.sources.registry import open_source
    from ckpttool.sources.series import run_of_series

    params = ctx.params
    if not (params.get("source") or params.get("a")):
        params = _params_before_option(ctx)
    address = params.get("source") or params.get("a")
    if not isinstance(address, str):
        return []
    style: NameStyle = params.get("naming", "full")
    with open_source(run_of_series(address) or address, default_limits()) as source:
        called = (
            source.name_of(variable, style)
            for variable in islice(source.variables(), _MOST)
            if variable.kind != "object_graph"
        )
        names = [name for name in called if name.startswith(incomplete)]
    if len(names) > _MANY:
        end = len(incomplete)
        names = list(dict.fromkeys(name[: name.find("/", end) + 1] or name for name in names))
    return _items(names, incomplete)


def _params_before_option(ctx: click.Context) -> dict[str, Any]:
    """What is said on a line that ends with an option whose value is being completed.

    click reads no argument of a line that ends so; without the option it does.
    """
    from ckpttool.cli.options import arguments

    line = arguments(ctx)[:-1]
    again = ctx.command.make_context(ctx.info_name, line, ctx.parent, resilient_parsing=True)
    return again.params


def topics(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """What can be explained: error ids and exit codes."""
    from ckpttool.ops.explain import EXIT_CODES, explanation_ids

    del ctx
    return _items([*explanation_ids(), *map(str, EXIT_CODES)], incomplete)


def _items(values: Iterable[str], incomplete: str, type: str = "plain") -> list[CompletionItem]:
    return [CompletionItem(value, type=type) for value in values if value.startswith(incomplete)]


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
    text = _before_cursor(line, point)
    words = _split(text)[0]
    if text[-1:].isspace() and not (words and words[-1].endswith(text[-1])):
        words.append("")
    while words and re.fullmatch(r"\w+=.*", words[0], re.DOTALL):
        del words[0]  # an assignment in front of the command
    return words[1:]


def _before_cursor(line: str, point: str) -> str:
    raw = os.fsencode(line)  # COMP_POINT counts bytes
    return os.fsdecode(raw[: int(point)] if point.isdigit() else raw)


def _open_quote(line: str, point: str) -> str:
    """The quote that is open at the cursor, or nothing."""
    return _split(_before_cursor(line, point))[1]


def _unquoted(word: str) -> str:
    words = _split(word)[0]
    return words[0] if words else word


def _split(text: str) -> tuple[list[str], str]:
    """Words as a shell sees them, and the quote that is open at the end."""
    for closing in ("", "'", '"'):
        lexer = shlex.shlex(text + closing, posix=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            return list(lexer), closing
        except ValueError:
            continue
    return [], ""
