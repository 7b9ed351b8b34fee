"""Moves a range of one file to the end of another, inside the kernel where it can.

``copy_file_range`` saves the way through this process, and on file systems that share
extents it copies nothing at all. Where it is not to be had (another file system, an old
kernel, macOS), the bytes are read and written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ckpttool.errors import IncompleteError
from ckpttool.storage.base import ReadableFile

__all__ = ["copy_range"]

_AT_ONCE = 2**30
_BUFFER = 2**20
_NOT_HERE = {
    errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY,
    errno.EPERM,
}  # fmt: skip


def copy_range(
    source: ReadableFile, offset: int, size: int, descriptor: int, write: Callable[[bytes], None]
) -> None:
    """Append bytes of ``source`` to the open file ``descriptor``.

    Args:
        source: the file that is read.
        offset: of its first byte.
        size: how many.
        descriptor: of the file that is written, at its end.
        write: appends to the same file, for where the kernel does not copy.

    Raises:
        IncompleteError: id ``short-read``: the source ends before.
        OSError: the system failed to write.
        StorageError: it failed to read.
    """
    copy = getattr(os, "copy_file_range", None)
    reader = source.fileno()
    while size and copy is not None and reader is not None:
        try:
            done = copy(reader, descriptor, min(size, _AT_ONCE), offset)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            break
        if not done:
            raise IncompleteError(
                f"{source.path} ends too early",
                why=f"{size} bytes wanted at offset {offset}, but the file ends there",
                hint="copy the file again from where it is whole",
                id="short-read",
            )
        offset += done
        size -= done
    while size:
        part = source.pread(offset, min(size, _BUFFER))
        write(part)
        offset += len(part)
        size -= len(part)
