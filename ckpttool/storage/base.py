"""What the rest of ckpttool needs of a storage: directories of files, read by range.

The unit is a directory: a checkpoint's files lie in one, and every file is opened by
a plain name inside it, so a name that comes out of a file can never lead elsewhere.
An object store can meet this interface with a listing, ranged reads and one put.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Literal, NamedTuple, Protocol, Self

__all__ = ["Closing", "Directory", "FileKind", "FileStat", "NewFile", "ReadableFile"]

FileKind = Literal["file", "directory", "link", "other"]

#: What a person calls them.
KIND_WORDS: dict[FileKind, str] = {
    "file": "a file",
    "directory": "a directory",
    "link": "a symbolic link",
    "other": "a pipe, socket or device",
}


class Closing(ABC):
    """What is open until ``close``, which ``with`` calls at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class FileStat(NamedTuple):
    """What a directory says of one of its entries; links are not followed."""

    name: str
    kind: FileKind
    size: int
    mtime_ns: int
    inode: int
    device: int


class ReadableFile(Protocol):
    """An open regular file, read by range."""

    @property
    def path(self) -> str:
        """The path as a person would type it, for messages."""
        ...

    @property
    def stat(self) -> FileStat:
        """Size and identity when it was opened."""
        ...

    def pread(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes from ``offset``.

        Raises:
            IncompleteError: id ``short-read``: the file ends before.
            StorageError: the operating system failed.
        """
        ...

    def fileno(self) -> int | None:
        """A descriptor for memory maps and kernel copies; None where there is none."""
        ...

    def changed(self) -> bool:
        """Whether the file was changed or replaced since it was opened."""
        ...

    def close(self) -> None:
        """Release the descriptor; a second call does nothing."""
        ...


class NewFile(Protocol):
    """A file being written: it appears under its name whole, at ``commit``, or never."""

    def reserve(self, size: int) -> None:
        """Say that so many bytes are going to be appended, and no fewer.

        Raises:
            NoSpaceError: the system knows already that they do not fit.
        """
        ...

    def write(self, data: bytes | memoryview) -> None:
        """Append.

        Raises:
            NoSpaceError, PermissionDeniedError, StorageError: as the system says.
        """
        ...

    def copy(self, source: ReadableFile, offset: int, size: int) -> None:
        """Append ``size`` bytes of another file from ``offset``, as fast as can be.

        Raises:
            IncompleteError: id ``short-read``: the source ends before.
            NoSpaceError, PermissionDeniedError, StorageError: as the system says.
        """
        ...

    def seekable(self) -> BinaryIO:
        """The file as a library takes it that seeks and reads back: unbuffered, to be closed.

        Whoever uses it leaves `write` and `copy` alone.
        """
        ...

    def commit(self) -> None:
        """Make it durable and give it its name."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Directory(Protocol):
    """An open directory."""

    @property
    def path(self) -> str:
        """The path as a person would type it, for messages."""
        ...

    def scan(self) -> Iterator[FileStat]:
        """Every entry once, in no order, in one pass."""
        ...

    def itself(self) -> FileStat:
        """The directory's own identity and time."""
        ...

    def stat(self, name: str) -> FileStat | None:
        """One entry, or None where there is none."""
        ...

    def open(self, name: str) -> ReadableFile:
        """Open a regular file for reading.

        Raises:
            NotFoundError: no such entry.
            UnsafeError: a link, a device, a pipe, or a name that is no plain name.
            PermissionDeniedError, StorageError: as the system says.
        """
        ...

    def create(
        self, name: str, *, overwrite: bool = False, expected: FileStat | None = None
    ) -> NewFile:
        """Start a file that appears as ``name`` when it is committed.

        With ``expected``, it takes the place of that very file or of none, and its time.

        Raises:
            RefusedError: id ``exists``: the name is taken and ``overwrite`` is false
                (also when it is taken only at commit).
            ChangedError: at commit: the name stands for another file than ``expected``.
        """
        ...

    def directory(self, name: str, *, create: bool = False) -> Directory:
        """Open a directory inside this one, without following a link; or make it.

        Raises:
            NotFoundError: no such entry. UnsafeError: it is a link, or no directory.
        """
        ...

    def remove(self, expected: FileStat) -> None:
        """Remove a file, if it is still the one that was looked at.

        Raises:
            ChangedError: the name stands for another file now, or for none.
        """
        ...

    def remove_directory(self, name: str) -> None:
        """Remove an empty directory inside this one."""
        ...

    def move(self, expected: FileStat, destination: Directory, name: str) -> None:
        """Move a file into another directory of the same storage, under a free name.

        Raises:
            ChangedError: as ``remove``. RefusedError: id ``exists``: the name is taken.
        """
        ...

    def link(self, expected: FileStat, destination: Directory, name: str) -> None:
        """Give a file a second name, in another directory of the same storage.

        Raises:
            ChangedError: as ``remove``. RefusedError: id ``exists``: the name is taken.
            StorageError, PermissionDeniedError: the two have no file system in common, or
                it has no links.
        """
        ...

    def free_bytes(self) -> int:
        """Bytes that may still be written to its file system."""
        ...

    def sync(self) -> None:
        """Make removals and moves durable, so that later ones cannot survive alone."""
        ...

    def close(self) -> None:
        """Release the directory; open files stay usable."""
        ...
