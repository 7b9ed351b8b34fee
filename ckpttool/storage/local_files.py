"""Local files: one that is read by range, and one that appears whole or not at all."""

from __future__ import annotations

import errno
import os
from stat import S_IMODE
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

from ckpttool.errors import IncompleteError
from ckpttool.storage.base import FileStat, ReadableFile
from ckpttool.storage.copying import AT_ONCE, copy_range, set_aside, up_to_border
from ckpttool.storage.system import exists_error, fsync, raise_os_error

if TYPE_CHECKING:
    from ckpttool.storage.local import LocalDirectory

__all__ = ["OWN_PREFIX", "TEMPORARY_SUFFIX", "LocalFile", "LocalNewFile", "unfinished"]

TEMPORARY_SUFFIX = ".ckpttool-tmp"
#: Files of our own beside a person's: journals, and files that have no name yet.
OWN_PREFIX = ".ckpttool-"
#: What a file system says that has no hard links (FAT, many that are another machine's).
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class LocalFile:
    """A regular file opened read-only through its directory's descriptor."""

    __slots__ = ("_directory", "_fd", "_path", "_stat")

    def __init__(
        self, fd: int, path: str, stat: FileStat, directory: LocalDirectory | None = None
    ) -> None:
        self._fd = fd
        self._path = path
        self._stat = stat
        self._directory = directory

    @property
    def path(self) -> str:
        return self._path

    @property
    def stat(self) -> FileStat:
        return self._stat

    def pread(self, offset: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    raise IncompleteError(
                        f"{self._path} ends too early",
                        why=f"{size} bytes wanted at offset {offset}, "
                        f"but the file has {offset + len(data)}",
                        hint="copy the file again from where it is whole",
                        id="short-read",
                    )
                data += more
        except OSError as error:
            raise_os_error(error, f"cannot read {self._path} at offset {offset}")
        return data

    def fileno(self) -> int | None:
        return self._fd

    def sync(self) -> None:
        """Make the bytes of a file durable that another program wrote."""
        try:
            fsync(self._fd)
        except OSError as error:
            raise_os_error(error, f"cannot make {self._path} durable")

    def changed(self) -> bool:
        try:
            now = os.fstat(self._fd)
        except OSError:
            return True  # ESTALE: what was opened is no longer there
        before = self._stat
        if now.st_nlink == 0 or (now.st_size, now.st_mtime_ns) != (before.size, before.mtime_ns):
            return True
        try:
            # In its directory while that is open: the path counts from a working directory
            # that a program may leave.
            where = self._directory
            if where is None or where.descriptor < 0:
                named = os.lstat(self._path)
            else:
                named = os.stat(before.name, dir_fd=where.descriptor, follow_symlinks=False)
        except OSError:
            return True
        return (named.st_ino, named.st_dev) != (before.inode, before.device)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def unfinished(name: str) -> str:
    """What a file with a name of our own is called until its bytes are durable."""
    return f"{name}~"


class LocalNewFile:
    """A file under a temporary name in its own directory, until it is committed."""

    def __init__(
        self, directory: LocalDirectory, name: str, *, overwrite: bool, expected: FileStat | None
    ) -> None:
        self._directory = directory
        self._name = name
        self._overwrite = overwrite
        self._expected = expected
        # A long name with our suffix could pass the 255 bytes that a file system allows.
        # A name of our own is written under a lock: what a killed process left of it is
        # simply written over, and whoever cleans up finds it by its beginning.
        own = name.startswith(OWN_PREFIX)
        half = f".{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
        self._temporary = unfinished(name) if own else half
        self._path = os.path.join(directory.path, name)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_TRUNC if own else os.O_EXCL
        try:
            self._fd = os.open(self._temporary, flags, 0o666, dir_fd=directory.descriptor)
        except OSError as error:
            raise_os_error(error, f"cannot create {self._path}")

    def reserve(self, size: int) -> None:
        try:
            set_aside(self._fd, size)
        except OSError as error:
            raise_os_error(error, f"cannot make room for {self._path}")

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while len(view) > AT_ONCE:
                place = os.lseek(self._fd, 0, os.SEEK_CUR)
                view = view[os.write(self._fd, view[: up_to_border(place, AT_ONCE)]) :]
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise_os_error(error, f"cannot write {self._path}")

    def copy(self, source: ReadableFile, offset: int, size: int) -> None:
        try:
            copy_range(source, offset, size, self._fd, self.write)
        except OSError as error:
            raise_os_error(error, f"cannot copy from {source.path} to {self._path}")

    def seekable(self) -> BinaryIO:
        return open(os.dup(self._fd), "r+b", buffering=0)

    def commit(self) -> None:
        where = self._directory.descriptor
        try:
            if self._overwrite and self._expected is not None:
                self._take_rights()
            fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
            if self._overwrite:
                if self._expected is not None:
                    os.utime(self._temporary, ns=(self._expected.mtime_ns,) * 2, dir_fd=where)
                    self._directory.check_same(self._expected)
                os.replace(self._temporary, self._name, src_dir_fd=where, dst_dir_fd=where)
            else:
                self._take_free_name(where)
            self._temporary = ""
            fsync(where)
        except FileExistsError:
            raise exists_error(self._path) from None
        except OSError as error:
            raise_os_error(error, f"cannot write {self._path}")

    def _take_free_name(self, where: int) -> None:
        """Take the name if nothing has it, at once where the file system has hard links."""
        try:
            os.link(
                self._temporary,
                self._name,
                src_dir_fd=where,
                dst_dir_fd=where,
                follow_symlinks=False,
            )
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if self._directory.stat(self._name) is not None:
                raise exists_error(self._path) from None
            os.rename(self._temporary, self._name, src_dir_fd=where, dst_dir_fd=where)
        else:
            os.unlink(self._temporary, dir_fd=where)

    def _take_rights(self) -> None:
        """Take the owner and the mode of the file whose place this one takes, where it may."""
        where = self._directory.descriptor
        try:
            old = os.stat(self._name, dir_fd=where, follow_symlinks=False)
        except FileNotFoundError:
            return  # that it has gone is said when its place is taken
        try:
            os.fchown(self._fd, old.st_uid, old.st_gid)
        except PermissionError:
            pass  # only the superuser gives files away
        os.fchmod(self._fd, S_IMODE(old.st_mode))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._temporary:
            try:
                os.unlink(self._temporary, dir_fd=self._directory.descriptor)
            except OSError as error:
                if value is None:
                    raise_os_error(error, f"cannot remove the temporary file of {self._path}")
            self._temporary = ""
