"""The index of a V2 checkpoint: header and entries of a tensor bundle.

Over a ``Table`` of protobuf messages (tensorflow/core/protobuf/tensor_bundle.proto): the
empty key holds the header, every other key an entry that says where a variable's bytes
lie. This module knows the messages and their bounds; it opens no data file, and does not
care what a name means. Keys are ``bytes`` here, as in the file.

A part of a partitioned variable has an entry of its own, under a key that
``ordered_code`` derives from the whole variable's entry; both are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, CorruptError, LimitError, UnsupportedError
from ckpttool.formats.dtypes import BY_NUMBER
from ckpttool.formats.ordered_code import FULL, encode_slice_key
from ckpttool.formats.sstable import Damaged, Item, Table, quote_key
from ckpttool.formats.wire import (
    FIXED32,
    LENGTH,
    VARINT,
    fields,
    read_varint,
    signed32,
    signed64,
)
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["BundleIndex", "Entry", "Header", "SliceSpec"]

#: The version of the bundle format that this module reads (kTensorBundleVersion).
_VERSION = 1
_INT64 = 2**63


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


@dataclass(frozen=True, slots=True)
class Header:
    """What the empty key holds: the number of data files, byte order, version."""

    num_shards: int
    big_endian: bool
    producer: int
    min_consumer: int
    bad_consumers: tuple[int, ...]
    raw: bytes


class BundleIndex:
    """An index file; reads the header at once and the entries when they are asked for.

    Args:
        file: the open ``.index`` file; it stays the caller's.
        limits: bounds on what the file may claim.
        damaged: where given, it is told of an error in the header, in one block or in one
            entry, instead of its being raised; the rest of the index is still read.

    Raises:
        CorruptError: what ``Table`` raises; ids ``header-missing``, ``header-malformed``,
            ``entry-malformed``, ``negative-dimension``, ``shape-overflow``.
        LimitError: what ``Table`` raises; ids ``limit-rank``, ``limit-slices``.
        UnsupportedError: ids ``bundle-version``, ``block-compression``.
    """

    def __init__(self, file: ReadableFile, limits: Limits, damaged: Damaged | None = None) -> None:
        self._path = file.path
        self._limits = limits
        self._damaged = damaged
        self.table = Table(file, limits)
        #: What the empty key holds; None only where it was lost and ``damaged`` was told.
        self.found_header: Header | None = None
        try:
            self.found_header = self._read_header()
        except CorruptError as error:
            if damaged is None:
                raise
            if error.id.startswith("header-"):  # a bad block will be met again by blocks()
                damaged(error)

    @property
    def header(self) -> Header:
        """What the empty key holds; a header of no shards where it was lost."""
        return self.found_header or Header(0, False, 0, 0, (), b"")

    def blocks(self) -> Iterator[list[Entry]]:
        """All entries in key order, in lists of at most some thousand, without the header.

        What is given before an error is intact.
        """
        parse = self.parse
        for batch in self.table.blocks(self._damaged):
            items = batch if batch[0][0] else batch[1:]
            try:
                entries = [parse(key, value) for key, value in items]
            except CkpttoolError:
                if self._damaged is None:
                    raise
                entries = self._intact(items, self._damaged)
            yield entries

    def _intact(self, items: list[Item], damaged: Damaged) -> list[Entry]:
        entries = []
        for key, value in items:
            try:
                entries.append(self.parse(key, value))
            except CkpttoolError as error:
                damaged(error)
        return entries

    def entries(self) -> Iterator[Entry]:
        """All entries in key order, one by one."""
        for block in self.blocks():
            yield from block

    def get(self, key: bytes) -> Entry | None:
        """The entry of ``key``; reads one block."""
        raw = self.table.get(key) if key else None
        return None if raw is None else self.parse(key, raw)

    def parse(self, key: bytes, raw: bytes) -> Entry:
        """The entry whose message is ``raw``.

        Raises:
            CorruptError, LimitError: the class lists the ids; the error names the key.
        """
        dtype = shard = offset = size = 0
        shape: tuple[int, ...] | None = ()
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
                    shape = _parse_shape(raw, *value)
                elif number == 7:
                    if len(slices) == self._limits.slices:
                        raise self._over(key, "slices", "parts")
                    slices.append(_parse_slice(raw, *value))
        except CkpttoolError as error:
            if isinstance(error, LimitError):
                raise
            raise self._broken(key, error.why) from None
        self._check(key, dtype, shape, shard, offset, size)
        return Entry(key, dtype, shape, shard, offset, size, crc, tuple(slices), raw)

    def _check(
        self,
        key: bytes,
        dtype: int,
        shape: tuple[int, ...] | None,
        shard: int,
        offset: int,
        size: int,
    ) -> None:
        if shard < 0:
            raise self._broken(key, f"its shard number is {shard}")
        if offset + size >= _INT64:
            raise self._broken(key, f"its {size} bytes at offset {offset} end past 2^63")
        if shape is None:
            return
        if len(shape) > self._limits.rank:
            raise self._over(key, "rank", "dimensions")
        known = BY_NUMBER.get(dtype)
        nbytes = (known.size if known else 0) or 1
        for length in shape:
            if length < 0:
                raise self._broken(key, f"its shape is {list(shape)}", id="negative-dimension")
            nbytes *= length
        if nbytes >= _INT64:
            raise self._broken(
                key, f"shape {list(shape)} stands for 2^63 bytes or more", id="shape-overflow"
            )

    def _read_header(self) -> Header:
        raw = self.table.get(b"")
        if raw is None:
            raise CorruptError(
                f"{self._path} has no header",
                why=f"none of its {self.table.block_count} blocks has the empty key",
                hint="TensorFlow would take its first variable for the header and lose it",
                id="header-missing",
            )
        return self._parse_header(raw)

    def _parse_header(self, raw: bytes) -> Header:
        num_shards = endianness = producer = min_consumer = 0
        bad: list[int] = []
        try:
            for number, _, value in fields(raw):
                if isinstance(value, int):
                    if number == 1:
                        num_shards = signed32(value)
                    elif number == 2:
                        endianness = signed32(value)
                elif number == 3:
                    for inner, _, version in fields(raw, *value):
                        if not isinstance(version, int):
                            if inner == 3:
                                bad += _packed(raw, *version)
                        elif inner == 1:
                            producer = signed32(version)
                        elif inner == 2:
                            min_consumer = signed32(version)
                        elif inner == 3:
                            bad.append(signed32(version))
        except CkpttoolError as error:
            raise self._bad_header(error.why) from None
        if num_shards < 0 or endianness not in {0, 1}:
            raise self._bad_header(f"{num_shards} shards, byte order {endianness}")
        if min_consumer > _VERSION or _VERSION in bad:
            wanted = f"{min_consumer} or later" if min_consumer > _VERSION else f"not {_VERSION}"
            raise UnsupportedError(
                f"{self._path} has a format version that is not supported",
                why=f"it asks for a reader of version {wanted}, and this one is {_VERSION}",
                hint="a newer ckpttool, or the TensorFlow that wrote it, can read it",
                id="bundle-version",
            )
        return Header(num_shards, bool(endianness), producer, min_consumer, tuple(bad), raw)

    def _broken(self, key: bytes, why: str, *, id: str = "entry-malformed") -> CorruptError:
        return CorruptError(
            f"{self._path}: the entry of {quote_key(key)} is malformed",
            why=why,
            hint="take the index from another copy",
            id=id,
        )

    def _over(self, key: bytes, limit: str, what: str) -> LimitError:
        return LimitError(
            f"{self._path}: the entry of {quote_key(key)} is over a limit",
            why=f"it has more than {getattr(self._limits, limit)} {what}",
            hint=f"if the file is trusted, raise {limit} in CKPTTOOL_LIMITS",
            id=f"limit-{limit}",
        )

    def _bad_header(self, why: str) -> CorruptError:
        return CorruptError(
            f"{self._path} has a malformed header",
            why=why,
            hint="take the index from another copy",
            id="header-malformed",
        )


def _packed(data: bytes, pos: int, end: int) -> Iterator[int]:
    """A packed repeated int32."""
    while pos < end:
        value, pos = read_varint(data, pos, end)
        yield signed32(value)


def _parse_shape(data: bytes, start: int, end: int) -> tuple[int, ...] | None:
    """TensorShapeProto; the names of dimensions are of no interest."""
    shape = []
    unknown = False
    for number, wire_type, value in fields(data, start, end):
        if number == 3 and wire_type == VARINT:
            unknown = value != 0
        elif number == 2 and not isinstance(value, int):
            size = 0
            for inner, kind, length in fields(data, *value):
                if inner == 1 and kind == VARINT and isinstance(length, int):
                    size = signed64(length)
            shape.append(size)
    return None if unknown else tuple(shape)


def _parse_slice(data: bytes, start: int, end: int) -> SliceSpec:
    """TensorSliceProto."""
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
