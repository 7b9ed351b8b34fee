"""One entry of a V2 index: the message ``BundleEntryProto`` and its bounds.

The general reader takes any spelling that protobuf allows. Nearly every entry is spelled
as TensorFlow spells it, though, and of a million entries few differ in dtype and shape; so
``many`` remembers those by their bytes and reads the rest in place, with the same result.
Knows nothing of files; keys are ``bytes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.formats.dtypes import BY_NUMBER
from ckpttool.formats.ordered_code import FULL, encode_slice_key
from ckpttool.formats.sstable import Item, quote_key
from ckpttool.formats.wire import FIXED32, LENGTH, VARINT, fields, signed32, signed64
from ckpttool.limits import Limits
from ckpttool.model import shape_text

__all__ = ["Entry", "EntryParser", "SliceBudget", "SliceSpec", "TensorShape", "parse_slice"]

_INT64 = 2**63
#: Pairs of dtype and shape that are remembered: a model has some dozens.
_HEADS = 4096
#: Tags of the fields behind the shape: shard, offset, size, checksum.
_SHARD, _OFFSET, _SIZE, _CRC = 0x18, 0x20, 0x28, 0x35
#: Of a slice: a dimension, and in it where it starts and how long it is.
_DIMENSION, _START, _LENGTH = 0x0A, 0x08, 0x10
#: Of the second to the eighth byte of a varint; longer ones are left to the general reader.
_SHIFTS = range(7, 56, 7)
_WORD = Struct("<I")


class SliceSpec(NamedTuple):
    """Which part of a variable is stored, spelled as in the index.

    ``length`` is ``ordered_code.FULL`` (-1) exactly where the index leaves it out, which
    stands for the whole dimension; the key of the part depends on the spelling.
    """

    start: tuple[int, ...]
    length: tuple[int, ...]

    def key(self, name: bytes) -> bytes:
        """The key of this part of variable ``name``."""
        return encode_slice_key(name, zip(self.start, self.length, strict=True))

    def extent(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """The length of every dimension, spelled out; None where it does not fit ``shape``."""
        if len(shape) != len(self.start):
            return None
        spelled = []
        for start, length, size in zip(self.start, self.length, shape, strict=True):
            full = length == FULL
            if start < 0 or (full and start) or (not full and not 0 <= length <= size - start):
                return None
            spelled.append(size if full else length)
        return tuple(spelled)


class Entry(NamedTuple):
    """One entry of the index.

    Attributes:
        key: the literal key.
        dtype: TensorFlow's number (``dtypes.BY_NUMBER``), known or not.
        shape: None where the rank is unknown.
        shard: the number of the data file; may be one that does not exist.
        offset: the first byte in that file.
        size: bytes; whether they fit the shape is for the reader of the data to check.
        crc32c: the masked checksum of the bytes; None where none is stored.
        slices: the parts of a partitioned variable, whose shard, offset, size and crc32c
            mean nothing then; empty for every other entry.
        raw: the message as stored.
    """

    key: bytes
    dtype: int
    shape: tuple[int, ...] | None
    shard: int
    offset: int
    size: int
    crc32c: int | None
    slices: tuple[SliceSpec, ...]
    raw: bytes


_Fields = tuple[
    bytes,
    int,
    "tuple[int, ...] | None",
    int,
    int,
    int,
    "int | None",
    tuple[SliceSpec, ...],
    bytes,
]
#: ``Entry(*fields)``, three times as fast.
_entry: Callable[[_Fields], Entry] = partial(tuple.__new__, Entry)


class SliceBudget:
    """How many more slices a walk through an index may meet, in all entries together."""

    __slots__ = ("left",)

    def __init__(self, limits: Limits) -> None:
        self.left = limits.index_slices


class EntryParser:
    """Reads the entries of one index.

    Args:
        path: the file's, for messages.
        limits: bounds on rank and number of parts.

    Raises:
        CorruptError: ids ``entry-malformed``, ``negative-dimension``, ``shape-overflow``;
            the error names the key.
        LimitError: ids ``limit-rank``, ``limit-slices``, ``limit-index-slices``.
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._heads: dict[bytes, tuple[int, tuple[int, ...] | None]] = {}

    def many(self, items: Iterable[Item], budget: SliceBudget) -> list[Entry]:
        """The entries of these items; their slices are taken off the budget."""
        heads = self._heads
        entry, word = _entry, _WORD.unpack_from
        entries: list[Entry] = []
        append = entries.append
        for key, raw in items:
            # An IndexError, KeyError or ValueError means: not as TensorFlow spells it.
            try:
                pos = 4 + raw[3]
                dtype, shape = heads[raw[:pos]]
                shard = offset = size = 0
                tag = raw[pos]
                if tag == _SHARD:
                    shard = raw[pos + 1]
                    if shard > 0x7F:
                        raise ValueError
                    pos += 2
                    tag = raw[pos]
                if tag == _OFFSET:
                    offset = raw[pos + 1]
                    pos += 2
                    if offset > 0x7F:
                        offset &= 0x7F
                        for shift in _SHIFTS:
                            byte = raw[pos]
                            pos += 1
                            offset |= (byte & 0x7F) << shift
                            if byte < 0x80:
                                break
                        else:
                            raise ValueError
                    tag = raw[pos]
                if tag == _SIZE:
                    size = raw[pos + 1]
                    pos += 2
                    if size > 0x7F:
                        size &= 0x7F
                        for shift in _SHIFTS:
                            byte = raw[pos]
                            pos += 1
                            size |= (byte & 0x7F) << shift
                            if byte < 0x80:
                                break
                        else:
                            raise ValueError
                    tag = raw[pos]
                if tag != _CRC or pos + 5 != len(raw):
                    raise ValueError
                (crc,) = word(raw, pos + 1)
                append(entry((key, dtype, shape, shard, offset, size, crc, (), raw)))
            except (IndexError, KeyError, ValueError):
                append(self.one(key, raw, budget))
                self._remember(key, raw)
        return entries

    def one(self, key: bytes, raw: bytes, budget: SliceBudget | None = None) -> Entry:
        """The entry whose message is ``raw``, in any spelling."""
        dtype = shard = offset = size = 0
        shape = TensorShape()
        crc: int | None = None
        slices: list[SliceSpec] = []
        try:
            for number, wire_type, value in fields(raw):
                if isinstance(value, int):
                    if number == 1 and wire_type == VARINT:
                        dtype = signed32(value)
                    elif number == 3 and wire_type == VARINT:
                        shard = signed32(value)
                    elif number == 4 and wire_type == VARINT:
                        offset = value
                    elif number == 5 and wire_type == VARINT:
                        size = value
                    elif number == 6 and wire_type == FIXED32:
                        crc = value
                elif number == 2:
                    shape.add(raw, *value)
                elif number == 7:
                    self.count_slice(key, len(slices), budget)
                    slices.append(parse_slice(raw, *value))
        except CkpttoolError as error:
            if isinstance(error, LimitError):
                raise
            raise self._broken(key, error.why) from None
        dims = None if shape.unknown_rank else tuple(shape.dims)
        if shard < 0:
            raise self._broken(key, f"its shard number is {shard}")
        if offset + size >= _INT64:
            raise self._broken(key, "its bytes end past 2^63")
        self.check_shape(key, dtype, dims)
        return Entry(key, dtype, dims, shard, offset, size, crc, tuple(slices), raw)

    def count_slice(self, key: bytes, before: int, budget: SliceBudget | None) -> None:
        """Hold one more slice of a variable that has ``before`` against the limits."""
        if before == self._limits.slices:
            raise self._over(key, "slices", "limit-slices", "parts")
        if budget is None:
            return
        if not budget.left:
            raise LimitError(
                f"{self._path} is over a limit",
                why=f"its partitioned variables have more than {self._limits.index_slices} "
                "parts together",
                hint="if the file is trusted, raise index_slices in CKPTTOOL_LIMITS",
                id="limit-index-slices",
            )
        budget.left -= 1

    def _remember(self, key: bytes, raw: bytes) -> None:
        """Keep what the bytes up to the shape say, where they are spelled as usual.

        That is: dtype in one byte, then the shape. Fields that ``many`` takes behind them
        cannot change what they say.
        """
        if raw[:1] != b"\x08" or raw[2:3] != b"\x12" or len(self._heads) >= _HEADS:
            return
        head = raw[: 4 + raw[3]]
        if len(head) < 4 + raw[3] or raw[1] > 0x7F or raw[3] > 0x7F:
            return
        try:
            entry = self.one(key, head)
        except CkpttoolError:
            return  # only what stands behind makes it an entry
        self._heads[head] = entry.dtype, entry.shape

    def check_shape(self, key: bytes, dtype: int, shape: tuple[int, ...] | None) -> None:
        """Check a shape by itself: no negative size, and no more bytes than can be counted."""
        if shape is None:
            return
        if len(shape) > self._limits.rank:
            raise self._over(key, "rank", "limit-rank", "dimensions")
        known = BY_NUMBER.get(dtype)
        nbytes = (known.size if known else 0) or 1
        for length in shape:
            if length < 0:
                raise self._broken(
                    key, f"its shape is {shape_text(shape)}", id="negative-dimension"
                )
            nbytes *= length
        if nbytes >= _INT64:
            raise self._broken(
                key, f"shape {shape_text(shape)} stands for 2^63 bytes or more", id="shape-overflow"
            )

    def _broken(self, key: bytes, why: str, *, id: str = "entry-malformed") -> CorruptError:
        return CorruptError(
            f"{self._path}: the entry of {quote_key(key)} is malformed",
            why=why,
            hint="take the index from another copy",
            id=id,
        )

    def _over(self, key: bytes, limit: str, id: str, what: str) -> LimitError:
        return LimitError(
            f"{self._path}: the entry of {quote_key(key)} is over a limit",
            why=f"it has more than {getattr(self._limits, limit)} {what}",
            hint=f"if the file is trusted, raise {limit} in CKPTTOOL_LIMITS",
            id=id,
        )


class TensorShape:
    """TensorShapeProto; a message that is given in pieces is put together, as protobuf does."""

    def __init__(self) -> None:
        self.dims: list[int] = []
        self.unknown_rank = False

    def add(self, data: bytes, start: int, end: int) -> None:
        """Add the fields in ``data[start:end]``; names of dimensions are of no interest."""
        for number, wire_type, value in fields(data, start, end):
            if number == 3 and wire_type == VARINT:
                self.unknown_rank = value != 0
            elif number == 2 and not isinstance(value, int):
                size = 0
                for inner, kind, length in fields(data, *value):
                    if inner == 1 and kind == VARINT and isinstance(length, int):
                        size = signed64(length)
                self.dims.append(size)


def parse_slice(data: bytes, start: int, end: int) -> SliceSpec:
    """A TensorSliceProto; in place where it is spelled as usual and its numbers are short."""
    starts: list[int] = []
    lengths: list[int] = []
    pos = start
    try:
        while pos < end:
            stop = pos + 2 + data[pos + 1]
            if data[pos] != _DIMENSION or stop > end or data[pos + 1] > 0x7F:
                break
            first, length = 0, FULL
            pos += 2
            if pos < stop and data[pos] == _START:
                first, pos = _short(data, pos + 1)
            if pos < stop and data[pos] == _LENGTH:
                length, pos = _short(data, pos + 1)
            if pos != stop:
                break
            starts.append(first)
            lengths.append(length)
        else:
            return SliceSpec(tuple(starts), tuple(lengths))
    except (IndexError, ValueError):
        pass
    return _parse_any_slice(data, start, end)


def _short(data: bytes, pos: int) -> tuple[int, int]:
    """A varint of at most three bytes, and the position after it; else a ValueError."""
    value = data[pos]
    if value < 0x80:
        return value, pos + 1
    second = data[pos + 1]
    value = value & 0x7F | (second & 0x7F) << 7
    if second < 0x80:
        return value, pos + 2
    third = data[pos + 2]
    if third < 0x80:
        return value | third << 14, pos + 3
    raise ValueError


def _parse_any_slice(data: bytes, start: int, end: int) -> SliceSpec:
    """TensorSliceProto in any spelling."""
    starts = []
    lengths = []
    for number, wire_type, value in fields(data, start, end):
        if number != 1 or wire_type != LENGTH or isinstance(value, int):
            continue
        first, length = 0, FULL
        for inner, kind, extent in fields(data, *value):
            if kind == VARINT and isinstance(extent, int):
                if inner == 1:
                    first = signed64(extent)
                elif inner == 2:
                    length = signed64(extent)
        starts.append(first)
        lengths.append(length)
    return SliceSpec(tuple(starts), tuple(lengths))
