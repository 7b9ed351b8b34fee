"""Values of a table that may be as large as gigabytes, without holding their block.

A V1 checkpoint keeps each variable as one value, and a large value fills a block alone
(or ends one that began with small ones). Such a block is summed up in pieces, and its
entries are walked by their headers; what is asked for comes back as a place in the file.
A compressed block has to be expanded as a whole. Knows keys and bytes only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats.crc32c import extend, mask
from ckpttool.formats.long_message import FileBytes, MemoryBytes, MessageBytes
from ckpttool.formats.sstable import Handle, Table, quote_key
from ckpttool.formats.wire import read_varint
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["TableValues", "Value"]

_CHECKSUM_BYTES = 4
#: A block up to this is read whole, and kept until another one is.
_HELD = 2**20
_PIECE = 2**20
#: Three varints of at most five bytes each.
_HEADER = 15


class Value(NamedTuple):
    """Bytes ``[start, end)`` of ``source``: a value in its file, or a copy in memory."""

    source: MessageBytes
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self.end - self.start

    def read(self) -> bytes:
        """All of them."""
        return self.source.get(self.start, self.end)


class TableValues:
    """The values of an open table, one at a time.

    Args:
        file: the open file; it stays the caller's.
        limits: bounds on blocks, keys and entries.

    Raises:
        CorruptError, LimitError, UnsupportedError: as ``Table``.
    """

    def __init__(self, file: ReadableFile, limits: Limits) -> None:
        self.table = Table(file, limits)
        self._file = file
        self._limits = limits
        self._bytes = FileBytes(file)
        self._summed: set[int] = set()
        self._expanding: Table | None = None

    def find(self, key: bytes, *, check: bool) -> Value | None:
        """Where the value of ``key`` lies; None where there is none.

        Args:
            key: the entry's.
            check: compare a large block with its checksum, which reads all of it (once);
                a small one always is.

        Raises:
            CorruptError: ids as of ``Table``.
            LimitError: ids ``limit-block``, ``limit-keys``, ``limit-entries``.
        """
        handle = self.table.block_of(key)
        if handle is None:
            return None
        if handle.size <= _HELD:
            return self._held(self.table.get(key))
        if self._is_compressed(handle):
            return self._held(self._expanded().get(key))
        if check:
            self.sum(handle)
        for found, start, end in self._entries(handle):
            if found >= key:
                return Value(self._bytes, start, end) if found == key else None
        return None

    def sum(self, handle: Handle) -> None:
        """Compare a block with its checksum, once; raises as ``pieces``."""
        if handle.offset not in self._summed:
            for _ in self.pieces(handle):
                pass

    def pieces(self, handle: Handle) -> Iterator[bytes]:
        """A block as it is stored, compared with its checksum at the end.

        Raises:
            CorruptError: id ``block-checksum``.
        """
        end = handle.offset + handle.size + 1  # with the byte that says how it is compressed
        found = 0
        for start in range(handle.offset, end, _PIECE):
            piece = self._file.pread(start, min(_PIECE, end - start))
            found = extend(found, piece)
            yield piece
        stored = int.from_bytes(self._file.pread(end, _CHECKSUM_BYTES), "little")
        if mask(found) != stored:
            raise CorruptError(
                f"{self._file.path} is damaged",
                why=f"the block in bytes {handle.offset} to {handle.end} has checksum "
                f"{mask(found):08x}, and {stored:08x} is stored",
                hint="take the file from another copy",
                id="block-checksum",
            )
        self._summed.add(handle.offset)

    def _held(self, value: bytes | None) -> Value | None:
        if value is None:
            return None
        return Value(MemoryBytes(value, self._file.path), 0, len(value))

    def _expanded(self) -> Table:
        """The same table, of which larger blocks may be expanded."""
        if self._expanding is None:
            limits, most = self._limits, self._limits.v1_decoded_bytes
            limits = limits._replace(
                block_bytes=max(most, limits.block_bytes),
                block_expanded_bytes=max(most, limits.block_expanded_bytes),
            )
            self._expanding = Table(self._file, limits)
        return self._expanding

    def _is_compressed(self, handle: Handle) -> bool:
        return self._file.pread(handle.offset + handle.size, 1) != b"\0"

    def _entries(self, handle: Handle) -> Iterator[tuple[bytes, int, int]]:
        """The keys of a plain block, and where in the file their values are."""
        get = self._bytes.get
        stop = handle.offset + handle.size - 4
        stop -= 4 * int.from_bytes(get(stop, stop + 4), "little")
        if stop < handle.offset:
            raise self._malformed(handle, "it cannot hold its restart points")
        found, pos, entries = b"", handle.offset, 0
        while pos < stop:
            shared, own, size, pos = self._header(handle, pos, stop)
            entries += 1
            self._require(handle, shared + own, entries)
            if shared > len(found) or own + size > stop - pos:
                raise self._malformed(handle, f"the entry before byte {pos} does not fit")
            before, found = found, found[:shared] + get(pos, pos + own)
            if entries > 1 and found <= before:
                raise self._malformed(handle, f"{quote_key(found)} is out of order")
            pos += own
            yield found, pos, pos + size
            pos += size

    def _header(self, handle: Handle, pos: int, stop: int) -> tuple[int, int, int, int]:
        """Shared, own and value bytes of the entry at ``pos``, and where its key's own begin."""
        data = self._bytes.get(pos, min(stop, pos + _HEADER))
        try:
            shared, at = read_varint(data, 0, len(data))
            own, at = read_varint(data, at, len(data))
            size, at = read_varint(data, at, len(data))
        except CorruptError as error:
            raise self._malformed(handle, f"the entry at byte {pos}: {error.why}") from None
        return shared, own, size, pos + at

    def _require(self, handle: Handle, key_bytes: int, entries: int) -> None:
        for id, name, count in (
            ("limit-keys", "key_bytes", key_bytes),
            ("limit-entries", "entries", entries),
        ):
            if count > getattr(self._limits, name):
                raise LimitError(
                    f"{self._file.path} is over a limit",
                    why=f"the block at byte {handle.offset} has more {name.replace('_', ' ')} "
                    f"than {getattr(self._limits, name)}",
                    hint=f"if the file is trusted, raise {name} in CKPTTOOL_LIMITS",
                    id=id,
                )

    def _malformed(self, handle: Handle, why: str) -> CorruptError:
        return CorruptError(
            f"{self._file.path} is malformed",
            why=f"the block in bytes {handle.offset} to {handle.end}: {why}",
            hint="take the file from another copy",
            id="block-malformed",
        )
