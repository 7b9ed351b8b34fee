"""``Output``: the only thing in ckpttool that prints.

Data goes to stdout, everything else to stderr. It knows the modes (human, plain, json,
ndjson, quiet), the two streams and what can go wrong with them; what a result looks like
is the affair of its ``View``.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NoReturn, TextIO

from ckpttool.cli.escape import clip, escape
from ckpttool.cli.screen import Screen
from ckpttool.cli.view import View
from ckpttool.errors import CancelledError, CkpttoolError, NoSpaceError, StorageError
from ckpttool.model import Oddity

if TYPE_CHECKING:
    from ckpttool.cli.progress import Progress

__all__ = ["ColorChoice", "Mode", "Output", "OutputClosed", "ProgressChoice", "Settings"]

Mode = Literal["human", "plain", "json", "ndjson", "quiet"]
ColorChoice = Literal["auto", "always", "never"]
ProgressChoice = Literal["auto", "json", "none"]

#: JSON is held back until it is whole, so that stdout never has half a document; past
#: this size it waits in a temporary file.
_HELD_IN_MEMORY = 16 * 2**20

#: Below this, tables would show nothing: the terminal wraps the lines instead.
_NARROWEST = 20


class OutputClosed(BaseException):
    """The reader of stdout has gone (``list | head -1``): end quietly with 141."""


@dataclass(slots=True)
class Settings:
    """What the common options say; filled in while the command line is parsed."""

    json: bool = False
    ndjson: bool = False
    quiet: bool = False
    color: ColorChoice = "auto"
    progress: ProgressChoice = "auto"
    verbose: int = 0
    no_input: bool = False
    unnoted: bool = False

    @classmethod
    def foreseen(cls, arguments: Sequence[str]) -> Settings:
        """The form in which an error of the command line itself is to be said."""
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        never = "--color=never" in options or ("--color", "never") in pairwise(options)
        return cls(
            json="--json" in options,
            ndjson="--ndjson" in options,
            color="never" if never else "auto",
        )


class Output:
    """The two streams of one run of a command."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stdout = _tolerant(sys.stdout)
        self._stderr = _tolerant(sys.stderr)
        self._warnings: list[str] = []
        self._bar: Progress | None = None

    # -- what a command calls ------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """The form of the data; on a terminal, or with ``--color always``, for people."""
        settings = self.settings
        if settings.json:
            return "json"
        if settings.ndjson:
            return "ndjson"
        if settings.quiet:
            return "quiet"
        return "human" if settings.color == "always" or self.stdout_is_terminal else "plain"

    @property
    def stdout_is_terminal(self) -> bool:
        """Whether a person looks at stdout."""
        return _is_terminal(self._stdout)

    @property
    def encoding(self) -> str:
        """The encoding of stdout; empty when it is closed."""
        return "" if self._stdout is None else self._stdout.encoding

    @property
    def screen(self) -> Screen:
        """What stdout can show."""
        return self._screen(self._stdout)

    def show(self, view: View) -> int:
        """Print a result in the mode that was asked for; returns the exit code."""
        mode = self.mode
        if mode == "json":
            return self._show_json(view)
        if mode == "ndjson":
            return self._show_ndjson(view)
        if mode == "human":
            self._show_human(view)
        else:
            for piece in view.names() if mode == "quiet" else view.plain():
                if isinstance(piece, bytes):
                    self.write_bytes(piece)
                else:
                    self.write(piece)
        for warning in view.warnings:
            self.warn(warning)
        return view.exit_code

    def note(self, text: str) -> None:
        """Tell a person how something was understood; not in JSON, not with ``-q``.

        An `Oddity` is a warning.
        """
        if isinstance(text, Oddity):
            self.warn(text)
        elif self.mode in {"human", "plain"} and not self.settings.unnoted:
            self._message(self._wrapped(escape(clip(text))))

    def warn(self, text: str) -> None:
        """Warn: on stderr, or in the ``warnings`` of the JSON document."""
        if self.mode in {"json", "ndjson"}:
            self._warnings.append(text)
        else:
            label = self._screen(self._stderr).style("warning:", "yellow")
            self._message(self._wrapped(f"{label} {escape(clip(text))}", 9))

    def tell(self, text: str) -> None:
        """Print ready text on stderr, whatever the mode."""
        self._message(text)

    def detail(self, text: str) -> None:
        """Say on stderr what only ``-v`` asks for."""
        if self.settings.verbose and self.mode not in {"json", "ndjson"}:
            self._message(self._wrapped(escape(clip(text))))

    def confirm(self, question: str) -> None:
        """Ask on the terminal before something that cannot be taken back.

        Raises:
            CancelledError: the answer is not yes; id ``no-terminal``: nobody can be asked
                (no terminal, or ``--no-input``).
        """
        if self.settings.no_input or not (_is_terminal(sys.stdin) and _is_terminal(self._stderr)):
            raise CancelledError(
                f"this would have to be asked: {question}",
                why="--no-input was given"
                if self.settings.no_input
                else "stdin or stderr is no terminal",
                hint="add -y to answer yes beforehand",
                id="no-terminal",
            )
        if self.stdout_is_terminal:
            self.flush()
        self._to_stderr(f"{escape(question)} [y/N] ")
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise CancelledError("cancelled", why="the answer was not yes")

    def progress(self, label: str, unit: str = "bytes") -> Progress:
        """A context manager around long work; what it gives is called with (done, total).

        Draws nothing in the first half second, and nothing at all where stderr is not a
        terminal, unless ``--progress json`` asks for lines.
        """
        from ckpttool.cli.progress import Progress

        choice = self.settings.progress
        style: Literal["bar", "json", "none"] = "none"
        if choice == "json":
            style = "json"
        elif choice == "auto" and self.mode not in {"json", "ndjson"}:
            style = "bar" if _is_terminal(self._stderr) else "none"
        self._bar = Progress(label, unit, style, self._screen(self._stderr), self._to_stderr)
        return self._bar

    def write(self, text: str) -> None:
        """Print ready text (escaped where it came from a file).

        Raises:
            OutputClosed: nobody reads any more.
            NoSpaceError, StorageError: the device of stdout is full, or failed, or stdout
                is closed.
        """
        if self._stdout is None:
            if text:
                _stdout_closed()
            return
        try:
            self._stdout.write(text)
        except OSError as error:
            _stdout_failed(error)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Print bytes as they are (``load -o -``, a path for a script); raises as ``write``."""
        if self._stdout is None:
            if data:
                _stdout_closed()
            return
        try:
            self._stdout.flush()
            self._stdout.buffer.write(data)
        except OSError as error:
            _stdout_failed(error)

    # -- what main calls -----------------------------------------------------------------

    def flush(self) -> None:
        """Push out what is buffered; raises as ``write``."""
        if self._stdout is None:
            return
        try:
            self._stdout.flush()
        except OSError as error:
            _stdout_failed(error)

    def fail(self, error: CkpttoolError, traceback: str = "") -> None:
        """Say an error: what, why, what next and the id; with JSON one object."""
        hint = error.hint or f"ckpttool explain {error.id}"
        if self.mode in {"json", "ndjson"}:
            from ckpttool.cli.jsontext import dumps

            report = error.as_dict() | {"hint": hint}
            if traceback:
                report["traceback"] = traceback
            self._message(dumps(report))
            return
        style = self._screen(self._stderr).style
        lines = [self._wrapped(f"{style('error:', 'bold red')} {escape(clip(error.what))}", 7)]
        if error.why:
            lines.append(self._wrapped(f"  why: {escape(clip(error.why))}", 7))
        last = f"  next: {escape(clip(hint))}  {style(f'[{error.id}]', 'dim')}"
        # A command stays one line for the shell it is copied into.
        lines.append(last if hint.startswith("ckpttool ") else self._wrapped(last, 8))
        if traceback:
            lines += ["", *map(escape, traceback.rstrip().split("\n"))]
        self._message("\n".join(lines))

    # -- inside --------------------------------------------------------------------------

    def _show_human(self, view: View) -> None:
        screen = self.screen
        console = None
        for piece in view.human(screen):
            if isinstance(piece, str):
                self.write(piece)
                continue
            if console is None:
                from ckpttool.cli.rich_text import RichText

                console = RichText(screen)
            self.write(console.render(piece))

    def _show_json(self, view: View) -> int:
        from ckpttool.cli.jsontext import dumps, pieces
        from ckpttool.cli.spool import Spool

        with Spool(_HELD_IN_MEMORY) as held:
            for piece in pieces(view.data()):
                held.add(piece)
            code = view.exit_code
            schema = dumps(f"ckpttool.{view.command}/1")
            self.write(f'{{"schema": {schema}, "ok": {dumps(code == 0)}, "data": ')
            for piece in held:
                self.write(piece)
            self.write(f', "warnings": {dumps([*self._warnings, *view.warnings])}}}\n')
        return code

    def _show_ndjson(self, view: View) -> int:
        from ckpttool.cli.jsontext import dumps, lines

        kind = {"type": view.record_type}
        for piece in lines({**kind, **record} for record in view.records()):
            self.write(piece)
        code = view.exit_code
        last = {
            "type": "summary",
            "schema": f"ckpttool.{view.command}/1",
            "ok": code == 0,
            **view.summary(),
            "warnings": [*self._warnings, *view.warnings],
        }
        self.write(dumps(last) + "\n")
        return code

    def _screen(self, stream: TextIO | None) -> Screen:
        choice = self.settings.color
        terminal = _is_terminal(stream)
        color = choice == "always" or (
            choice == "auto"
            and terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )
        encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        return Screen(_width(stream if terminal else None), color, encoding.startswith("utf"))

    def _wrapped(self, text: str, hang: int = 2) -> str:
        """A line for stderr, broken at spaces where a person reads it on a terminal."""
        if not _is_terminal(self._stderr):
            return text
        return self._screen(self._stderr).text(text, hang).removesuffix("\n")

    def _message(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        if self.stdout_is_terminal:
            self.flush()  # so that both streams appear in the order in which they were said
        self._to_stderr(text + "\n")

    def _to_stderr(self, text: str) -> None:
        if self._stderr is None:
            return
        try:
            self._stderr.write(text)
            self._stderr.flush()
        except OSError:
            pass  # nobody hears it; the exit code still says it


def _tolerant(stream: TextIO | None) -> TextIO | None:
    """The stream, made to write what its encoding cannot say as an escape."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return stream


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):
        return False


def _width(terminal: TextIO | None) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return max(int(columns), _NARROWEST)
    try:
        width = os.get_terminal_size(terminal.fileno()).columns if terminal else 0
    except (OSError, ValueError):
        width = 0
    return max(width, _NARROWEST) if width else 80


def _stdout_closed() -> NoReturn:
    raise StorageError(
        "cannot write to standard output",
        why="it is closed",
        hint="send it to a file, or to /dev/null where only the exit code is wanted",
        id="stdout",
    )


def _stdout_failed(error: OSError) -> NoReturn:
    if error.errno in {errno.EPIPE, errno.ESHUTDOWN}:
        raise OutputClosed from None
    kind = (
        NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} else StorageError
    )
    raise kind(
        "cannot write to standard output",
        why=error.strerror or str(error),
        hint="free some space, or send the output elsewhere",
        id="stdout",
    ) from error
