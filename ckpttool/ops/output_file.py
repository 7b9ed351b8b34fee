"""Where a file that is no checkpoint is written: values, a report."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpttool.errors import NotFoundError, UsageError
from ckpttool.storage import open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.storage import Directory

__all__ = ["output_place"]


@contextmanager
def output_place(path: str) -> Iterator[tuple[Directory, str]]:
    """The directory of a file that is to be written, and its name there.

    Raises:
        NotFoundError: id ``destination-directory``: there is no such directory.
        UsageError: id ``output-not-a-file``: something else has the name.
    """
    folder, name = os.path.split(path)
    above = stat_path(folder or ".")
    if above is None or above.kind != "directory":
        raise NotFoundError(
            f"cannot write {path}",
            why=f"there is no directory {folder}",
            hint=f"mkdir -p {shlex.quote(folder)}",
            id="destination-directory",
        )
    with open_directory(folder) as directory:
        there = directory.stat(name) if name else None
        if not name or (there and there.kind in {"directory", "other"}):
            raise UsageError(
                f"{path} cannot be written",
                why="it is no regular file, but a directory or a device",
                hint="give the name of a file",
                id="output-not-a-file",
            )
        yield directory, name
