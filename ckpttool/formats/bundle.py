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
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, CorruptError
from ckpttool.formats.entry import Entry, EntryParser, SliceBudget, SliceSpec
from ckpttool.formats.sstable import Damaged, Item, Table
from ckpttool.formats.versions import NO_VERSIONS, read_versions
from ckpttool.formats.wire import fields, signed32
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["OBJECT_GRAPH_KEY", "BundleIndex", "Entry", "Header", "SliceSpec"]

#: The key of the object graph, which only an object-based checkpoint has
#: (tensorflow/python/trackable/base.py).
OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Header(NamedTuple):
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
        LimitError: what ``Table`` raises; ids ``limit-rank``, ``limit-slices``,
            ``limit-index-slices``.
        UnsupportedError: ids ``bundle-version``, ``block-compression``.
    """

    def __init__(self, file: ReadableFile, limits: Limits, damaged: Damaged | None = None) -> None:
        self._path = file.path
        self._limits = limits
        self._damaged = damaged
        self.parser = EntryParser(file.path, limits)
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
        budget = self.budget()
        for items in self.table.blocks(self._damaged):
            left = budget.left
            try:
                entries = self.parse(items, budget)
            except CkpttoolError:
                if self._damaged is None:
                    raise
                budget.left = left
                entries = self._intact(items, self._damaged, budget)
            yield entries

    def budget(self) -> SliceBudget:
        """What a walk through the index may spend on slices."""
        return SliceBudget(self._limits)

    def parse(self, items: list[Item], budget: SliceBudget) -> list[Entry]:
        """The entries of what the table gave in one list, without the header."""
        return self.parser.many(items if items[0][0] else items[1:], budget)

    def _intact(self, items: list[Item], damaged: Damaged, budget: SliceBudget) -> list[Entry]:
        entries = []
        for key, value in items:
            if not key:
                continue
            try:
                entries.append(self.parser.one(key, value, budget))
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
        return None if raw is None else self.parser.one(key, raw)

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
        num_shards = endianness = 0
        versions = NO_VERSIONS
        try:
            for number, _, value in fields(raw):
                if isinstance(value, int):
                    if number == 1:
                        num_shards = signed32(value)
                    elif number == 2:
                        endianness = signed32(value)
                elif number == 3:
                    versions = read_versions(raw, *value, versions)
        except CkpttoolError as error:
            raise self._bad_header(error.why) from None
        if num_shards < 0 or endianness not in {0, 1}:
            raise self._bad_header(f"{num_shards} shards, byte order {endianness}")
        versions.require(self._path)
        return Header(num_shards, bool(endianness), *versions, raw)

    def _bad_header(self, why: str) -> CorruptError:
        return CorruptError(
            f"{self._path} has a malformed header",
            why=why,
            hint="take the index from another copy",
            id="header-malformed",
        )
