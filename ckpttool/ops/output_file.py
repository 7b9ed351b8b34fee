"""Where a file that is no checkpoint is written: values, a report."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ckpttool.errors import RefusedError, UsageError
from ckpttool.storage import open_directory, require_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.model import Shard
    from ckpttool.storage import Directory

__all__ = ["output_place", "require_no_source"]


@contextmanager
def output_place(path: str) -> Iterator[tuple[Directory, str]]:
    """The directory of a file that is to be written, and its name there.

    Raises:
        NotFoundError: id ``destination-directory``: there is no such directory.
        UsageError: id ``output-not-a-file``: something else has the name.
    """
    folder, name = os.path.split(path)
    require_directory(folder, path)
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


def require_no_source(path: str, location: str, shards: Iterable[Shard]) -> None:
    """Check that a file to be written is none of those that it is made of.

    Args:
        path: the file.
        location: of the source: a file, or the prefix of a checkpoint.
        shards: the source's data files.

    Raises:
        RefusedError: id ``output-is-source``.
    """
    there = stat_path(path)
    if there is None:
        return
    for used in (location, f"{location}.index", *(shard.path for shard in shards)):
        found = stat_path(used)
        if found and (found.device, found.inode) == (there.device, there.inode):
            raise RefusedError(
                f"{path} is not replaced",
                why=f"it is a file of {location}, which is read",
                hint="give another name",
                id="output-is-source",
            )
