"""Appends a range of one file to another, inside the kernel where it can, as fast as it can.

Which way is the quickest depends on where the file lies (measured on Linux 6.18, ext4):

- Where file systems share extents, or are another machine's, ``copy_file_range`` copies
  nothing at all here.
- On a disk of our own it moves 64 KiB at a time. A pipe of a mebibyte takes the pages of the
  source as they are, and each is copied once: that is half the work of ``cp``.
- From one place in a page to another both take 1.5 times as long, and reading and writing
  is quicker, as it is for little.

What the kernel cannot copy at all (an old kernel, macOS, odd file systems) is read and
written too. A file whose size is known is given its blocks at once (fallocate(2)): what is
then written costs a quarter less than where the file system has to find room for one page
after the other, and a disk that is full says so before anything is copied.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from ckpttool.errors import IncompleteError
from ckpttool.storage.base import ReadableFile

__all__ = ["AT_ONCE", "copy_range", "set_aside", "up_to_border"]

#: Bytes of one write. For larger ones Linux looks for memory in large blocks, and where
#: that is in pieces a gigabyte takes a second instead of 0.4.
AT_ONCE = 2**18

#: What file systems share, and copy whole.
_PAGE = 4096
_MOST = 2**30
#: Small enough for the processor's cache; twice as much has been seen to take twice as long.
_BUFFER = 2**19
#: What a pipe may hold without privileges (pipe(7), pipe-max-size); less is not worth one.
_PIPE = 2**20
#: fcntl(2), F_SETPIPE_SZ; Python 3.10 has no name for it.
_SET_PIPE_SIZE = 1031
#: ioctl(2), FICLONERANGE: _IOW(0x94, 13, struct file_clone_range).
_CLONE_RANGE = 0x4020940D
#: From here on asking for all blocks at once saves more time than ``ctypes`` takes to load.
_MANY_BLOCKS = 2**26
#: fallocate(2): the size of the file stays what it is.
_KEEP_SIZE = 1
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NOT_HERE = {
    errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY,
    errno.EPERM, errno.EMFILE, errno.ENFILE,
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
    reader = source.fileno()
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    if reader is not None:
        done = 0
        for moved in _moved(reader, offset, size, descriptor, place):
            if not moved:
                _ends_early(source, offset + done, size - done)
            done += moved
        offset, size, place = offset + done, size - done, place + done
    while size:
        part = source.pread(offset, min(size, up_to_border(place, _BUFFER)))
        write(part)
        offset, size, place = offset + len(part), size - len(part), place + len(part)
        del part  # so that the next one takes its memory, which is in the cache


def up_to_border(place: int, step: int) -> int:
    """Bytes from a place in a new file to the next multiple of ``step``.

    What is written from one of these to the next takes the least time: the pages of a file are
    kept in blocks of 2**n of them that begin at multiples of their size, and a block that is
    begun in its middle is cut into many.
    """
    return step - place % step


def _moved(reader: int, offset: int, size: int, descriptor: int, place: int) -> Iterator[int]:
    """Have the kernel copy; the bytes of each of its steps, 0 where the source ends.

    Ends before all is done where another way is quicker, or the only one.
    """
    try:
        if not _on_own_disk(descriptor) or _shares_extents(reader, descriptor):
            yield from _by_copy_file_range(reader, offset, size, descriptor)
        elif size >= _PIPE and offset % _PAGE == place % _PAGE:
            yield from _through_pipe(reader, offset, size, descriptor, place)
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise


def _by_copy_file_range(reader: int, offset: int, size: int, descriptor: int) -> Iterator[int]:
    copy = getattr(os, "copy_file_range", None)
    while size and copy is not None:
        done = copy(reader, descriptor, min(size, _MOST), offset)
        yield done
        offset, size = offset + done, size - done


def _through_pipe(
    reader: int, offset: int, size: int, descriptor: int, place: int
) -> Iterator[int]:
    splice = getattr(os, "splice", None)
    if splice is None:
        return
    with _pipe() as (outlet, inlet):
        while size:
            wanted = min(size, up_to_border(place, _PIPE))
            taken = splice(reader, inlet, wanted, offset_src=offset)
            if not taken:
                yield 0
            offset, size = offset + taken, size - taken
            while taken:
                done = splice(outlet, descriptor, min(taken, up_to_border(place, AT_ONCE)))
                yield done
                place, taken = place + done, taken - done


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that holds ``_PIPE`` bytes; OSError: there is none so large."""
    from fcntl import fcntl

    outlet, inlet = os.pipe()
    try:
        fcntl(inlet, _SET_PIPE_SIZE, _PIPE)
        yield outlet, inlet
    finally:
        os.close(outlet)
        os.close(inlet)


def _ends_early(source: ReadableFile, offset: int, size: int) -> NoReturn:
    raise IncompleteError(
        f"{source.path} ends too early",
        why=f"{size} bytes wanted at offset {offset}, but the file ends there",
        hint="copy the file again from where it is whole",
        id="short-read",
    )


def set_aside(descriptor: int, size: int) -> None:
    """Have the file system find room behind the beginning of a new file, where that pays.

    ``os.posix_fallocate`` is not used: where a file system cannot do this, glibc writes to
    every block instead.

    Raises:
        OSError: ENOSPC or EDQUOT: there is no room.
    """
    if size < _MANY_BLOCKS or sys.platform != "linux" or not _on_own_disk(descriptor):
        return
    import ctypes

    allocate = ctypes.CDLL(None, use_errno=True).fallocate
    allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if allocate(descriptor, _KEEP_SIZE, 0, size) and ctypes.get_errno() in _FULL:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _on_own_disk(descriptor: int) -> bool:
    """Not of another machine, layered, in memory, or copy-on-write: these have no device."""
    return os.major(os.fstat(descriptor).st_dev) != 0


def _shares_extents(reader: int, descriptor: int) -> bool:
    """Whether the file system can let two files have the same blocks (XFS, made so).

    Asks for what none can do, a single byte in the middle of a block: who could share
    whole ones says EINVAL.
    """
    if sys.platform != "linux":
        return False
    from fcntl import ioctl
    from struct import pack

    try:
        ioctl(descriptor, _CLONE_RANGE, pack("=qQQQ", reader, 1, 1, 0))
    except OSError as error:
        return error.errno == errno.EINVAL
    return False
