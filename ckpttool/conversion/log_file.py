"""The file of ``--log``, to whose end a child's messages are added: only to a log of ours.

Its first line says what it is, so that a slip of the pen adds nothing to anybody's file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ckpttool.errors import UsageError
from ckpttool.storage import require_directory, stat_path
from ckpttool.storage.system import raise_os_error

__all__ = ["FIRST_LINE", "begin_log", "require_log"]

FIRST_LINE = "ckpttool: a log of what TensorFlow and the model's code said"


def require_log(path: str, results: Iterable[str] = ()) -> None:
    """Check that a log may be written: over nothing, or at the end of another log.

    Args:
        path: as it was given.
        results: what is written besides; a directory stands for all that is in it.

    Raises:
        NotFoundError: id ``destination-directory``: there is no directory to write into.
        UsageError: ids ``output-not-a-file``, ``log-other``.
        PermissionDeniedError, StorageError: as the system says.
    """
    folder, name = os.path.split(path)
    require_directory(folder, path)
    there = stat_path(path)
    here = os.path.realpath(path)
    for result in map(os.path.realpath, results):
        if here == result or here.startswith(os.path.join(result, "")):
            raise _no_file(path, f"{result} is another file of the result, or the result itself")
    if not name or (there is not None and there.kind != "file"):
        raise _no_file(path, "it is no regular file")
    if there is not None and there.size and not _is_log(path):
        raise UsageError(
            f"{path} exists, and is no log of ckpttool",
            why="a log is added to the end of a former log only",
            hint="choose another name: --log FILE",
            id="log-other",
        )


def begin_log(path: str) -> None:
    """Make a log that is not there yet, or is empty.

    Raises:
        CkpttoolError: as ``require_log``, and as the system says.
    """
    require_log(path)
    try:
        with open(path, "ab") as file:
            if not file.tell():
                file.write(f"{FIRST_LINE}\n".encode())
    except OSError as error:
        raise_os_error(error, f"cannot write {path}")


def _is_log(path: str) -> bool:
    wanted = FIRST_LINE.encode()
    try:
        with open(path, "rb") as file:
            return file.read(len(wanted)) == wanted
    except OSError as error:
        raise_os_error(error, f"cannot read {path}")


def _no_file(path: str, why: str) -> UsageError:
    return UsageError(
        f"the log cannot be written to {path!r}",
        why=why,
        hint="give the name of a file of its own: --log FILE",
        id="output-not-a-file",
    )
