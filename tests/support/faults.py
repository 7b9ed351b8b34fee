"""A directory whose n-th read fails: as a dying disk does, or as a file that was cut short.

    faults = Faults(fail_at=3, how="eio")
    directory = faulty(open_directory("run"), faults)

With ``fail_at=None`` nothing fails and the reads are counted.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ckpttool.errors import IncompleteError
from ckpttool.storage import Directory, FileStat, ReadableFile
from ckpttool.storage.system import raise_os_error

__all__ = ["Faults", "FaultyFile", "faulty"]


@dataclass
class Faults:
    """Which read fails (counted from 1, over all files) and how; what was read so far."""

    fail_at: int | None = None
    how: Literal["eio", "short"] = "eio"
    reads: list[tuple[str, int, int]] = field(default_factory=list)

    def before(self, path: str, offset: int, size: int) -> None:
        self.reads.append((path, offset, size))
        if len(self.reads) != self.fail_at:
            return
        if self.how == "short":
            raise IncompleteError(
                f"{path} ends too early", why=f"{size} bytes wanted at {offset}", id="short-read"
            )
        raise_os_error(OSError(errno.EIO, os.strerror(errno.EIO)), f"cannot read {path}")


class FaultyFile:
    """A file that asks `Faults` before each read."""

    def __init__(self, file: ReadableFile, faults: Faults) -> None:
        self._file = file
        self._faults = faults

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def stat(self) -> FileStat:
        return self._file.stat

    def pread(self, offset: int, size: int) -> bytes:
        self._faults.before(self.path, offset, size)
        return self._file.pread(offset, size)

    def fileno(self) -> int | None:
        return None  # a kernel copy or a map would pass by the faults

    def changed(self) -> bool:
        return self._file.changed()

    def close(self) -> None:
        self._file.close()


class _FaultyDirectory:
    """A directory that opens `FaultyFile`s; everything else is the real one's."""

    def __init__(self, directory: Directory, faults: Faults) -> None:
        self._directory = directory
        self._faults = faults

    def open(self, name: str) -> ReadableFile:
        return FaultyFile(self._directory.open(name), self._faults)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)


def faulty(directory: Directory, faults: Faults) -> Directory:
    """The same directory, whose files fail as ``faults`` says."""
    return cast(Directory, _FaultyDirectory(directory, faults))
