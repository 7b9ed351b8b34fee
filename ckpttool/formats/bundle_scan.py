"""The fast way through an index: text for every entry, where one entry is like another.

A million entries differ in their keys, offsets and checksums and in little else. So the
bytes of an entry up to its shape are looked up among those that were met before after a
key like the last one, which tells the key's own bytes, the entry's length, the text behind
the key, and which bits of the rest are fixed; those of a whole block are compared at once,
as two long integers.

Only the ordinary is handled here: keys of printable ASCII, the fields as TensorFlow writes
them, a size that follows from dtype and shape. A block with anything else in it, a damaged
one too, is left to ``BundleIndex``, which says what is wrong. What passes here passes there
with the same result; a test holds the two against each other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ckpttool.errors import CkpttoolError
from ckpttool.formats.bundle import BundleIndex
from ckpttool.formats.dtypes import BY_NUMBER
from ckpttool.formats.entry import Entry
from ckpttool.formats.sstable import Contents
from ckpttool.formats.wire import encode_varint
from ckpttool.model import numel

__all__ = ["Lines", "Texts", "scan"]

#: Bytes of a block here at most; its entries are all held at once. TensorFlow's have 256 KiB.
_BLOCK = 4 * 2**20
#: Openings, contexts, heads and patterns that are remembered before all are forgotten.
_KNOWN = 16384
#: Endings that are remembered.
_ENDINGS = 1024
_SHAPE_TAG, _SHARD_TAG, _OFFSET_TAG, _SIZE_TAG, _CRC_TAG = b"\x12\x18\x20\x28\x35"
_CRC_BYTES = 4
#: Bytes of a varint here at most: two numbers of 56 bits cannot add up to 2^63.
_MAX_VARINT = 8


class Texts(NamedTuple):
    """What to print behind a key: two texts, one after the other.

    Attributes:
        of_entry: of the entry's dtype, shape, shard and size; of nothing else.
        of_ending: of the key's ending: what stands behind the last slash, with it; all of
            a key that has none. Ends with the line break.
        apart: openings of keys of which the ending does not tell all; blocks that have
            such a key are given as entries.
    """

    of_entry: Callable[[Entry], str]
    of_ending: Callable[[str], str]
    apart: Sequence[bytes] = ()


class Lines(NamedTuple):
    """Many entries at once: their keys, printable ASCII, and the text behind each, UTF-8."""

    keys: list[bytes]
    texts: list[bytes]

    def joined(self) -> bytes:
        """Keys and texts in turn."""
        lines = [b""] * (2 * len(self.keys))
        lines[::2] = self.keys
        lines[1::2] = self.texts
        return b"".join(lines)


def scan(index: BundleIndex, texts: Texts) -> Iterator[Lines | list[Entry]]:
    """The index in key order: lines of text, or entries that need a closer look.

    Damage is raised; an index made with ``damaged`` is to be read by its ``blocks``.

    Raises:
        CorruptError, LimitError: as ``BundleIndex.blocks``; what came before is intact.
    """
    table = index.table
    scanner = _Scanner(index, texts)
    budget = index.budget()
    last: bytes | None = None
    count = 0
    for number in range(table.block_count):
        block = table.contents(number)
        try:
            lines, last, found = scanner.lines(block, last)
        except (_UnusualError, IndexError):
            for items in table.items(block, last):
                count += len(items)
                table.check_count(count)
                last = items[-1][0]
                yield index.parse(items, budget)
        else:
            count += found
            table.check_count(count)
            yield lines


class _UnusualError(Exception):
    """The block has something that is not handled here."""


class _Context(dict[bytes, "_Like"]):
    """The openings that were met after a key of this length and tail.

    The tail is what is known of the key's end: up to two components with their slashes,
    or all of a key that has no slash; None where nothing is known.
    """

    __slots__ = ("length", "scanner", "tail")

    def __init__(self, scanner: _Scanner, length: int, tail: bytes | None) -> None:
        super().__init__()
        self.scanner = scanner
        self.length = length
        self.tail = tail

    def __missing__(self, opening: bytes) -> _Like:
        return self.scanner.learn(self, opening)


#: What an entry is known to be by its opening: how many bytes its key shares, the key's own
#: bytes, the entry's length, which of its bits are fixed, what they are, the text behind the
#: key, whether that is all of it (else the text of the ending is missing), the next context.
_Like = tuple[int, bytes, int, bytes, bytes, bytes, bool, _Context]


class _Head(NamedTuple):
    """What dtype, shape and shard imply: the size field up to the checksum, and the text."""

    tail: bytes
    text: bytes


class _Scanner:
    """The memory of one scan."""

    def __init__(self, index: BundleIndex, texts: Texts) -> None:
        self._index = index
        self._texts = texts
        self._sharded = index.header.num_shards != 1
        self._remembered = 0
        self._contexts: dict[tuple[int, bytes | None], _Context] = {}
        self._heads: dict[bytes, _Head] = {}
        self._endings: dict[bytes, bytes] = {}
        self._patterns: dict[tuple[int, int, bytes], tuple[bytes, bytes]] = {}

    def lines(self, block: Contents, last: bytes | None) -> tuple[Lines, bytes, int]:
        """The lines of a block, its last key and its number of entries.

        Raises:
            _UnusualError, IndexError: it has something that is not handled here.
        """
        data, starts = block.data, block.starts
        if len(data) > _BLOCK:
            raise _UnusualError
        begin, count = 0, 0
        if last is None:  # the header comes first; BundleIndex has read it
            begin, count = 3 + data[2], 1
            if data[0] or data[1] or data[2] > 0x7F:
                raise _UnusualError
        sharded = self._sharded
        keys: list[bytes] = []
        add_key = keys.append
        texts: list[bytes] = []
        add_text = texts.append
        masks: list[bytes] = []
        add_mask = masks.append
        fixed_bits: list[bytes] = []
        add_fixed = fixed_bits.append
        key = last or b""
        context = self._context(len(key), None)
        pos = begin
        for stop in starts[1:]:
            if data[pos]:
                raise _UnusualError  # no restart point
            while pos < stop:
                # The opening: three bytes of lengths, the key's own bytes, dtype in two,
                # tag and length of the shape, the shape.
                end = pos + data[pos + 1] + 7
                end += data[end - 1]
                if sharded and data[end] == _SHARD_TAG:
                    end += 2
                shared, own, length, mask, fixed, text, known, context = context[data[pos:end]]
                pos += length
                previous = key
                key = previous[:shared] + own
                if key <= previous:
                    raise _UnusualError
                add_key(key)
                add_text(text if known else text + self._of_key(key))
                add_mask(mask)
                add_fixed(fixed)
            if pos != stop:
                raise _UnusualError
        if key > block.bound:
            raise _UnusualError
        bits = int.from_bytes(data[begin:pos], "little")
        if bits & int.from_bytes(b"".join(masks), "little") != int.from_bytes(
            b"".join(fixed_bits), "little"
        ):
            raise _UnusualError
        if self._has_one_apart(keys):
            raise _UnusualError
        return Lines(keys, texts), key, count + len(keys)

    def learn(self, before: _Context, opening: bytes) -> _Like:
        """What an entry is that begins so, after such a key.

        The entry of a restart point shares nothing and has all of its key in its opening;
        it is not met again, so it is not remembered.
        """
        if self._remembered > _KNOWN:
            self._forget()
        shared, own_length, size = opening[0], opening[1], opening[2]
        split = 3 + own_length
        own, head = opening[3:split], opening[split:]
        if (shared | own_length | size) > 0x7F or shared > before.length:
            raise _UnusualError
        if not (own.isascii() and own.decode().isprintable()):
            raise _UnusualError
        tail_field, text = self._heads.get(head) or self._read_head(head)
        offset_field = size - len(head) - len(tail_field) - _CRC_BYTES
        pattern = (len(opening), offset_field, tail_field)
        mask, fixed = self._patterns.get(pattern) or self._pattern(*pattern)
        tail = _tail(before, shared, own)
        known = False
        if tail is not None:
            of_ending = self._of_ending(tail[max(tail.rfind(b"/"), 0) :])
            if of_ending is None:
                tail = None
            else:
                known = True
                text += of_ending
        context = self._context(shared + own_length, tail)
        like = shared, own, split + size, mask, fixed, text, known, context
        if shared:
            before[opening] = like
            self._remembered += 1
        return like

    def _pattern(self, opening: int, offset: int, tail: bytes) -> tuple[bytes, bytes]:
        """Which bits of an entry are fixed, and what they are, behind an opening of so many bytes.

        An offset field of ``offset`` bytes is a tag and a varint, whose length shows in its
        top bits; it may be missing. The checksum may be anything.
        """
        mask = fixed = b""
        if offset:
            more = offset - 2
            if not 0 <= more < _MAX_VARINT:
                raise _UnusualError
            mask = b"\xff" + b"\x80" * (more + 1)
            fixed = bytes((_OFFSET_TAG,)) + b"\x80" * more + b"\x00"
        before, behind = bytes(opening), bytes(_CRC_BYTES)
        pattern = before + mask + b"\xff" * len(tail) + behind, before + fixed + tail + behind
        self._patterns[opening, offset, tail] = pattern
        self._remembered += 1
        return pattern

    def _read_head(self, head: bytes) -> _Head:
        """What dtype, shape and shard imply, where the message begins with just these.

        Two bytes, then the shape; a shard only behind it (the caller looks for its tag). So
        there is no other field in front, which the ones behind would not override.
        """
        if head[2] != _SHAPE_TAG:
            raise _UnusualError
        try:
            entry = self._index.parser.one(b"", head)
        except CkpttoolError:
            raise _UnusualError from None
        dtype = BY_NUMBER.get(entry.dtype)
        if entry.shape is None or dtype is None or not dtype.size:
            raise _UnusualError
        size = dtype.size * numel(entry.shape)
        tail = bytes((_CRC_TAG,))
        if size:
            tail = bytes((_SIZE_TAG,)) + encode_varint(size) + tail
        if len(tail) > _MAX_VARINT + 2:
            raise _UnusualError
        found = _Head(tail, self._texts.of_entry(entry._replace(size=size)).encode())
        self._heads[head] = found
        self._remembered += 1
        return found

    def _context(self, length: int, tail: bytes | None) -> _Context:
        context = self._contexts.get((length, tail))
        if context is None:
            context = self._contexts[length, tail] = _Context(self, length, tail)
            self._remembered += 1
        return context

    def _of_ending(self, ending: bytes) -> bytes | None:
        """The text of an ending; None when no more of them are remembered."""
        text = self._endings.get(ending)
        if text is None and len(self._endings) < _ENDINGS:
            text = self._endings[ending] = self._texts.of_ending(ending.decode()).encode()
        return text

    def _of_key(self, key: bytes) -> bytes:
        """The text of the ending of a key."""
        slash = key.rfind(b"/")
        ending = key if slash < 0 else key[slash:]
        return self._of_ending(ending) or self._texts.of_ending(ending.decode()).encode()

    def _has_one_apart(self, keys: list[bytes]) -> bool:
        for opening in self._texts.apart:
            at = bisect_left(keys, opening)
            if at < len(keys) and keys[at].startswith(opening):
                return True
        return False

    def _forget(self) -> None:
        """Start anew, before what is remembered grows past a bound."""
        self._remembered = 0
        self._contexts.clear()
        self._heads.clear()
        self._endings.clear()
        self._patterns.clear()


def _tail(before: _Context, shared: int, own: bytes) -> bytes | None:
    """The tail of a key that shares so many bytes with the one before (see ``_Context``)."""
    slash = own.rfind(b"/")
    if not shared:
        return own[max(slash, 0) :]
    known = own
    if before.tail is not None:
        kept = shared - (before.length - len(before.tail))
        if kept > 0:
            known = before.tail[:kept] + own
            slash = known.rfind(b"/")
            if slash < 0:
                return known  # neither key has a slash
    if slash < 0:
        return None
    second = known.rfind(b"/", 0, slash)
    return known[second if second >= 0 else slash :]
