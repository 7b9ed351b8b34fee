"""The operating system's answers in our words: errors, kinds of entries, durability."""

from __future__ import annotations

import errno
import os
import stat as stat_module
from contextlib import suppress
from typing import NoReturn

from ckpttool.errors import (
    CkpttoolError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
)
from ckpttool.storage.base import FileKind, FileStat

__all__ = [
    "allow_open_files",
    "exists_error",
    "fsync",
    "keep_buffers",
    "kind_of",
    "raise_os_error",
    "stat_of",
]

#: Just below the most that the allocator learns from.
_LARGE_BUFFER = 31 * 2**20

_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def raise_os_error(error: OSError, what: str) -> NoReturn:
    """Raise our error for an operating system's, saying ``what`` failed."""
    why = error.strerror or str(error)
    kind: type[CkpttoolError] = StorageError
    hint = "check the disk and the mount, then run the command again"
    if error.errno in _FULL:
        kind, hint = NoSpaceError, "free some space, or write to another disk"
    elif error.errno in _DENIED:
        kind, hint = PermissionDeniedError, "check the owner and the mode (ls -ld) and the mount"
    elif error.errno in {errno.ENOENT, errno.ENOTDIR}:
        kind, hint = NotFoundError, ""
    elif error.errno == errno.ENAMETOOLONG:
        kind, hint = NotFoundError, "the name is longer than the file system allows"
    elif error.errno in {errno.EMFILE, errno.ENFILE}:
        hint = "raise the limit (ulimit -n), or give fewer at once"
    raise kind(what, why=why, hint=hint) from error


def exists_error(path: str) -> RefusedError:
    """The refusal to write over something."""
    return RefusedError(
        f"{path} exists",
        why="an existing destination is never overwritten unasked",
        hint="add --overwrite, or choose another name",
        id="exists",
    )


def fsync(fd: int) -> None:
    """Flush to the device; a file system that has no fsync for this (EINVAL) is tolerated."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


def allow_open_files() -> None:
    """Let this process have as many files open as it may without asking anybody.

    What a shell gives is often 1024, for the sake of programs that use select(2).
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # macOS says infinite, and allows less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def keep_buffers() -> None:
    """Make this process keep the memory of its buffers from one read to the next.

    The GNU allocator gives every block of some MiB back to the system when it is freed, and
    the next one is mapped and cleared page by page, which takes longer than reading into it.
    It learns from a large block that was freed (mallopt(3), M_MMAP_THRESHOLD): this one, whose
    pages are never touched. Elsewhere it does nothing. For work that reads gigabytes.
    """
    with suppress(MemoryError):
        bytes(_LARGE_BUFFER)


def kind_of(mode: int) -> FileKind:
    """What the mode of an entry says it is."""
    if stat_module.S_ISREG(mode):
        return "file"
    if stat_module.S_ISDIR(mode):
        return "directory"
    return "link" if stat_module.S_ISLNK(mode) else "other"


def stat_of(name: str, result: os.stat_result) -> FileStat:
    """What the system says of an entry, in our words."""
    return FileStat(
        name,
        kind_of(result.st_mode),
        result.st_size,
        result.st_mtime_ns,
        result.st_ino,
        result.st_dev,
    )
