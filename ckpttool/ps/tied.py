"""A program without TensorFlow that ends with the process that started it.

``spawn_tied`` runs this very module in a child, which runs another one and, in a thread,
waits for its stdin to close: the system closes it when the parent ends, whatever way.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

__all__ = ["end_tied", "spawn_tied"]

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_START = "import sys; sys.path.append(sys.argv.pop(1)); from ckpttool.ps.tied import main; main()"
#: Seconds that a program has to end after SIGTERM.
_GRACE = 0.5


def spawn_tied(
    module: str,
    arguments: Sequence[str],
    *,
    log: str,
    stdout: IO[bytes] | int | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``python -m module arguments``, in a process group of its own.

    Args:
        module: its full name; ``ckpttool`` is the command line.
        arguments: as after the name of a program.
        log: the file to which what it says on stderr is added, and on stdout too unless
            ``stdout`` says where else that goes.
        stdout: as of ``subprocess.Popen``.
    """
    with open(log, "ab") as output:
        return subprocess.Popen(  # noqa: S603 - this interpreter, our own module
            [sys.executable, "-P", "-c", _START, _ROOT, module, *arguments],
            stdin=subprocess.PIPE,
            stdout=output if stdout is None else stdout,
            stderr=output,
            start_new_session=True,
        )


def end_tied(child: subprocess.Popen[bytes]) -> None:
    """End a child, and all that it started, if it still runs."""
    child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # all of it has ended (macOS says EPERM of a group of zombies)
    child.wait()
    if child.stdin is not None:
        child.stdin.close()


def main() -> None:
    """The child: watch, and be the module that was asked for."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the program itself has nothing to read
    os.close(nothing)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _watch(lifeline: int) -> None:
    while os.read(lifeline, 4096):
        pass  # nothing is said to it
    os.killpg(os.getpgrp(), signal.SIGKILL)
