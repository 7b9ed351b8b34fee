"""A lock on a directory: one of our writers at a time, and a dead one's lock is taken over.

The kernel holds the lock (``flock`` on a small file) and lets go of it when the holder
dies, whatever way. The file's text says who held it; text that is still there once the
lock is ours was left by a holder that died before it could clear it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from types import TracebackType
from typing import Self

from ckpttool.errors import ChangedError
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.system import raise_os_error

__all__ = ["LOCK_NAME", "DirectoryLock", "is_locked"]

LOCK_NAME = ".ckpttool-lock"
_NOTE_BYTES = 200
#: Who asks ``is_locked`` holds the lock for an instant: seconds after which it is looked at again.
_AGAIN = (0.001, 0.01, 0.05)


def is_locked(directory: LocalDirectory) -> bool:
    """Whether a living process holds the lock of a directory, as far as can be seen.

    A lock that may not be looked at counts as held.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(LOCK_NAME, flags, dir_fd=directory.descriptor)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


class DirectoryLock:
    """Held from ``__enter__`` to ``__exit__``.

    Attributes:
        taken_over: who held it and died, as it called itself; empty when nobody did.
    """

    def __init__(self, directory: LocalDirectory) -> None:
        self._directory = directory
        self._fd = -1
        self.taken_over = ""

    def __enter__(self) -> Self:
        """Take the lock at once, or fail.

        Raises:
            ChangedError: id ``locked``: another living process holds it.
            PermissionDeniedError, NoSpaceError, StorageError: as the system says.
        """
        where = self._directory.descriptor
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        what = f"cannot lock {self._directory.path}"
        try:
            while True:
                self._fd = os.open(LOCK_NAME, flags, 0o666, dir_fd=where)
                self._lock()
                if self._is_current():
                    break
                self._close()  # its last holder removed it while we opened it
            self.taken_over = self._note()
            os.ftruncate(self._fd, 0)
            self._say_who()
        except OSError as error:
            held = error.errno in {errno.EAGAIN, errno.EACCES} and self._fd >= 0
            note = self._note() if held else ""
            self._close()
            if held:
                raise ChangedError(
                    f"{self._directory.path} is being changed by another ckpttool",
                    why=f"{note or 'another process'} holds its lock",
                    hint="wait until it has finished, then run the command again",
                    id="locked",
                ) from None
            raise_os_error(error, what)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            os.ftruncate(self._fd, 0)
            os.unlink(LOCK_NAME, dir_fd=self._directory.descriptor)
        except OSError:
            pass  # the kernel lets go of it all the same
        self._close()

    def _lock(self) -> None:
        for pause in _AGAIN:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(pause)
            else:
                return
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _say_who(self) -> None:
        """Leave a note in the file; on a full disk it holds as well without."""
        try:
            os.pwrite(self._fd, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise

    @property
    def note(self) -> str:
        """What a person should know about a lock that was taken over."""
        return f"the lock was taken over from {self.taken_over}, which died without clearing it"

    def _is_current(self) -> bool:
        """Whether the name still stands for the file that is locked."""
        try:
            named = os.stat(LOCK_NAME, dir_fd=self._directory.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        ours = os.fstat(self._fd)
        return (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev)

    def _note(self) -> str:
        return os.pread(self._fd, _NOTE_BYTES, 0).decode("utf-8", "replace").strip()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
