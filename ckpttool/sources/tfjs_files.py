"""The weight files of a group of a TensorFlow.js model, which are read as one.

A file that is missing takes what lies in it with it; where it is the only one of its group,
its size follows from what all weights need, and the others stay readable. Knows no weight.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckpttool.errors import IncompleteError
from ckpttool.sources.base import Read

if TYPE_CHECKING:
    from ckpttool.sources.beside import BesideFiles

__all__ = ["WeightFiles"]


class WeightFiles:
    """The files of one group.

    Args:
        beside: the files of all groups.
        numbers: which of them are this group's, in order.
    """

    def __init__(self, beside: BesideFiles, numbers: Sequence[int]) -> None:
        self._beside = beside
        self._numbers = numbers
        self._needed = 0
        self._starts: list[int] = []
        self.place(0)

    def place(self, needed: int) -> None:
        """State how many bytes the weights need; the files are laid out by that."""
        self._needed = needed
        stats = list(map(self._beside.stat, self._numbers))
        gaps = stats.count(None)
        at = 0
        self._starts = []
        for stat in stats:
            self._starts.append(at)
            if stat is not None:
                at += stat.size
            elif gaps == 1:
                at += max(0, needed - self.size)
            else:
                at = max(at, needed)  # where the files behind it belong is not known

    @property
    def missing(self) -> list[str]:
        """Paths of files that are not there."""
        return [self._beside.path(n) for n in self._numbers if self._beside.stat(n) is None]

    @property
    def size(self) -> int:
        """Bytes of all files that are there."""
        return sum(stat.size for stat in map(self._beside.stat, self._numbers) if stat)

    def needed(self) -> Iterator[tuple[int, int]]:
        """Each file, and the bytes that the weights need of it."""
        ends = [*self._starts[1:], max(self._needed, *self._starts[-1:], 0)]
        for number, start, end in zip(self._numbers, self._starts, ends, strict=True):
            yield number, max(0, min(end, self._needed) - start)

    def locate(self, offset: int, size: int) -> tuple[int, int] | None:
        """The number of the file with all of these bytes, and where in it; None: none has."""
        at = self._at(offset)
        stat = self._beside.stat(self._numbers[at]) if at >= 0 else None
        if stat is None or offset - self._starts[at] + size > stat.size:
            return None
        return self._numbers[at], offset - self._starts[at]

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Exactly these bytes, across files.

        Raises:
            IncompleteError: id ``weights-missing`` or ``weights-short``, naming ``what``.
            ChangedError: a file is another than it was.
        """
        return b"".join(
            self._beside.file(number).pread(at, part)
            for number, at, part in self._ranges(offset, size, what)
        )

    def some(self, offset: int, most: int, what: str) -> bytes:
        """At least one of the bytes from here on, and at most so many; raises as `read`."""
        number, at, part = next(self._ranges(offset, most, what))
        return self._beside.file(number).pread(at, part)

    def reads(self, offset: int, size: int, what: str) -> Iterator[Read]:
        """What `read` does, without doing it; raises as that."""
        for number, at, part in self._ranges(offset, size, what):
            yield Read(self._beside.path(number), at, part)

    def _ranges(self, offset: int, size: int, what: str) -> Iterator[tuple[int, int, int]]:
        """The files that hold these bytes: number, offset and size in each."""
        while size:
            at = self._at(offset)
            stat = self._beside.stat(self._numbers[at]) if at >= 0 else None
            if stat is None:
                raise self._absent(what)
            within = offset - self._starts[at]
            part = min(size, stat.size - within)
            if part <= 0:
                raise IncompleteError(
                    f"the values of {what} are not all there",
                    why=f"the files of its group have {self.size} bytes, and the weights need "
                    f"{self._needed}",
                    hint="copy the .bin files again from where they are whole",
                    id="weights-short",
                )
            yield self._numbers[at], within, part
            offset += part
            size -= part

    def _at(self, offset: int) -> int:
        """The place of the file with the byte at ``offset``; -1 of a group without files."""
        return bisect_right(self._starts, offset) - 1

    def _absent(self, what: str) -> IncompleteError:
        missing = self.missing
        more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
        return IncompleteError(
            f"the values of {what} are not all there",
            why=f"{missing[0]} is missing{more}"
            if missing
            else f"{self._beside.who} names no file for them",
            hint="copy the .bin files again from where they are whole",
            id="weights-missing",
        )
