"""Payloads without a fixed element size: strings and variants, walked and checked.

TensorFlow checks them in its own way (tensor_bundle.cc: WriteStringTensor and
WriteVariantTensor), so the checksum of such an entry is not that of its stored bytes:

- strings: all lengths as varints, a checksum of the lengths, then all bytes. Both that
  checksum and the entry's take each length as a word of 4 bytes (8 past 2^32 - 1) in the
  byte order of the file.
- variants: for each element a varint length, a serialized message (opaque here) and a
  running checksum; the entry's takes each length as a little-endian word of 8 bytes.

Reads in pieces, so checking needs no memory whatever the size. Knows no numpy.
"""

from __future__ import annotations

import sys
from array import array
from typing import Literal

from ckpttool.errors import CorruptError, LimitError, UnsupportedError
from ckpttool.formats.crc32c import crc, extend, mask
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["read_strings", "require_bounded", "string_checksum", "variant_checksum"]

_PIECE = 2**20
_AT_ONCE = 2**16
_CHECKSUM_BYTES = 4
_MAX_VARINT_BYTES = 10


def string_checksum(
    file: ReadableFile, offset: int, size: int, count: int, *, big_endian: bool = False
) -> int:
    """The masked checksum of a string variable, as its entry should have it.

    Args:
        file: the data file.
        offset: where the variable begins.
        size: its bytes as stored.
        count: its number of elements.
        big_endian: the byte order that the header of the index gives.

    Raises:
        CorruptError: id ``strings-malformed``: the lengths do not fit the size; id
            ``strings-checksum``: nor their own checksum.
        IncompleteError: the file ends before.
    """
    span = _Span(file, offset, size, "strings-malformed")
    value = _read_lengths(span, count, big_endian, None)
    return mask(span.extend(value, span.left))


def read_strings(
    file: ReadableFile,
    offset: int,
    size: int,
    count: int,
    *,
    big_endian: bool = False,
    expected: int | None = None,
) -> tuple[list[bytes], int]:
    """The elements of a string variable in C order, and its checksum as above.

    What takes much memory is summed up in pieces first, and held only if it is what is
    ``expected``: a file may claim gigabytes that were never written. Needs the bytes once,
    and 24 bytes and an object an element; the caller has bounded both (`require_bounded`).

    Args:
        file: this and what follows as ``string_checksum``.
        offset: where the variable begins.
        size: its bytes as stored.
        count: its number of elements.
        big_endian: the byte order that the header of the index gives.
        expected: the checksum that they should have; None: whatever it is.

    Returns:
        The elements (none where another checksum is expected), and the checksum.

    Raises:
        CorruptError, IncompleteError: as ``string_checksum``.
    """
    span = _Span(file, offset, size, "strings-malformed")
    span.expect(count, 1, _CHECKSUM_BYTES)
    if expected is not None and size > _PIECE:
        found = string_checksum(file, offset, size, count, big_endian=big_endian)
        if found != expected:
            return [], found
    lengths = array("Q")
    value = _read_lengths(span, count, big_endian, lengths)
    values: list[bytes] = []
    at = 0
    while at < count:
        # As many as fit into a piece; a longer one alone, so that it is in memory once.
        first, total = at, lengths[at]
        at += 1
        while at < count and total + lengths[at] <= _PIECE:
            total += lengths[at]
            at += 1
        data = span.take(total)
        value = extend(value, data)
        start = 0
        for length in lengths[first:at]:
            values.append(data[start : start + length])
            start += length
    found = mask(value)
    return ([], found) if expected not in {None, found} else (values, found)


def require_bounded(what: str, count: int, size: int, limits: Limits) -> None:
    """Check that ``count`` strings in ``size`` bytes may be held; ``what`` holds them.

    Raises:
        LimitError: ids ``limit-string-elements``, ``limit-string-bytes``.
    """
    if count > limits.string_elements:
        raise LimitError(
            f"{what} is over a limit",
            why=f"it has {count} elements, and the limit is {limits.string_elements}",
            hint="if the file is trusted, raise string_elements in CKPTTOOL_LIMITS",
            id="limit-string-elements",
        )
    if size > limits.string_bytes:
        raise LimitError(
            f"{what} is over a limit",
            why=f"it has {size} bytes, and the limit is {limits.string_bytes}",
            hint="if the file is trusted, raise string_bytes in CKPTTOOL_LIMITS",
            id="limit-string-bytes",
        )


def variant_checksum(
    file: ReadableFile, offset: int, size: int, count: int, *, big_endian: bool = False
) -> int:
    """The masked checksum of a variant variable, as its entry should have it.

    Raises:
        CorruptError: id ``variants-malformed``: the lengths do not fit the size; id
            ``variants-checksum``: an element does not fit its own checksum.
        IncompleteError: the file ends before.
        UnsupportedError: id ``variants-big-endian``: no TensorFlow reads such a file.
    """
    if big_endian:
        raise UnsupportedError(
            f"variants in the big-endian file {file.path} cannot be checked",
            why="TensorFlow defines no such thing, and cannot read them either",
            id="variants-big-endian",
        )
    span = _Span(file, offset, size, "variants-malformed")
    span.expect(count, 1 + _CHECKSUM_BYTES)
    value = 0
    for number in range(count):
        length = span.varint()
        value = extend(value, length.to_bytes(8, "little"))
        value = span.extend(value, length)
        stored = span.take(_CHECKSUM_BYTES)
        if int.from_bytes(stored, "little") != mask(value):
            raise CorruptError(
                f"a variant variable in {file.path} is damaged",
                why=f"element {number} of {count} at offset {offset} does not match its checksum",
                id="variants-checksum",
            )
        value = extend(value, stored)
    if span.left:
        raise span.malformed(f"{span.left} bytes follow the last of {count} elements")
    return mask(value)


def _read_lengths(span: _Span, count: int, big_endian: bool, into: array[int] | None) -> int:
    """Read and check the lengths of strings: the running checksum behind them.

    Leaves ``span`` at the first byte of the first string.
    """
    span.expect(count, 1, _CHECKSUM_BYTES)
    order: Literal["little", "big"] = "big" if big_endian else "little"
    value = crc(b"")
    total = 0
    left = count
    while left:
        lengths = span.varints(min(left, _AT_ONCE))
        left -= len(lengths)
        total += sum(lengths)
        if into is not None:
            into.extend(lengths)
        value = extend(value, _words(lengths, order))
    stored = span.take(_CHECKSUM_BYTES)
    if total != span.left:
        raise span.malformed(f"its {count} strings claim {total} bytes, and it has {span.left}")
    if int.from_bytes(stored, order) != mask(value):
        raise CorruptError(
            f"a string variable in {span.path} is damaged",
            why=f"the lengths of its {count} elements do not match their checksum "
            f"(offset {span.start})",
            id="strings-checksum",
        )
    return extend(value, stored)


def _words(lengths: list[int], order: Literal["little", "big"]) -> bytes:
    """Lengths as TensorFlow sums them up: 4 bytes each, 8 for those that need it."""
    if max(lengths) >= 2**32:
        return b"".join(n.to_bytes(4 if n < 2**32 else 8, order) for n in lengths)
    words = array("I", lengths)
    if order != sys.byteorder:
        words.byteswap()
    return words.tobytes()


class _Span:
    """The bytes of one variable, read once from front to back."""

    def __init__(self, file: ReadableFile, offset: int, size: int, malformed_id: str) -> None:
        self.path = file.path
        self.start = offset
        self._file = file
        self._next = offset  # of the file, behind what is buffered
        self._end = offset + size
        self._buffer = b""
        self._pos = 0
        self._malformed_id = malformed_id

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return self._end - self._next + len(self._buffer) - self._pos

    def malformed(self, why: str) -> CorruptError:
        return CorruptError(
            f"a variable in {self.path} is malformed",
            why=f"at offset {self.start}: {why}",
            id=self._malformed_id,
        )

    def expect(self, count: int, each: int, more: int = 0) -> None:
        """Check that ``count`` elements of at least ``each`` bytes can be there at all."""
        if count * each + more > self.left:
            raise self.malformed(f"{count} elements cannot lie in {self.left} bytes")

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size > self.left:
            raise self.malformed(f"{size} bytes are claimed, and {self.left} are left")
        stop = self._pos + size
        if stop <= len(self._buffer):
            taken = self._buffer[self._pos : stop]
            self._pos = stop
            return taken
        # What is buffered of it is read once more: to join two pieces would take the
        # memory of both.
        begin = self._next - len(self._buffer) + self._pos
        taken = self._file.pread(begin, size)
        self._next = begin + size
        self._buffer, self._pos = b"", 0
        return taken

    def extend(self, value: int, size: int) -> int:
        """Take ``size`` bytes in pieces, and extend checksum ``value`` over them."""
        if size > self.left:
            raise self.malformed(f"{size} bytes are claimed, and {self.left} are left")
        while size:
            piece = self.take(min(size, _PIECE))
            size -= len(piece)
            value = extend(value, piece)
        return value

    def varint(self) -> int:
        """The next varint."""
        return self.varints(1)[0]

    def varints(self, count: int) -> list[int]:
        """The next varints: ``count`` of them, or fewer when the buffer ends before."""
        self._fill()
        data, pos, end = self._buffer, self._pos, len(self._buffer)
        # The last one in the buffer may be cut off; at the end of the span nothing is.
        safe = end if self._next == self._end else end - _MAX_VARINT_BYTES
        found: list[int] = []
        try:
            while len(found) < count and pos < safe:
                value = data[pos]
                pos += 1
                if value > 0x7F:
                    value &= 0x7F
                    shift = 7
                    while True:
                        byte = data[pos]
                        pos += 1
                        value |= (byte & 0x7F) << shift
                        if byte < 0x80:
                            break
                        shift += 7
                        if shift > 63:
                            break
                    if byte > 0x7F or value >= 2**64:
                        raise self.malformed("a length has more than 64 bits")
                found.append(value)
        except IndexError:
            raise self.malformed("a length runs past the end") from None
        if not found:
            raise self.malformed("it ends before the last length")
        self._pos = pos
        return found

    def _fill(self) -> None:
        """Have enough in the buffer for some varints, or all that is left."""
        if len(self._buffer) - self._pos >= 2 * _MAX_VARINT_BYTES or self._next == self._end:
            return
        head = self._buffer[self._pos :]
        more = self._file.pread(self._next, min(_PIECE, self._end - self._next))
        self._next += len(more)
        self._buffer, self._pos = head + more, 0
