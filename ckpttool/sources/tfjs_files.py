"""The weight files of a TensorFlow.js model: those of a group are read as one.

Opened when they are wanted, a few at a time, since a model may have a thousand of them. A
file that is missing takes what lies in it with it; where it is the only one, its size
follows from what all weights need, and the others stay readable. Knows no weight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckpttool.errors import ChangedError, IncompleteError, NotFoundError
from ckpttool.model import Shard
from ckpttool.sources.base import Read
from ckpttool.sources.filenames import join
from ckpttool.sources.inside import open_inside

if TYPE_CHECKING:
    from ckpttool.storage.base import Directory, FileStat, ReadableFile

__all__ = ["WeightFiles"]

#: Files that are open at once.
_OPEN = 32


class WeightFiles:
    """The files of one group.

    Args:
        directory: where they lie; stays the caller's.
        paths: as the manifest names them.
        who: the manifest, for messages.
        opened: the open files of the source, to which those that are open here belong.

    Raises:
        UnsafeError: a path leads outside, or through a link.
    """

    def __init__(
        self, directory: Directory, paths: Sequence[str], who: str, opened: list[ReadableFile]
    ) -> None:
        self._directory = directory
        self._paths = paths
        self._who = who
        self._stats: list[FileStat | None] = []
        self._opened = opened
        self._open: dict[int, ReadableFile] = {}
        for path in paths:
            try:
                file = open_inside(directory, path, who)
            except NotFoundError:
                self._stats.append(None)
                continue
            self._stats.append(file.stat)
            file.close()
        self._needed = 0
        self._starts: list[int] = []
        self.place(0)

    def place(self, needed: int) -> None:
        """State how many bytes the weights need; the files are laid out by that."""
        self._needed = needed
        gaps = self._stats.count(None)
        there = sum(stat.size for stat in self._stats if stat)
        at = 0
        self._starts = []
        for stat in self._stats:
            self._starts.append(at)
            if stat is not None:
                at += stat.size
            elif gaps == 1:
                at += max(0, needed - there)
            else:
                at = max(at, needed)  # where the files behind it belong is not known

    @property
    def missing(self) -> list[str]:
        """Paths of files that are not there."""
        return [
            join(self._directory.path, path)
            for path, stat in zip(self._paths, self._stats, strict=True)
            if stat is None
        ]

    @property
    def size(self) -> int:
        """Bytes of all files that are there."""
        return sum(stat.size for stat in self._stats if stat)

    def shards(self) -> list[Shard]:
        """The files, with the bytes that the weights need of each."""
        ends = [*self._starts[1:], max(self._needed, *self._starts[-1:], 0)]
        return [
            Shard(
                join(self._directory.path, path),
                stat.size if stat else None,
                max(0, min(end, self._needed) - start),
                present=stat is not None,
            )
            for path, stat, start, end in zip(
                self._paths, self._stats, self._starts, ends, strict=True
            )
        ]

    def locate(self, offset: int, size: int) -> tuple[int, int] | None:
        """The number of the file with all of these bytes, and where in it; None: none has."""
        number = self._at(offset)
        stat = self._stats[number] if number >= 0 else None
        if stat is None or offset - self._starts[number] + size > stat.size:
            return None
        return number, offset - self._starts[number]

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Exactly these bytes, across files.

        Raises:
            IncompleteError: id ``weights-missing`` or ``weights-short``, naming ``what``.
            ChangedError: a file is another than it was.
        """
        return b"".join(
            self.file(number).pread(at, part)
            for number, at, part in self._ranges(offset, size, what)
        )

    def reads(self, offset: int, size: int, what: str) -> Iterator[Read]:
        """What `read` does, without doing it; raises as that."""
        for number, at, part in self._ranges(offset, size, what):
            yield Read(join(self._directory.path, self._paths[number]), at, part)

    def _ranges(self, offset: int, size: int, what: str) -> Iterator[tuple[int, int, int]]:
        """The files that hold these bytes: number, offset and size in each."""
        while size:
            number = self._at(offset)
            stat = self._stats[number] if number >= 0 else None
            if stat is None:
                raise self._absent(what)
            within = offset - self._starts[number]
            part = min(size, stat.size - within)
            if part <= 0:
                raise IncompleteError(
                    f"the values of {what} are not all there",
                    why=f"the files of its group have {self.size} bytes, and the weights need "
                    f"{self._needed}",
                    hint="copy the .bin files again from where they are whole",
                    id="weights-short",
                )
            yield number, within, part
            offset += part
            size -= part

    def _at(self, offset: int) -> int:
        """The number of the file in which the byte at ``offset`` lies; empty ones have none."""
        return bisect_right(self._starts, offset) - 1

    def file(self, number: int) -> ReadableFile:
        """A file that is there, open; raises ChangedError as `read`."""
        file = self._open.pop(number, None)
        if file is None:
            if len(self._open) >= _OPEN:
                oldest = self._open.pop(next(iter(self._open)))
                self._opened.remove(oldest)
                oldest.close()
            file = open_inside(self._directory, self._paths[number], self._who)
            if file.stat != self._stats[number]:
                file.close()
                raise ChangedError(
                    f"{join(self._directory.path, self._paths[number])} changed while it was read",
                    why="another program rewrote or replaced it",
                    hint="run it again when it is complete, or read a copy",
                )
            self._opened.append(file)
        self._open[number] = file
        return file

    def _absent(self, what: str) -> IncompleteError:
        missing = self.missing
        return IncompleteError(
            f"the values of {what} are not all there",
            why=f"{missing[0]} is missing"
            + (f", and {len(missing) - 1} more" if len(missing) > 1 else "")
            if missing
            else f"{self._who} names no file for them",
            hint="copy the .bin files again from where they are whole",
            id="weights-missing",
        )
