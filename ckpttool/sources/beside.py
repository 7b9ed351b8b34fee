"""Files that another file names, opened only where they lie inside the same directory.

The paths come out of a file that nobody vouches for (a TensorFlow.js manifest, an ONNX
model's external data): they may lead into folders below, never up, never through a link.
There may be thousands of files, so they are opened when they are wanted, a few at a time.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from ckpttool.errors import ChangedError, NotFoundError, UnsafeError
from ckpttool.model import Finding, Shard
from ckpttool.sources.filenames import join
from ckpttool.sources.shard_files import MISSING_NAMED

if TYPE_CHECKING:
    from ckpttool.storage.base import Directory, FileStat, ReadableFile

__all__ = ["BesideFiles", "open_inside"]

#: Files that are open at once.
_OPEN = 32


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


class BesideFiles:
    """The files that one file names.

    Args:
        directory: where it lies; stays the caller's.
        who: the file that names them, for messages.
        opened: the open files of the source, to which those that are open here belong.
    """

    def __init__(self, directory: Directory, who: str, opened: list[ReadableFile]) -> None:
        self.who = who
        self._directory = directory
        self._opened = opened
        self._paths: list[str] = []
        self._stats: list[FileStat | None] = []
        self._numbers: dict[str, int] = {}
        self._open: dict[int, ReadableFile] = {}

    def add(self, path: str) -> int:
        """The number of the file with this path.

        Raises:
            UnsafeError: it lies outside, or behind a link.
        """
        if path in self._numbers:
            return self._numbers[path]
        stat: FileStat | None = None
        try:
            with closing(open_inside(self._directory, path, self.who)) as file:
                stat = file.stat
        except NotFoundError:
            pass  # a finding, and an error of whoever reads it
        self._numbers[path] = len(self._paths)
        self._paths.append(path)
        self._stats.append(stat)
        return self._numbers[path]

    def path(self, number: int) -> str:
        """The path of a file, with its directory."""
        return join(self._directory.path, self._paths[number])

    def stat(self, number: int) -> FileStat | None:
        """A file when it was first seen; None where it is missing."""
        return self._stats[number]

    def file(self, number: int) -> ReadableFile:
        """A file that is not missing, open until others are wanted.

        Raises:
            ChangedError: it is another than it was.
        """
        file = self._open.pop(number, None)
        if file is None:
            if len(self._open) >= _OPEN:
                oldest = self._open.pop(next(iter(self._open)))
                self._opened.remove(oldest)
                oldest.close()
            file = open_inside(self._directory, self._paths[number], self.who)
            if file.stat != self._stats[number]:
                file.close()
                raise ChangedError(
                    f"{self.path(number)} changed while it was read",
                    why="another program rewrote or replaced it",
                    hint="run it again when it is complete, or read a copy",
                )
            self._opened.append(file)
        self._open[number] = file
        return file

    def findings(self) -> list[Finding]:
        """One for each file that is missing, of the first hundred."""
        missing = [self.path(n) for n, stat in enumerate(self._stats) if stat is None]
        found = [
            Finding("weights-missing", "error", path, f"{path} is missing")
            for path in missing[:MISSING_NAMED]
        ]
        if more := len(missing) - len(found):
            text = f"{more} more files are missing"
            found.append(Finding("weights-missing", "error", self.who, text))
        return found

    def shards(self, needed: dict[int, int]) -> list[Shard]:
        """The files that are there, and the first hundred that are missing.

        Args:
            needed: of each file by its number, the bytes that are needed of it.
        """
        shards = []
        missing = 0
        for number, stat in enumerate(self._stats):
            missing += stat is None
            if stat is not None or missing <= MISSING_NAMED:
                size = None if stat is None else stat.size
                expected = needed.get(number, 0)
                shards.append(Shard(self.path(number), size, expected, present=stat is not None))
        return shards
