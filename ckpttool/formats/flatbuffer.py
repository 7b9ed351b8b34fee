"""A bounded reader of FlatBuffers: tables, vectors and texts, nothing of any schema.

Every position is checked against the file, and everything that is gone through is paid for
out of a budget by the size of the file: offsets may lead anywhere, so many tables may share
their bytes, and a small file could otherwise stand for any number of things.
(flatbuffers.dev, "FlatBuffer internals".)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ckpttool.errors import CorruptError
from ckpttool.formats.bounds import require_within
from ckpttool.formats.long_message import FileBytes
from ckpttool.limits import Limits

__all__ = ["FlatBuffer", "Table", "Vector"]

_VTABLE_HEADER = 4
#: Fields of a table that are known; no schema that is read here has as many.
_MOST_FIELDS = 64
#: Bytes of a page, and pages that are kept.
_PAGE_BYTES = 2**14
_PAGES = 256
#: What a table costs at least: the offset that leads to it, and the one to its vtable.
_TABLE_BYTES = 8
#: Writers let a few equal texts and vectors share their bytes, in small files too.
_SHARED = 2
_FREE_BYTES = 2**16
_FORMATS = {
    "B": struct.Struct("<B"),
    "b": struct.Struct("<b"),
    "i": struct.Struct("<i"),
    "I": struct.Struct("<I"),
    "H": struct.Struct("<H"),
    "q": struct.Struct("<q"),
    "Q": struct.Struct("<Q"),
    "f": struct.Struct("<f"),
}


class Vector(NamedTuple):
    """Elements that lie one after the other: where the first is, and how many."""

    start: int
    length: int


class Table(NamedTuple):
    """A table: where it is, and its vtable's places of fields."""

    start: int
    fields: tuple[int, ...]


class FlatBuffer:
    """An open file.

    Args:
        source: its bytes.
        limits: bounds on texts.
        what: what the file is, for messages.
        id: of the error of a file that is malformed.

    Raises:
        CorruptError: with that id, from every call.
    """

    def __init__(self, source: FileBytes, limits: Limits, what: str, id: str) -> None:
        self.source = source
        self._limits = limits
        self._what = what
        self._id = id
        self._budget = _SHARED * source.size + _FREE_BYTES
        #: Parts of the file by number; what belongs together may lie far apart in it.
        self._pages: dict[int, bytes] = {}

    def malformed(self, why: str) -> CorruptError:
        """The error of a file that is not what it should be."""
        return CorruptError(
            f"{self.source.path} is a malformed {self._what}",
            why=why,
            hint="take the file from another copy",
            id=self._id,
        )

    def root(self) -> Table:
        """The table that the file begins with."""
        return self.table(self._number(0, "I"))

    def table(self, start: int) -> Table:
        """The table at a position."""
        vtable = start - self._number(start, "i")
        size = self._number(vtable, "H")
        if size < _VTABLE_HEADER or size % 2:
            raise self.malformed(f"the table at byte {start} has a vtable of {size} bytes")
        size = min(size, _VTABLE_HEADER + 2 * _MOST_FIELDS)
        self._require(vtable, size)
        self._pay(_TABLE_BYTES)
        places = struct.unpack(f"<{size // 2}H", self._bytes(vtable, size))
        return Table(start, places[2:])

    def number(self, table: Table, slot: int, format: str, default: int | float = 0) -> int:
        """The number in a field, by struct's letter for it; ``default`` where it is absent."""
        at = self._field(table, slot)
        return int(default) if at is None else int(self._number(at, format))

    def vector(self, table: Table, slot: int, itemsize: int) -> Vector:
        """The vector in a field, of elements of so many bytes; an empty one where it is absent."""
        at = self._field(table, slot)
        if at is None:
            return Vector(0, 0)
        start = at + self._number(at, "I")
        count = self._number(start, "I")
        self._require(start + 4, count * itemsize)
        return Vector(start + 4, count)

    def tables(self, table: Table, slot: int) -> list[int]:
        """The positions of the tables in a vector of tables."""
        vector = self.vector(table, slot, 4)
        return [vector.start + 4 * i + offset for i, offset in enumerate(self.numbers(vector, "I"))]

    def inner(self, table: Table, slot: int) -> Table | None:
        """The table in a field; None where it is absent."""
        at = self._field(table, slot)
        return None if at is None else self.table(at + self._number(at, "I"))

    def numbers(self, vector: Vector, format: str) -> tuple[int, ...]:
        """The elements of a vector of integers."""
        size = vector.length * _FORMATS[format].size
        self._pay(size)
        data = self._bytes(vector.start, size)
        return struct.unpack(f"<{vector.length}{format}", data)

    def text(self, table: Table, slot: int) -> str:
        """The text in a field; empty where it is absent.

        Raises:
            LimitError: id ``limit-keys``.
        """
        start, count = self.vector(table, slot, 1)
        require_within(f"a name in {self.source.path}", count, self._limits, "key_bytes")
        self._pay(count)
        return self._bytes(start, count).decode("utf-8", "surrogateescape")

    def _field(self, table: Table, slot: int) -> int | None:
        place = table.fields[slot] if slot < len(table.fields) else 0
        return table.start + place if place else None

    def _number(self, at: int, format: str) -> int:
        kind = _FORMATS[format]
        self._require(at, kind.size)
        return int(kind.unpack(self._bytes(at, kind.size))[0])

    def _bytes(self, start: int, size: int) -> bytes:
        """Bytes that are known to be there."""
        number, at = divmod(start, _PAGE_BYTES)
        if at + size > _PAGE_BYTES:
            return self.source.get(start, start + size)
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _PAGES:
                self._pages.clear()
            base = number * _PAGE_BYTES
            page = self.source.get(base, min(base + _PAGE_BYTES, self.source.size))
            self._pages[number] = page
        return page[at : at + size]

    def _require(self, start: int, size: int) -> None:
        if start < 0 or start + size > self.source.size:
            raise self.malformed(
                f"it points to bytes {start} to {start + size}, and has {self.source.size}"
            )

    def _pay(self, nbytes: int) -> None:
        self._budget -= nbytes
        if self._budget < 0:
            raise self.malformed("its parts share bytes, so that it stands for more than it has")
