"""Protobuf messages of any size, in a file or in memory: only what is asked for is read.

A graph with its weights in it may have two gigabytes. ``walk`` goes over the fields of
such a message through a window, so that small ones come with their bytes at hand and large
ones as a place in the file. Knows the wire format (``wire.py``), nothing of any message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ckpttool.formats.wire import FIXED32, FIXED64, LENGTH, VARINT, Field, malformed, read_varint
from ckpttool.storage.base import ReadableFile

__all__ = ["AT_HAND", "FileBytes", "MemoryBytes", "MessageBytes", "Walked", "fields_of", "walk"]

#: Bytes that are read at a time; a field within a window comes with its bytes at hand.
AT_HAND = 2**20
#: Bytes that are kept for reads of few bytes.
_KEPT = 2**16
#: A tag of at most 5 bytes and a length of at most 10.
_HEADER = 16

#: Number, value, window, base. The value is as in ``wire.fields``, with positions in the
#: window; the window is None where the field is longer, and ``base`` is where it starts.
Walked = tuple[int, "int | tuple[int, int]", bytes | None, int]


class MessageBytes(Protocol):
    """Bytes that are read by range."""

    @property
    def path(self) -> str:
        """The file, for messages."""
        ...

    @property
    def size(self) -> int: ...

    @property
    def file(self) -> ReadableFile | None:
        """The file whose very bytes these are; None where they were made of its text."""
        ...

    def get(self, start: int, end: int) -> bytes:
        """Exactly these bytes; raises what the storage does."""
        ...


class FileBytes:
    """The bytes of an open file, which stays the caller's to close."""

    def __init__(self, file: ReadableFile) -> None:
        self.file: ReadableFile = file
        self.path = file.path
        self.size = file.stat.size
        self._kept = b""
        self._base = 0

    def get(self, start: int, end: int) -> bytes:
        if end - start >= _KEPT:
            return self.file.pread(start, end - start)
        at = start - self._base
        if at < 0 or end - self._base > len(self._kept):
            self._kept = self.file.pread(start, min(_KEPT, self.size - start))
            self._base, at = start, 0
        return self._kept[at : at + end - start]


class MemoryBytes:
    """Bytes in memory."""

    file: ReadableFile | None = None

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self.path = path
        self.size = len(data)

    def get(self, start: int, end: int) -> bytes:
        return self._data[start:end]


def walk(source: MessageBytes, start: int, end: int) -> Iterator[Walked]:
    """The fields of the message in ``[start, end)``, in the order they are stored.

    Raises:
        CorruptError: as ``wire.fields``.
    """
    position = start
    while position < end:
        window = source.get(position, min(end, position + AT_HAND))
        size = len(window)
        last = position + size == end
        at = 0
        while at < size and (last or size - at >= _HEADER):
            tag = window[at]
            value_at = at + 1
            if tag >= 0x80:
                tag, value_at = read_varint(window, at, size)
            wire_type = tag & 7
            if tag < 8 or tag >= 2**32:
                raise malformed(f"field number {tag >> 3} at byte {position + at} does not exist")
            if wire_type == LENGTH:
                if value_at < size and window[value_at] < 0x80:
                    length, value_at = window[value_at], value_at + 1
                else:
                    length, value_at = read_varint(window, value_at, size)
                stop = value_at + length
                if stop > size:
                    if position + stop > end:
                        raise malformed(
                            f"field {tag >> 3} at byte {position + at} claims {length} bytes, "
                            f"and {end - position - value_at} are left"
                        )
                    if at:
                        break  # it may be whole in the next window
                    yield tag >> 3, (value_at, stop), None, position
                else:
                    yield tag >> 3, (value_at, stop), window, position
                at = stop
                continue
            if wire_type == VARINT:
                value, stop = read_varint(window, value_at, size)
            elif wire_type in (FIXED32, FIXED64):
                stop = value_at + (4 if wire_type == FIXED32 else 8)
                if stop > size:
                    raise malformed(f"field {tag >> 3} at byte {position + at} runs past the end")
                value = int.from_bytes(window[value_at:stop], "little")
            else:
                raise malformed(
                    f"field {tag >> 3} at byte {position + at} has wire type {wire_type}"
                )
            yield tag >> 3, value, window, position
            at = stop
        position += at


def fields_of(source: MessageBytes, start: int, end: int) -> Iterator[Field]:
    """As ``wire.fields``, with the places of length-delimited fields in ``source``."""
    for number, value, _, base in walk(source, start, end):
        if isinstance(value, int):
            yield number, VARINT, value
        else:
            yield number, LENGTH, (base + value[0], base + value[1])
