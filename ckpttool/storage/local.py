"""Local files: directory descriptors, no link followed, never a glob, atomic writes.

A name is opened relative to its directory's descriptor with O_NOFOLLOW, and is checked
to be a regular file *after* it is open, so nothing can be swapped in between; O_NONBLOCK
keeps a pipe that is named like a shard from hanging the reader.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from stat import S_ISDIR
from typing import NoReturn

from ckpttool.errors import ChangedError, NotFoundError, UnsafeError
from ckpttool.storage.base import KIND_WORDS, Closing, Directory, FileKind, FileStat
from ckpttool.storage.local_files import LocalFile, LocalNewFile
from ckpttool.storage.system import exists_error, fsync, raise_os_error, stat_of

__all__ = ["LocalDirectory", "open_directory", "stat_path"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: Where a file system says none.
_LONGEST_NAME = 255


def stat_path(path: str) -> FileStat | None:
    """What a path that a *person* gave is; links are followed; None where nothing is.

    Raises:
        PermissionDeniedError, StorageError: the system does not say.
    """
    try:
        return stat_of(os.path.basename(path), os.stat(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None  # ValueError: a NUL in the path, which no file can have
    except OSError as error:
        if error.errno in {errno.ENAMETOOLONG, errno.ELOOP}:
            return None
        raise_os_error(error, f"cannot look at {path}")


def require_directory(folder: str, target: str) -> None:
    """Check that a file can be made in a directory.

    Args:
        folder: the directory; empty: the working directory.
        target: what is going to be written, as it was given, for the message.

    Raises:
        NotFoundError: id ``destination-directory``: there is no such directory.
    """
    there = stat_path(folder or ".")
    if there is not None and there.kind == "directory":
        return
    from shlex import quote  # not on the way to a listing

    is_other = there is not None
    raise NotFoundError(
        f"cannot write {target}",
        why=f"{folder} is no directory" if is_other else f"there is no directory {folder}",
        hint="choose another name" if is_other else f"mkdir -p {quote(folder)}",
        id="destination-directory",
    )


def _is_encodable(name: str) -> bool:
    """Whether the system can be asked for it; half a character (a lone surrogate) is no name."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def _changed(descriptor: int, name: str) -> tuple[int, bool]:
    """The later of an entry's times, 0 if it is gone, and whether it is a directory."""
    try:
        found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return 0, False
    return max(found.st_mtime_ns, found.st_ctime_ns), S_ISDIR(found.st_mode)


class LocalDirectory(Closing):
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
        if name in {"", ".", ".."} or "/" in name or "\0" in name or not _is_encodable(name):
            raise UnsafeError(
                f"'{name}' is not a plain file name",
                why=f"only names inside {self._path} are opened",
                id="unsafe-path",
            )

    @property
    def longest_name(self) -> int:
        """Bytes that the name of a file in it may have."""
        try:
            longest = os.fpathconf(self.descriptor, "PC_NAME_MAX")
            return longest if longest > 0 else _LONGEST_NAME
        except OSError as error:
            raise_os_error(error, f"cannot look at {self._path}")

    def scan(self) -> Iterator[FileStat]:
        try:
            # Through a descriptor of its own: one that is only duplicated shares its place in
            # the listing, and two scans at once would divide the entries between them.
            descriptor = os.open(".", _DIRECTORY, dir_fd=self.descriptor)
        except FileNotFoundError:
            return  # it was removed, and so was all that was in it
        except OSError as error:
            raise_os_error(error, f"cannot list {self._path}")
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    try:
                        yield stat_of(entry.name, entry.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue  # removed between the listing and the look
        except OSError as error:
            raise_os_error(error, f"cannot list {self._path}")
        finally:
            os.close(descriptor)

    def itself(self) -> FileStat:
        try:
            return stat_of(os.path.basename(self._path), os.fstat(self.descriptor))
        except OSError as error:
            raise_os_error(error, f"cannot look at {self._path}")

    def stat(self, name: str) -> FileStat | None:
        self._check(name)
        try:
            return stat_of(name, os.stat(name, dir_fd=self.descriptor, follow_symlinks=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise_os_error(error, f"cannot look at {self._join(name)}")

    def newest_change(self, name: str) -> int:
        """When an entry, or anything in it, changed last, in nanoseconds; 0 if it is gone.

        By the later of its two times: a copy that keeps modification times cannot keep the
        time of its last change (ctime), and a directory's own say nothing of files that are
        written to. Directories inside are not entered.

        Raises:
            PermissionDeniedError, StorageError: the system does not say.
        """
        self._check(name)
        try:
            newest, is_directory = _changed(self.descriptor, name)
            if not is_directory:
                return newest
            with self.directory(name) as inside:
                times = [_changed(inside.descriptor, one.name)[0] for one in inside.scan()]
                return max([newest, *times])
        except OSError as error:
            raise_os_error(error, f"cannot look at {self._join(name)}")
        except NotFoundError:
            return newest  # it was removed just now

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
        opened = stat_of(name, os.fstat(fd))
        if opened.kind != "file":
            os.close(fd)
            self._refuse(name, opened.kind)
        return LocalFile(fd, path, opened, self)

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
            why=f"it is {KIND_WORDS[kind]}",
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
        try:
            if create:
                try:
                    os.mkdir(name, dir_fd=self.descriptor)
                except FileExistsError:
                    pass  # what it is, the open below finds out
            descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self.descriptor)
            return LocalDirectory(path, descriptor)
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
            fsync(self.descriptor)
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


def open_directory(path: str) -> LocalDirectory:
    """Open a directory that a *person* named (links in the path are followed).

    Raises:
        NotFoundError: nothing is there, or it is no directory.
        PermissionDeniedError, StorageError: as the system says.
    """
    try:
        descriptor = os.open(path or ".", _DIRECTORY)
    except OSError as error:
        raise_os_error(error, f"cannot open the directory {path or '.'}")
    except ValueError as error:  # a NUL, or half a character
        raise NotFoundError(f"cannot open the directory {path!r}", why=str(error)) from None
    return LocalDirectory(path or ".", descriptor)
