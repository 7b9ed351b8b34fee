"""Local files: directory descriptors, no link followed, never a glob, atomic writes.

A name is opened relative to its directory's descriptor with O_NOFOLLOW, and is checked
to be a regular file *after* it is open, so nothing can be swapped in between; O_NONBLOCK
keeps a pipe that is named like a shard from hanging the reader.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from collections.abc import Iterator
from types import TracebackType
from typing import NoReturn, Self

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    IncompleteError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
    UnsafeError,
)
from ckpttool.storage.base import Directory, FileKind, FileStat, ReadableFile
from ckpttool.storage.copying import copy_range

__all__ = [
    "OWN_PREFIX",
    "TEMPORARY_SUFFIX",
    "LocalDirectory",
    "LocalFile",
    "LocalNewFile",
    "open_directory",
    "raise_os_error",
    "stat_path",
]

TEMPORARY_SUFFIX = ".ckpttool-tmp"
#: Files of our own beside a person's: journals, and files that have no name yet.
OWN_PREFIX = ".ckpttool-"

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
    raise kind(what, why=why, hint=hint) from error


def _kind_of(mode: int) -> FileKind:
    if stat_module.S_ISREG(mode):
        return "file"
    if stat_module.S_ISDIR(mode):
        return "directory"
    return "link" if stat_module.S_ISLNK(mode) else "other"


def _stat_of(name: str, result: os.stat_result) -> FileStat:
    return FileStat(
        name,
        _kind_of(result.st_mode),
        result.st_size,
        result.st_mtime_ns,
        result.st_ino,
        result.st_dev,
    )


def stat_path(path: str) -> FileStat | None:
    """What a path that a *person* gave is; links are followed; None where nothing is.

    Raises:
        PermissionDeniedError, StorageError: the system does not say.
    """
    try:
        return _stat_of(os.path.basename(path), os.stat(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # ValueError: a NUL in the path, which no file can have
    except OSError as error:
        if error.errno in {errno.ENAMETOOLONG, errno.ELOOP}:
            return None
        raise_os_error(error, f"cannot look at {path}")


class LocalFile:
    """A regular file opened read-only through its directory's descriptor."""

    __slots__ = ("_fd", "_path", "_stat")

    def __init__(self, fd: int, path: str, stat: FileStat) -> None:
        self._fd = fd
        self._path = path
        self._stat = stat

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

    def changed(self) -> bool:
        now = os.fstat(self._fd)
        before = self._stat
        if now.st_nlink == 0 or (now.st_size, now.st_mtime_ns) != (before.size, before.mtime_ns):
            return True
        try:
            named = os.lstat(self._path)
        except OSError:
            return True
        return (named.st_ino, named.st_dev) != (before.inode, before.device)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


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
        self._temporary = f"{name}~" if own else f".{os.urandom(8).hex()}{TEMPORARY_SUFFIX}"
        self._path = os.path.join(directory.path, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_TRUNC if own else os.O_EXCL
        try:
            self._fd = os.open(self._temporary, flags, 0o666, dir_fd=directory.descriptor)
        except OSError as error:
            raise_os_error(error, f"cannot create {self._path}")

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            raise_os_error(error, f"cannot write {self._path}")

    def copy(self, source: ReadableFile, offset: int, size: int) -> None:
        try:
            copy_range(source, offset, size, self._fd, self.write)
        except OSError as error:
            raise_os_error(error, f"cannot copy from {source.path} to {self._path}")

    def commit(self) -> None:
        where = self._directory.descriptor
        try:
            _fsync(self._fd)
            os.close(self._fd)
            self._fd = -1
            if self._overwrite:
                if self._expected is not None:
                    os.utime(self._temporary, ns=(self._expected.mtime_ns,) * 2, dir_fd=where)
                    self._directory.check_same(self._expected)
                os.replace(self._temporary, self._name, src_dir_fd=where, dst_dir_fd=where)
            else:
                os.link(self._temporary, self._name, src_dir_fd=where, dst_dir_fd=where)
                os.unlink(self._temporary, dir_fd=where)
            self._temporary = ""
            _fsync(where)
        except FileExistsError:
            raise exists_error(self._path) from None
        except OSError as error:
            raise_os_error(error, f"cannot write {self._path}")

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


def exists_error(path: str) -> RefusedError:
    """The refusal to write over something."""
    return RefusedError(
        f"{path} exists",
        why="an existing destination is never overwritten unasked",
        hint="add --overwrite, or choose another name",
        id="exists",
    )


def _fsync(fd: int) -> None:
    """Flush to the device; a file system that has no fsync for this (EINVAL) is tolerated."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise


class LocalDirectory:
    """A directory held open by its descriptor."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self.descriptor = descriptor

    @property
    def path(self) -> str:
        return self._path

    def _join(self, name: str) -> str:
        return name if self._path in {"", "."} else os.path.join(self._path, name)

    def _check(self, name: str) -> None:
        if name in {"", ".", ".."} or "/" in name or "\0" in name:
            raise UnsafeError(
                f"{name!r} is not a plain file name",
                why=f"only names inside {self._path} are opened",
                id="unsafe-path",
            )

    def scan(self) -> Iterator[FileStat]:
        try:
            with os.scandir(self.descriptor) as entries:
                for entry in entries:
                    try:
                        yield _stat_of(entry.name, entry.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue  # removed between the listing and the look
        except OSError as error:
            raise_os_error(error, f"cannot list {self._path}")

    def itself(self) -> FileStat:
        try:
            return _stat_of(os.path.basename(self._path), os.fstat(self.descriptor))
        except OSError as error:
            raise_os_error(error, f"cannot look at {self._path}")

    def stat(self, name: str) -> FileStat | None:
        self._check(name)
        try:
            return _stat_of(name, os.stat(name, dir_fd=self.descriptor, follow_symlinks=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise_os_error(error, f"cannot look at {self._join(name)}")

    def open(self, name: str) -> LocalFile:
        self._check(name)
        path = self._join(name)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENXIO}:
                self._refuse(name, "link" if error.errno == errno.ELOOP else "other")
            raise_os_error(error, f"cannot open {path}")
        stat = _stat_of(name, os.fstat(fd))
        if stat.kind != "file":
            os.close(fd)
            self._refuse(name, stat.kind)
        return LocalFile(fd, path, stat)

    def _refuse(self, name: str, kind: FileKind) -> NoReturn:
        path = self._join(name)
        if kind == "link":
            try:
                target = os.readlink(name, dir_fd=self.descriptor)
            except OSError:
                target = "an unknown place"
            raise UnsafeError(
                f"{path} is a symbolic link",
                why=f"it points to {target}, and links are not followed out of a checkpoint",
                hint=f"copy the checkpoint with its links resolved: cp -rL {self._path} COPY",
                id="unsafe-link",
            )
        raise UnsafeError(
            f"{path} is not a regular file",
            why=f"it is a {'directory' if kind == 'directory' else 'pipe, socket or device'}",
            id="unsafe-file",
        )

    def create(
        self, name: str, *, overwrite: bool = False, expected: FileStat | None = None
    ) -> LocalNewFile:
        self._check(name)
        if not overwrite and self.stat(name) is not None:
            raise exists_error(self._join(name))
        return LocalNewFile(self, name, overwrite=overwrite, expected=expected)

    def directory(self, name: str, *, create: bool = False) -> LocalDirectory:
        self._check(name)
        path = self._join(name)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if create:
                try:
                    os.mkdir(name, dir_fd=self.descriptor)
                except FileExistsError:
                    pass  # what it is, the open below finds out
            return LocalDirectory(path, os.open(name, flags, dir_fd=self.descriptor))
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                found = self.stat(name)
                if found is not None and found.kind != "directory":
                    self._refuse(name, found.kind)
            raise_os_error(error, f"cannot open the directory {path}")

    def remove(self, expected: FileStat) -> None:
        self.check_same(expected)
        try:
            os.unlink(expected.name, dir_fd=self.descriptor)
        except OSError as error:
            raise_os_error(error, f"cannot remove {self._join(expected.name)}")

    def remove_directory(self, name: str) -> None:
        self._check(name)
        try:
            os.rmdir(name, dir_fd=self.descriptor)
        except OSError as error:
            raise_os_error(error, f"cannot remove the directory {self._join(name)}")

    def move(self, expected: FileStat, destination: Directory, name: str) -> None:
        self._check(name)
        self.check_same(expected)
        if not isinstance(destination, LocalDirectory):
            raise TypeError("files move between directories of one storage")
        source, target = self.descriptor, destination.descriptor
        try:
            if destination.stat(name) is not None:
                raise exists_error(os.path.join(destination.path, name))
            os.rename(expected.name, name, src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            raise_os_error(error, f"cannot move {self._join(expected.name)}")

    def link(self, expected: FileStat, destination: Directory, name: str) -> None:
        self._check(name)
        self.check_same(expected)
        if not isinstance(destination, LocalDirectory):
            raise TypeError("files are linked between directories of one storage")
        try:
            os.link(
                expected.name,
                name,
                src_dir_fd=self.descriptor,
                dst_dir_fd=destination.descriptor,
                follow_symlinks=False,
            )
        except FileExistsError:
            raise exists_error(os.path.join(destination.path, name)) from None
        except OSError as error:
            raise_os_error(error, f"cannot link {self._join(expected.name)}")

    def free_bytes(self) -> int:
        try:
            system = os.fstatvfs(self.descriptor)
        except OSError as error:
            raise_os_error(error, f"cannot look at the file system of {self._path}")
        return system.f_bavail * system.f_frsize

    def sync(self) -> None:
        try:
            _fsync(self.descriptor)
        except OSError as error:
            raise_os_error(error, f"cannot make the changes in {self._path} durable")

    def check_same(self, expected: FileStat) -> None:
        """Whether a name still stands for the file that was looked at."""
        now = self.stat(expected.name)
        if now == expected:
            return
        path = self._join(expected.name)
        raise ChangedError(
            f"{path} is not the file that was looked at",
            why="it has gone"
            if now is None
            else f"it was replaced or written to: {now.size} bytes now, {expected.size} before",
            hint="run the command again",
        )

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_directory(path: str) -> LocalDirectory:
    """Open a directory that a *person* named (links in the path are followed).

    Raises:
        NotFoundError: nothing is there, or it is no directory.
        PermissionDeniedError, StorageError: as the system says.
    """
    try:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise_os_error(error, f"cannot open the directory {path or '.'}")
    return LocalDirectory(path or ".", descriptor)
