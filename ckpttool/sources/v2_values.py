"""The elements of variables in a V2 checkpoint: which bytes they are, read and checked.

A partitioned variable is put together here whatever its dtype. Checksums are compared
where the bytes of an entry happen to be read from first to last, which costs next to
nothing; a part of an entry cannot be checked. Knows variables and shards, not the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    IncompleteError,
    UnsupportedError,
)
from ckpttool.formats.crc32c import extend, mask
from ckpttool.formats.dtypes import BY_NAME, STRING, DType
from ckpttool.formats.elements import swap_words
from ckpttool.limits import Limits
from ckpttool.model import Variable, numel, shape_text
from ckpttool.sources.assemble import (
    Box,
    check_boxes,
    locate,
    pieces,
    reads,
    require_cover,
    scatter,
)
from ckpttool.sources.base import Extent, Read
from ckpttool.sources.selection import Selection, strides
from ckpttool.sources.shard_files import ShardFiles, about
from ckpttool.storage.base import ReadableFile

__all__ = ["BundleValues"]

#: Strings are stored behind their lengths, a byte each at least, and a checksum of those.
_LENGTHS_CHECKSUM_BYTES = 4


class _Part(NamedTuple):
    """An entry that holds a whole variable or a slice of it."""

    box: Box
    shard: int
    offset: int
    size: int
    crc32c: int | None


class BundleValues:
    """Reads elements.

    Args:
        files: the data files.
        big_endian: the byte order that the header of the index gives.
        limits: bounds on strings.
        location: the checkpoint, for messages.
        index_file: the open index.
    """

    def __init__(
        self,
        files: ShardFiles,
        *,
        big_endian: bool,
        limits: Limits,
        location: str,
        index_file: ReadableFile,
    ) -> None:
        self._files = files
        self._big_endian = big_endian
        self._limits = limits
        self._location = location
        self._index_file = index_file

    def chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        """As `sources.base.Source.chunks`."""
        dtype = _fixed(variable)
        try:
            parts = _parts(variable, selection)
            for part in parts:
                _require_size(variable, part, dtype)
            reader = _Reader(self._files, variable, parts, check=check)
            boxes = [part.box for part in parts]
            for piece in pieces(selection, dtype.size, boxes, reader.read):
                yield swap_words(piece, dtype.word) if self._big_endian else piece
            if not reader.all_checked:
                self._require_unchanged(variable)
        except CkpttoolError as error:
            self._require_unchanged(variable, error)
            raise

    def strings(self, variable: Variable, selection: Selection, *, check: bool) -> list[bytes]:
        """As `sources.base.Source.strings`."""
        if variable.dtype != "string":
            raise UnsupportedError(
                f"{variable.name} holds no strings",
                why=f"its dtype is {variable.dtype}",
                id="dtype-unsupported",
            )
        from ckpttool.formats.tensor_bytes import require_bounded

        places = strides(tuple(axis.length for axis in selection.axes))
        try:
            parts = _parts(variable, selection)
            for part in parts:  # before anything as large as the shape claims is made
                self._require_strings(variable, part)
            require_bounded(
                f"reading {variable.name}",
                sum(numel(part.box.extent) for part in parts),
                sum(part.size for part in parts),
                self._limits,
            )
            result = [b""] * selection.size
            for number, part in enumerate(parts):
                located = locate(selection, part.box, number)
                if located is None:
                    continue
                stored = self._part_strings(variable, part, check=check)
                at = sum(map(int.__mul__, located.first, places))
                scatter(stored, located.selection, result, places, at)
            if not check:
                self._require_unchanged(variable)
        except CkpttoolError as error:
            self._require_unchanged(variable, error)
            raise
        return result

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        """As `sources.base.Source.reads`."""
        parts = _parts(variable, selection)
        if variable.dtype == "string":
            for part in parts:
                if locate(selection, part.box, 0):
                    yield self._planned(variable, part, 0, part.size)
            return
        dtype = _fixed(variable)
        for part in parts:
            _require_size(variable, part, dtype)
        for number, offset, size in reads(selection, dtype.size, [part.box for part in parts]):
            yield self._planned(variable, parts[number], offset, size)

    def _planned(self, variable: Variable, part: _Part, offset: int, size: int) -> Read:
        # Held against the file, or an index that claims 2^60 bytes would plan for ever.
        file = self._files.open(part.shard, variable.name)
        self._files.require(file, part.shard, part.offset + offset, size, variable.name)
        return Read(file.path, part.offset + offset, size)

    def extent(self, variable: Variable) -> Extent | None:
        """As `sources.base.Source.extent`."""
        dtype = BY_NAME.get(variable.dtype)
        if (
            not dtype
            or not dtype.size
            or variable.slices is not None
            or variable.shape is None
            or variable.shard is None
            or variable.offset is None
            or variable.nbytes != numel(variable.shape) * dtype.size
        ):
            return None
        try:
            file = self._files.open(variable.shard, variable.name)
            self._files.require(
                file, variable.shard, variable.offset, variable.nbytes, variable.name
            )
        except CkpttoolError as error:
            self._require_unchanged(variable, error)
            raise
        self._require_unchanged(variable)
        little = not self._big_endian or dtype.word == 1
        return Extent(file, variable.offset, variable.nbytes, little)

    def _require_strings(self, variable: Variable, part: _Part) -> None:
        """Check that a part has a byte on disk for each element that it claims."""
        count = numel(part.box.extent)
        if count + _LENGTHS_CHECKSUM_BYTES > part.size:
            raise CorruptError(
                f"the values of {variable.name} cannot be read: its size does not fit its shape",
                why=f"{part.size} bytes are stored, and {count} strings take at least "
                f"{count + _LENGTHS_CHECKSUM_BYTES}",
                hint="take the index from another copy",
                id="size-mismatch",
            )
        file = self._files.open(part.shard, variable.name)
        self._files.require(file, part.shard, part.offset, part.size, variable.name)

    def _part_strings(self, variable: Variable, part: _Part, *, check: bool) -> list[bytes]:
        from ckpttool.formats.tensor_bytes import read_strings

        file = self._files.open(part.shard, variable.name)
        expected = part.crc32c if check else None
        try:
            values, found = read_strings(
                file,
                part.offset,
                part.size,
                numel(part.box.extent),
                big_endian=self._big_endian,
                expected=expected,
            )
        except CkpttoolError as error:
            raise about(error, variable.name) from error
        if expected not in {None, found}:
            raise _mismatch(self._files, variable, part, found)
        return values

    def _require_unchanged(self, variable: Variable, cause: CkpttoolError | None = None) -> None:
        """Raise `ChangedError` when another program touched the files meanwhile."""
        changed = self._index_file.changed() or self._files.changed()
        if isinstance(cause, CorruptError | IncompleteError) and not changed:
            from ckpttool.sources.settling import changes_soon

            changed = changes_soon([self._index_file, *self._files.opened()])
        if changed:
            raise ChangedError(
                f"{self._location} changed while {variable.name} was read",
                why="another program rewrote, replaced or removed its files"
                + (f" ({cause})" if cause else ""),
                hint="run it again when the checkpoint is complete, or read a copy",
            ) from cause


class _Reader:
    """Reads bytes of parts, and sums up those parts that are read from first to last."""

    def __init__(
        self, files: ShardFiles, variable: Variable, parts: list[_Part], *, check: bool
    ) -> None:
        self._files = files
        self._variable = variable
        self._parts = parts
        #: Of each part that is being summed up: the next byte, and the sum so far.
        self._sums = {
            number: (0, 0) for number, part in enumerate(parts) if check and part.crc32c is not None
        }
        self._unchecked = {
            number for number, part in enumerate(parts) if number not in self._sums and part.size
        }

    @property
    def all_checked(self) -> bool:
        """Whether every byte that was read matched a checksum."""
        return not self._sums and not self._unchecked

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Bytes of part ``number``, from its own start."""
        part = self._parts[number]
        data = self._files.read(part.shard, part.offset + offset, size, self._variable.name)
        if number in self._sums:
            self._add(number, part, offset, data)
        return data

    def _add(self, number: int, part: _Part, offset: int, data: bytes) -> None:
        following, value = self._sums.pop(number)
        if following != offset:  # not in order: this part cannot be summed up
            self._unchecked.add(number)
            return
        following += len(data)
        value = extend(value, data)
        if following < part.size:
            self._sums[number] = (following, value)
        elif mask(value) != part.crc32c:
            raise _mismatch(self._files, self._variable, part, mask(value))


def _fixed(variable: Variable) -> DType:
    """The dtype of a variable whose elements have a fixed size."""
    dtype = BY_NAME.get(variable.dtype)
    if dtype is not None and dtype.size:
        return dtype
    why = "no TensorFlow up to 2.21 has this type"
    if dtype is not None:
        why = "its elements are opaque objects of a program"
        if dtype.number == STRING:
            why = "its elements have no fixed size"
    raise UnsupportedError(
        f"the values of {variable.name} cannot be read: its dtype is {variable.dtype}",
        why=why,
        hint="the variable can be listed, checked and copied",
        id="dtype-unsupported",
    )


def _parts(variable: Variable, selection: Selection) -> list[_Part]:
    """The entries that hold what is selected, after checking how they lie."""
    shape = variable.shape
    if shape is None:
        raise UnsupportedError(
            f"the values of {variable.name} cannot be read: its shape is not known",
            why="its entry says that the rank is unknown",
            id="shape-unknown",
        )
    if variable.slices is None:
        assert variable.shard is not None, "a whole variable has a place"
        assert variable.offset is not None
        box = Box((0,) * len(shape), shape)
        return [_Part(box, variable.shard, variable.offset, variable.nbytes, variable.crc32c)]
    boxes = [Box(piece.start, piece.extent) for piece in variable.slices]
    check_boxes(variable.name, shape, boxes)
    parts = []
    for number in require_cover(variable.name, selection, boxes):
        piece = variable.slices[number]
        if piece.shard is None or piece.offset is None or piece.nbytes is None:
            raise IncompleteError(
                f"{variable.name} is not completely stored",
                why=f"the index has no entry of its dtype for its slice {boxes[number]}",
                hint="choose elements of another slice, or take the checkpoint from another copy",
                id="slice-missing",
            )
        parts.append(_Part(boxes[number], piece.shard, piece.offset, piece.nbytes, piece.crc32c))
    return parts


def _require_size(variable: Variable, part: _Part, dtype: DType) -> None:
    expected = numel(part.box.extent) * dtype.size
    if part.size != expected:
        raise CorruptError(
            f"the values of {variable.name} cannot be read: its size does not fit its shape",
            why=f"{part.size} bytes are stored, and {shape_text(part.box.extent)} elements of "
            f"{dtype.name} are {expected}",
            hint="take the index from another copy",
            id="size-mismatch",
        )


def _mismatch(files: ShardFiles, variable: Variable, part: _Part, found: int) -> CorruptError:
    return CorruptError(
        f"the values of {variable.name} are damaged",
        why=f"shard {part.shard} ({files.path(part.shard)}), bytes {part.offset} to "
        f"{part.offset + part.size}: checksum {found:08x}, and {part.crc32c:08x} is stored",
        hint="take the file from another copy; load --no-check gives the bytes as they are",
        id="checksum-mismatch",
    )
