"""The process around a command: signals, streams, and the one way out to an exit code.

Nothing here knows a command; click and the commands are imported inside, so that an
interrupt during the imports ends as quietly as one later.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from ckpttool.cli.output import Output, OutputClosed, Settings
from ckpttool.cli.signals import Stopped, stoppable
from ckpttool.errors import CkpttoolError

__all__ = ["main", "run"]

_CLOSED_PIPE = 141


def run() -> NoReturn:
    """Run this process's command line and end the process; called by ``__main__``."""
    # The collector runs dozens of times while click is imported and finds nothing: 3 of
    # 38 ms. A process does one command, so reference counts are enough for its life.
    gc.disable()
    _open_standard_streams()
    code = main()
    if sys.gettrace() is not None or sys.getprofile() is not None:
        sys.exit(code)  # a debugger or profiler wants to see the end
    # All is flushed. Tearing down the interpreter costs 4 ms (more with a million
    # variables), and would once more try to flush a stdout that is full or closed.
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's) and return the exit code.

    Says every error itself and never raises, whatever the command does.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    out = Output(Settings.foreseen(arguments))
    try:
        with stoppable():
            return _guarded(arguments, out)
    except Stopped as stopped:
        # No flush: it could wait for a reader that is not reading.
        out.fail(stopped.as_error())
        return stopped.exit_code
    except OutputClosed:
        return _CLOSED_PIPE


def _guarded(arguments: list[str], out: Output) -> int:
    """Run a command line, turning every ``Exception`` into an error that is said."""
    try:
        from ckpttool.cli.app import dispatch

        code = dispatch(arguments, out)
        out.flush()
        return code
    except Exception as exception:  # noqa: BLE001 - the one place where every error is said
        from ckpttool.cli.failure import as_error

        error = as_error(exception)
        try:
            out.flush()  # what was printed before the error stays
        except (CkpttoolError, OutputClosed):
            pass  # the first error is the one to tell
        out.fail(error, _traceback(exception, error, out.settings.verbose))
        return error.exit_code


def _traceback(exception: Exception, error: CkpttoolError, verbose: int) -> str:
    """The traceback of a bug with ``-v``, of any error with ``-vv``, else nothing."""
    if verbose < (1 if error.exit_code == 70 else 2):
        return ""
    from traceback import format_exception

    return "".join(format_exception(exception))


def _open_standard_streams() -> None:
    """Occupy closed descriptors 0 to 2, so that no checkpoint is opened as stdout.

    Python's own stream objects stay None, and what would be written there is dropped.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor: this one
            os.set_inheritable(descriptor, True)
