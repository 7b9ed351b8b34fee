"""Runs a command with a terminal (pty) as stdin, stdout and stderr."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.command import clean_environment

__all__ = ["TerminalRun", "run_in_terminal"]

#: Makes stdin the controlling terminal of the new session (shells want one), then becomes
#: the command.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class TerminalRun:
    """What a command showed, and how it ended."""

    output: str
    returncode: int

    @property
    def lines(self) -> list[str]:
        """The lines that were shown."""
        return self.output.replace("\r\n", "\n").splitlines()


def run_in_terminal(
    args: Sequence[str],
    *,
    argv: Sequence[str] | None = None,
    columns: int = 80,
    env: Mapping[str, str | None] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    keys: str = "",
    slowly: Sequence[tuple[str, float]] = (),
    timeout: float = 60.0,
) -> TerminalRun:
    """Run ``ckpttool ARGS`` (or ``argv``) on a terminal that is ``columns`` wide.

    The environment is ``clean_environment`` with a terminal that has colours; ``keys`` are
    typed at once; ``slowly`` are keys, each with the seconds to wait after it.
    """
    own, other = pty.openpty()
    fcntl.ioctl(own, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    changes: dict[str, str | None] = {"COLUMNS": None, "NO_COLOR": None, "TERM": "xterm"}
    command = argv or [sys.executable, "-m", "ckpttool"]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *command, *args],
        stdin=other,
        stdout=other,
        stderr=other,
        cwd=cwd,
        env=clean_environment({**changes, **(env or {})}),
        start_new_session=True,
    )
    os.close(other)
    os.write(own, keys.encode())
    typist = threading.Thread(target=_type, args=(own, slowly))
    typist.start()
    deadline = time.monotonic() + timeout
    shown = b""
    while time.monotonic() < deadline:
        if not select.select([own], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(own, 65536)
        except OSError:  # EIO: the last process has closed the terminal
            break
        if not piece:
            break
        shown += piece
    typist.join()
    os.close(own)
    try:
        returncode = process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        returncode = process.wait()
    return TerminalRun(shown.decode("utf-8", "surrogateescape"), returncode)


def _type(terminal: int, slowly: Sequence[tuple[str, float]]) -> None:
    for keys, pause in slowly:
        try:
            os.write(terminal, keys.encode())
        except OSError:
            return  # the command has ended
        time.sleep(pause)
