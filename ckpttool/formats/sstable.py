"""Tables of sorted keys: the container of a V2 index and of a V1 checkpoint.

TensorFlow's variant of LevelDB's table (xla/tsl/lib/io/{table,block,format}.cc): blocks of
prefix-compressed entries, each with a type byte and a masked CRC-32C behind it, an index
block that names them, and a footer of 48 bytes. This module knows bytes and keys, nothing
of what the values mean. It reads one block at a time, of any size and restart interval,
and accepts nothing that a writer of tables does not write: a wrong checksum, a restart
point that is none, keys out of order, blocks that overlap.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import ge
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, CorruptError, LimitError, UnsupportedError
from ckpttool.formats.crc32c import crc, mask
from ckpttool.formats.snappy import decompress
from ckpttool.formats.wire import encode_varint, read_varint
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["FOOTER_BYTES", "MAGIC", "Contents", "Damaged", "Handle", "Item", "Table", "quote_key"]

FOOTER_BYTES = 48
MAGIC = bytes.fromhex("57fb808b247547db")

#: A key and its value.
Item = tuple[bytes, bytes]
#: Told of an error in one block, for a reader that wants the other blocks all the same.
Damaged = Callable[[CkpttoolError], None]

_TRAILER_BYTES = 5
_RAW, _SNAPPY = 0, 1
#: Entries handed out at once: more than a block of TensorFlow's (256 KiB) usually has.
_BATCH = 8192
#: Bytes of a block after which it is looked whether to hand out: bounds a list's memory.
_STRIDE = 65536


def quote_key(key: bytes) -> str:
    """A key for a message: quoted, without control characters, cut where it is long."""
    text = repr(key[:300].decode("utf-8", "backslashreplace"))
    return text if len(text) <= 100 else f"{text[:100]}… ({len(key)} bytes)"


class Handle(NamedTuple):
    """Where a block lies; its trailer of 5 bytes follows and is not in ``size``."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first byte after the block and its trailer."""
        return self.offset + self.size + _TRAILER_BYTES


class Contents(NamedTuple):
    """A data block before its entries are decoded.

    ``starts`` are the offsets of its restart points and, last, where its entries end;
    ``bound`` is the key that the index block gives it, which none of its keys may pass.
    """

    number: int
    data: bytes
    starts: array[int]
    bound: bytes


class Table:
    """A table file, read block by block.

    Args:
        file: the open file; it stays the caller's.
        limits: bounds on blocks, keys and entries.

    Attributes:
        padding_clean: whether the footer's numbers are spelled with no byte too many and
            the bytes behind them are zero, as every writer does; no reader depends on it.
        spare_bytes: bytes that lie in no block; writers leave none.

    Raises:
        CorruptError: ids ``table-empty``, ``table-magic``, ``table-footer``,
            ``block-checksum``, ``block-malformed``, ``keys-unsorted``, ``keys-duplicate``,
            ``snappy-malformed``; from the constructor for the footer and the index block,
            from the other calls for the block they read.
        LimitError: ids ``limit-block``, ``limit-keys``, ``limit-entries``.
        UnsupportedError: id ``block-compression``.
    """

    def __init__(self, file: ReadableFile, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._cached: tuple[int, bytes] = (-1, b"")
        metaindex, index = self._read_footer()
        self._read_block(metaindex, "the metaindex block")
        self._handles: list[Handle] = []
        self._last_keys: list[bytes] = []
        self._read_index(index)
        blocks = sum(handle.size + _TRAILER_BYTES for handle in (*self._handles, metaindex, index))
        self.spare_bytes = max(0, file.stat.size - FOOTER_BYTES - blocks)

    @property
    def block_count(self) -> int:
        """Data blocks that the index block names."""
        return len(self._handles)

    @property
    def handles(self) -> Sequence[Handle]:
        """Where they lie."""
        return self._handles

    def blocks(self, damaged: Damaged | None = None) -> Iterator[list[Item]]:
        """All entries in key order, in lists of at most some thousand; never an empty list.

        What is given before an error is intact. With ``damaged`` an error in a block is
        handed to it instead of being raised, and the next block follows.
        """
        entries = 0
        last: bytes | None = None
        for number in range(len(self._handles)):
            try:
                for batch in self.items(self.contents(number), last):
                    entries += len(batch)
                    if entries > self._limits.entries:
                        break
                    last = batch[-1][0]
                    yield batch
            except CkpttoolError as error:
                if damaged is None:
                    raise
                damaged(error)
            self.check_count(entries)

    def contents(self, number: int) -> Contents:
        """A data block, whole and expanded, its entries not yet looked at."""
        where = self._where(number)
        data = self._read_block(self._handles[number], where)
        return Contents(number, data, self._restarts(data, where), self._last_keys[number])

    def items(self, block: Contents, last: bytes | None) -> Iterator[list[Item]]:
        """The entries of a block as ``blocks`` gives them; ``last`` is the key before them."""
        where = self._where(block.number)
        for batch in self._decode(block.data, block.starts, where, last):
            last = batch[-1][0]
            yield batch
        if last is not None and last > block.bound:
            raise self._malformed(where, "its last key is past the one in the index block")

    def check_count(self, entries: int) -> None:
        """Hold a number of entries against the limit."""
        if entries > self._limits.entries:
            raise self._over(
                "entries", "limit-entries", f"it has more than {self._limits.entries} entries"
            )

    def block_of(self, key: bytes) -> Handle | None:
        """The block that holds ``key``, if any does; reads nothing."""
        number = bisect_left(self._last_keys, key)
        return self._handles[number] if number < len(self._handles) else None

    def get(self, key: bytes) -> bytes | None:
        """The value of ``key``, or None; reads one block and decodes a part of it."""
        number = bisect_left(self._last_keys, key)
        if number == len(self._handles):
            return None
        handle = self._handles[number]
        where = self._where(number)
        if self._cached[0] != handle.offset:
            self._cached = (handle.offset, self._read_block(handle, where))
        data = self._cached[1]
        starts = self._restarts(data, where)
        # Entries between two restart points are a run; search the last that may hold the key.
        low, high = 0, len(starts) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._first_key(data, starts[middle], starts[-1], where) <= key:
                low = middle
            else:
                high = middle
        # With the run before it, whose last key may be the same one: that is an error.
        for batch in self._decode(data, starts[max(low - 1, 0) : low + 2], where, None):
            for found, value in batch:
                if found == key:
                    return value
        return None

    # The footer and the index block ---------------------------------------------------

    def _read_footer(self) -> tuple[Handle, Handle]:
        size = self._file.stat.size
        if not size:
            raise CorruptError(
                f"{self._file.path} is empty",
                why="0 bytes, and the smallest table has 96",
                hint="the copy or the save did not finish: take the file from elsewhere",
                id="table-empty",
            )
        footer = self._file.pread(max(0, size - FOOTER_BYTES), min(size, FOOTER_BYTES))
        if footer[-8:] != MAGIC or size < FOOTER_BYTES:
            raise CorruptError(
                f"{self._file.path} is cut off, or no table file",
                why=f"its {size} bytes do not end with a table's footer: "
                f"{footer[-8:].hex(' ')} instead of {MAGIC.hex(' ')}",
                hint="compare its size with that of the original",
                id="table-magic",
            )
        try:
            numbers = []
            pos = 0
            for _ in range(4):
                value, pos = read_varint(footer, pos, FOOTER_BYTES - len(MAGIC))
                numbers.append(value)
        except CkpttoolError as error:
            raise self._footer_error(error.why) from None
        spelled = b"".join(map(encode_varint, numbers))
        self.padding_clean = footer == spelled.ljust(FOOTER_BYTES - len(MAGIC), b"\0") + MAGIC
        handles = Handle(*numbers[:2]), Handle(*numbers[2:])
        for handle, name in zip(handles, ("metaindex", "index"), strict=True):
            if handle.end > size - FOOTER_BYTES:
                raise self._footer_error(
                    f"the {name} block is said to lie at bytes {handle.offset} to "
                    f"{handle.end}, and the footer starts at {size - FOOTER_BYTES}"
                )
        return handles

    def _read_index(self, index: Handle) -> None:
        where = "the index block"
        end = 0  # of the block before
        data = self._read_block(index, where)
        for batch in self._decode(data, self._restarts(data, where), where, None):
            for key, value in batch:
                name = f"block {len(self._handles) + 1}"
                try:
                    offset, pos = read_varint(value, 0, len(value))
                    size, pos = read_varint(value, pos, len(value))
                except CkpttoolError as error:
                    raise self._malformed(where, f"the place of {name}: {error.why}") from None
                handle = Handle(offset, size)
                # Writers put the blocks one after the other and the index block last.
                # Whoever insists on it reads no byte twice, whatever the handles claim.
                if offset < end or handle.end > index.offset:
                    raise self._malformed(
                        where,
                        f"{name} is said to lie at bytes {offset} to {handle.end}, and only "
                        f"{end} to {index.offset} are left",
                    )
                end = handle.end
                self._handles.append(handle)
                self._last_keys.append(key)

    # Blocks ---------------------------------------------------------------------------

    def _read_block(self, handle: Handle, where: str) -> bytes:
        """The contents of a block, checked against its checksum and expanded."""
        size = handle.size
        if size > self._limits.block_bytes:
            raise self._over(
                "block_bytes",
                "limit-block",
                f"{where} has {size} bytes, over {self._limits.block_bytes}",
            )
        stored = self._file.pread(handle.offset, size + _TRAILER_BYTES)
        expected = int.from_bytes(stored[size + 1 :], "little")
        kind = stored[size]
        contents = stored[:size]
        found = mask(crc(stored[: size + 1]))
        if found != expected:
            raise CorruptError(
                f"{self._file.path} is damaged",
                why=f"{where} (bytes {handle.offset} to {handle.end}) has checksum "
                f"{found:08x}, and {expected:08x} is stored",
                hint="take the file from another copy",
                id="block-checksum",
            )
        if kind == _RAW:
            return contents
        if kind != _SNAPPY:
            raise UnsupportedError(
                f"{self._file.path} is compressed in an unknown way",
                why=f"{where} has compression type {kind}; 0 (none) and 1 (snappy) are known",
                id="block-compression",
            )
        try:
            return decompress(contents, self._limits.block_expanded_bytes)
        except CkpttoolError as error:
            error.what = f"{self._file.path}: {where}: {error.what}"
            raise

    def _restarts(self, data: bytes, where: str) -> array[int]:
        """The offsets of the restart points, and behind them where the entries end."""
        count = int.from_bytes(data[-4:], "little")
        end = len(data) - 4 - 4 * count
        if len(data) < 4 or end < 0:
            raise self._malformed(
                where, f"its {len(data)} bytes cannot hold {count} restart points"
            )
        starts = array("I", data[end:-4])
        if sys.byteorder == "big":
            starts.byteswap()
        if not end:
            if any(starts):
                raise self._malformed(where, "it has restart points and no entries")
            return array("I", [0])
        starts.append(end)
        if starts[0] or any(map(ge, starts, starts[1:])):
            raise self._malformed(where, f"its {count} restart points do not rise from 0 to {end}")
        return starts

    def _decode(
        self, data: bytes, starts: array[int], where: str, last: bytes | None
    ) -> Iterator[list[Item]]:
        """The entries of the runs that begin at ``starts`` (the last number ends the last run).

        ``last`` is the key before the first entry. The inner loop is the hot one of every
        listing; what it leaves unchecked (an entry that reaches past its run) shows behind it.
        """
        batch: list[Item] = []
        append = batch.append
        key = last or b""
        spent = 0
        pos = starts[0]
        try:
            for stop in starts[1:]:
                if data[pos]:
                    raise self._malformed(where, f"byte {pos} is no restart point")
                while pos < stop:
                    pause = min(stop, pos + _STRIDE)
                    while pos < pause:
                        shared = data[pos]
                        unshared = data[pos + 1]
                        size = data[pos + 2]
                        if (shared | unshared | size) < 0x80:
                            pos += 3
                        else:
                            shared, unshared, size, pos = self._header(data, pos, stop, where)
                            spent += shared + unshared
                            if spent > self._limits.block_keys_bytes:
                                raise self._over(
                                    "block_keys_bytes",
                                    "limit-keys",
                                    f"{where}: its keys have more than "
                                    f"{self._limits.block_keys_bytes} bytes",
                                )
                        previous = key
                        if shared > len(previous):
                            raise self._malformed(
                                where,
                                f"the key before byte {pos} shares {shared} bytes with one "
                                f"of {len(previous)}",
                            )
                        split = pos + unshared
                        key = previous[:shared] + data[pos:split]
                        pos = split + size
                        if key <= previous and (batch or last is not None):
                            if pos > stop:
                                break
                            raise self._unsorted(where, previous, key)
                        append((key, data[split:pos]))
                    if pos > stop:
                        break
                    if len(batch) >= _BATCH:
                        yield batch
                        last = key
                        batch = []
                        append = batch.append
                if pos != stop:
                    raise self._malformed(where, f"an entry reaches from byte {split} past {stop}")
        except IndexError:
            raise self._malformed(where, f"an entry starts at byte {pos}, its end") from None
        if batch:
            yield batch

    def _header(self, data: bytes, pos: int, stop: int, where: str) -> tuple[int, int, int, int]:
        """Shared, own and value bytes of the entry at ``pos``, and where its key's own begin."""
        start = pos
        try:
            shared, pos = read_varint(data, pos, stop)
            unshared, pos = read_varint(data, pos, stop)
            size, pos = read_varint(data, pos, stop)
        except CkpttoolError as error:
            raise self._malformed(where, f"the entry at byte {start}: {error.why}") from None
        if shared + unshared > self._limits.key_bytes:
            raise self._over(
                "key_bytes",
                "limit-keys",
                f"{where}: the key at byte {start} has {shared + unshared} bytes, "
                f"over {self._limits.key_bytes}",
            )
        if unshared + size > stop - pos:
            raise self._malformed(
                where,
                f"the entry at byte {start} claims {unshared + size} bytes, "
                f"and {stop - pos} are left",
            )
        return shared, unshared, size, pos

    def _first_key(self, data: bytes, start: int, end: int, where: str) -> bytes:
        """The key at a restart point."""
        shared, unshared, _, pos = self._header(data, start, end, where)
        if shared:
            raise self._malformed(where, f"byte {start} is no restart point")
        return data[pos : pos + unshared]

    # Errors ---------------------------------------------------------------------------

    def _where(self, number: int) -> str:
        return f"block {number + 1} of {len(self._handles)}"

    def _malformed(self, where: str, why: str) -> CorruptError:
        return CorruptError(
            f"{self._file.path} is malformed", why=f"{where}: {why}", id="block-malformed"
        )

    def _unsorted(self, where: str, previous: bytes, key: bytes) -> CorruptError:
        if key == previous:
            return CorruptError(
                f"{self._file.path} has a key twice",
                why=f"{where}: {quote_key(key)}",
                hint="TensorFlow uses one of the two entries; which one, nothing says",
                id="keys-duplicate",
            )
        return CorruptError(
            f"{self._file.path} has keys out of order",
            why=f"{where}: {quote_key(key)} stands behind {quote_key(previous)}",
            hint="TensorFlow may find only some of its variables; write the checkpoint anew",
            id="keys-unsorted",
        )

    def _footer_error(self, why: str) -> CorruptError:
        return CorruptError(f"{self._file.path} has a damaged footer", why=why, id="table-footer")

    def _over(self, limit: str, id: str, why: str) -> LimitError:
        return LimitError(
            f"{self._file.path} is over a limit",
            why=why,
            hint=f"if the file is trusted, raise {limit} in CKPTTOOL_LIMITS",
            id=id,
        )
