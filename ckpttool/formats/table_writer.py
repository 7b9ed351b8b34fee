"""Writes a table file as TensorFlow does, byte for byte.

The counterpart of ``sstable``: blocks of about 256 KiB with a restart point every 16
entries, shortened keys in the index block, no compression, an empty metaindex block
(xla/tsl/lib/io/{table_builder,block_builder}.cc). Knows bytes and keys only.
"""

from __future__ import annotations

from collections.abc import Callable

from ckpttool.formats.crc32c import crc, mask
from ckpttool.formats.sstable import FOOTER_BYTES, MAGIC
from ckpttool.formats.wire import encode_varint

__all__ = ["TableWriter"]

#: A block is closed when it has grown to this (table_options.h).
_BLOCK_BYTES = 262144
#: Entries of a data block between two keys that are written in full.
_RESTART_INTERVAL = 16
_PLAIN = b"\x00"


class TableWriter:
    """Takes entries in rising order of their keys and writes the file as it goes.

    Args:
        write: takes the next bytes of the file.

    Memory stays at one block and one index entry a block.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._offset = 0
        self._block = _Block(_RESTART_INTERVAL)
        self._index = _Block(1)
        self._last_key = b""
        self._pending: bytes | None = None  # the handle of a block that is not in the index yet
        self._empty = True

    def add(self, key: bytes, value: bytes) -> None:
        """Append an entry.

        Raises:
            ValueError: the key does not sort behind the one before.
        """
        if not self._empty and key <= self._last_key:
            raise ValueError(f"key {key!r} does not sort behind {self._last_key!r}")
        if len(key) + len(value) >= 2 * _BLOCK_BYTES:
            self._flush()  # an entry this large starts a block of its own
        if self._pending is not None:
            self._index.add(_separator(self._last_key, key), self._pending)
            self._pending = None
        self._empty = False
        self._last_key = key
        self._block.add(key, value)
        if self._block.size >= _BLOCK_BYTES:
            self._flush()

    def finish(self) -> int:
        """Write what is left, the index and the footer; returns the size of the file."""
        self._flush()
        metaindex = self._emit(_Block(_RESTART_INTERVAL))
        if self._pending is not None:
            self._index.add(_successor(self._last_key), self._pending)
        index = self._emit(self._index)
        handles = (metaindex + index).ljust(FOOTER_BYTES - len(MAGIC), b"\x00")
        self._put(handles + MAGIC)
        return self._offset

    def _flush(self) -> None:
        if self._block.count:
            self._pending = self._emit(self._block)
            self._block = _Block(_RESTART_INTERVAL)

    def _emit(self, block: _Block) -> bytes:
        """Write a block with its trailer; returns its handle."""
        contents = block.finish() + _PLAIN
        handle = encode_varint(self._offset) + encode_varint(len(contents) - 1)
        self._put(contents + mask(crc(contents)).to_bytes(4, "little"))
        return handle

    def _put(self, data: bytes) -> None:
        self._write(data)
        self._offset += len(data)


class _Block:
    """Prefix-compressed entries with restart points."""

    def __init__(self, restart_interval: int) -> None:
        self._interval = restart_interval
        self._buffer = bytearray()
        self._restarts = [0]
        self._last_key = b""
        self.count = 0

    @property
    def size(self) -> int:
        """What the block would have, finished now."""
        return len(self._buffer) + 4 * len(self._restarts) + 4

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self.count and self.count % self._interval == 0:
            self._restarts.append(len(self._buffer))
        elif self.count:
            shared = _common(self._last_key, key)
        own = key[shared:]
        if (shared | len(own) | len(value)) < 0x80:
            self._buffer += bytes((shared, len(own), len(value))) + own + value
        else:
            for number in (shared, len(own), len(value)):
                self._buffer += encode_varint(number)
            self._buffer += own + value
        self._last_key = key
        self.count += 1

    def finish(self) -> bytes:
        numbers = [*self._restarts, len(self._restarts)]
        return bytes(self._buffer) + b"".join(n.to_bytes(4, "little") for n in numbers)


def _common(one: bytes, other: bytes) -> int:
    """How many bytes the two start with in common."""
    limit = min(len(one), len(other))
    if one[:limit] == other[:limit]:
        return limit
    # The first bit in which two big-endian numbers differ lies in the first differing byte.
    difference = int.from_bytes(one[:limit], "big") ^ int.from_bytes(other[:limit], "big")
    return limit - (difference.bit_length() + 7) // 8


def _separator(last: bytes, following: bytes) -> bytes:
    """A short key that sorts at or behind ``last`` and before ``following``."""
    at = _common(last, following)
    if at < min(len(last), len(following)) and last[at] + 1 < following[at]:
        return last[:at] + bytes((last[at] + 1,))
    return last


def _successor(last: bytes) -> bytes:
    """A short key that sorts at or behind ``last``."""
    for at, byte in enumerate(last):
        if byte != 0xFF:
            return last[:at] + bytes((byte + 1,))
    return last
