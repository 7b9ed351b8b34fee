"""A file that another file names, opened only where it lies inside the same directory.

The path comes out of a file that nobody vouches for (a TensorFlow.js manifest, an ONNX
model's external data): it may lead into folders below, never up, never through a link.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from ckpttool.errors import UnsafeError

if TYPE_CHECKING:
    from ckpttool.storage.base import Directory, ReadableFile

__all__ = ["open_inside"]


def open_inside(directory: Directory, path: str, who: str) -> ReadableFile:
    """Open a file that ``who`` names.

    Raises:
        UnsafeError: id ``unsafe-path``: the path is absolute, leads up, or has odd parts; or
            a folder or the file is a link or a device.
        NotFoundError: there is no such file.
        PermissionDeniedError, StorageError: as the system says.
    """
    parts = path.split("/")
    if "\\" in path or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise UnsafeError(
            f"{who} names the file {path}",
            why="it would be outside the directory, or is no plain name",
            hint="put the file beside it, and its plain name into it",
            id="unsafe-path",
        )
    with ExitStack() as folders:
        for part in parts[:-1]:
            directory = folders.enter_context(closing(directory.directory(part)))
        return directory.open(parts[-1])
