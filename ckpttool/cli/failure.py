"""Any exception → the error that says it: what, why, what next, an id and an exit code.

Our own errors say it themselves. What else arrives here is the command line's (click),
the operating system's, memory's, or a bug.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ckpttool.errors import (
    CkpttoolError,
    InternalError,
    LimitError,
    NotFoundError,
    UsageError,
    missing_package,
)

if TYPE_CHECKING:
    from click import ClickException, NoSuchOption

__all__ = ["as_error"]


def as_error(exception: Exception) -> CkpttoolError:
    """The error that an exception comes to; never raises."""
    if isinstance(exception, CkpttoolError):
        return exception
    if isinstance(exception, ModuleNotFoundError) and (missing := missing_package(exception)):
        return missing
    if isinstance(exception, MemoryError):
        return _out_of_memory()
    if isinstance(exception, OSError):
        return _of_system(exception)
    if "click" in sys.modules:
        from click import ClickException

        if isinstance(exception, ClickException):
            return _of_command_line(exception)
    return InternalError(
        f"a bug in ckpttool: {type(exception).__name__}",
        why=str(exception) or "no more is known",
        hint="run it again with -v for the traceback, and report that; "
        "ckpttool doctor shows the versions",
    )


def _of_command_line(exception: ClickException) -> UsageError:
    from click import MissingParameter, NoSuchOption
    from click import UsageError as ClickUsageError

    message = exception.format_message().rstrip(".")
    hint = ""
    if isinstance(exception, MissingParameter):
        message = " ".join(message.split())  # it lists choices one a line
    elif isinstance(exception, NoSuchOption):
        message = f"no such option '{exception.option_name}'"
        hint = _nearest_option(exception)
    context = exception.ctx if isinstance(exception, ClickUsageError) else None
    if context is None:
        return UsageError(message, hint="ckpttool --help")
    return UsageError(
        message[:1].lower() + message[1:],
        why=" ".join(context.get_usage().split()).replace("Usage:", "usage:", 1),
        hint=hint or f"{context.command_path} --help",
    )


def _nearest_option(exception: NoSuchOption) -> str:
    """What was meant, where that can be told: an option of the command, or misplaced."""
    context, name = exception.ctx, exception.option_name
    if context is None:
        return ""
    from difflib import get_close_matches

    from click import Group

    if isinstance(context.command, Group):
        from ckpttool.cli.options import arguments

        for word in arguments(context):
            command = context.command.get_command(context, word)
            if command is not None:
                known = {option for param in command.params for option in param.opts}
                if name in known:
                    return f"put it after the command: {context.command_path} {word} {name} ..."
                break
    own = {option.lstrip("-"): option for param in context.command.params for option in param.opts}
    # click compares them with their dashes, which makes strangers alike.
    near = get_close_matches(name.lstrip("-"), own, n=1, cutoff=0.7)
    return f"did you mean: {own[near[0]]}" if near else ""


def _of_system(exception: OSError) -> CkpttoolError:
    from ckpttool.storage.system import raise_os_error

    name = exception.filename
    if isinstance(exception, FileNotFoundError) and name is None and _is_nowhere():
        return _no_working_directory()
    what = f"the system refused {name!s}" if name is not None else "the system refused"
    try:
        raise_os_error(exception, what)
    except CkpttoolError as error:
        return error


def _is_nowhere() -> bool:
    """Whether the working directory was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _no_working_directory() -> NotFoundError:
    return NotFoundError(
        "the working directory is no longer there",
        why="it was removed, so a relative path leads nowhere",
        hint="cd to a directory that is there (cd . where it was made anew), or give absolute "
        "paths",
        id="working-directory",
    )


def _out_of_memory() -> LimitError:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    why = "the system gave no more memory"
    if limit != resource.RLIM_INFINITY:
        why += f" (this process may use {limit >> 20} MiB: ulimit -v)"
    return LimitError(
        "out of memory",
        why=why,
        hint="choose fewer variables or a slice, or raise the limit",
        id="out-of-memory",
    )
