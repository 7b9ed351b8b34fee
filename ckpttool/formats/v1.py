"""One file of a V1 checkpoint: which variables and slices are in it, and where.

A table of SavedTensorSlices messages (tensorflow/core/util/saved_tensor_slice.proto,
tensor_slice_writer.cc): the empty key holds what there is, every other key encodes a name
and a slice and holds the elements of that slice. A variable that is not partitioned is
one slice, of everything. Knows the messages and their bounds; elements are decoded by
``v1_values.py``, and the other files of a sharded checkpoint are somebody else's affair.
"""

from __future__ import annotations

from typing import NamedTuple

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats.entry import EntryParser, SliceBudget, SliceSpec, TensorShape, parse_slice
from ckpttool.formats.sstable import Handle
from ckpttool.formats.table_values import TableValues, Value
from ckpttool.formats.versions import NO_VERSIONS, Versions, read_versions
from ckpttool.formats.wire import fields, signed32
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["SavedTensor", "V1File", "is_whole"]


class SavedTensor(NamedTuple):
    """What one file has of a variable.

    Attributes:
        name: its literal name.
        dtype: TensorFlow's number, known or not.
        shape: of the whole variable, also where the file has one slice of it.
        slices: those that are in this file, as spelled; at least one.
    """

    name: bytes
    dtype: int
    shape: tuple[int, ...]
    slices: tuple[SliceSpec, ...]


def is_whole(spec: SliceSpec, shape: tuple[int, ...]) -> bool:
    """Whether a slice is the whole variable, however that is spelled."""
    return spec.extent(shape) == shape


class V1File:
    """An open file; reads what is in it at once, and elements when they are asked for.

    Args:
        file: the open file; it stays the caller's.
        limits: bounds on what it may claim.
        budget: how many more slices its checkpoint may have.

    Attributes:
        tensors: in the order of the file, each name once.
        versions: of the writer, and of readers that it asks for.

    Raises:
        CorruptError: what ``Table`` raises; ids ``metadata-missing``,
            ``metadata-malformed``, ``entry-malformed``, ``negative-dimension``,
            ``shape-overflow``.
        LimitError: what ``Table`` raises; ids ``limit-rank``, ``limit-slices``,
            ``limit-index-slices``, ``limit-block``, ``limit-entries``.
        UnsupportedError: ids ``bundle-version``, ``block-compression``.
    """

    def __init__(self, file: ReadableFile, limits: Limits, budget: SliceBudget) -> None:
        self._path = file.path
        self._limits = limits
        self._parser = EntryParser(file.path, limits)
        self._values = TableValues(file, limits)
        self.versions: Versions = NO_VERSIONS
        self.tensors: list[SavedTensor] = self._read_metadata(budget)
        self.versions.require(file.path)

    @property
    def values(self) -> TableValues:
        """Its table, for whoever checks all of it."""
        return self._values

    def value(self, name: bytes, spec: SliceSpec, *, check: bool) -> Value | None:
        """The message with the elements of a slice; None where the file has none.

        Raises:
            CorruptError, LimitError: as ``TableValues.find``.
        """
        return self._values.find(spec.key(name), check=check)

    def block(self, name: bytes, spec: SliceSpec) -> Handle | None:
        """The block that has to be read for a slice; reads nothing."""
        return self._values.table.block_of(spec.key(name))

    def _read_metadata(self, budget: SliceBudget) -> list[SavedTensor]:
        # Not summed up where large values share its block: to list is not to read them.
        found = self._values.find(b"", check=False)
        if found is None:
            raise CorruptError(
                f"{self._path} does not say what is in it",
                why=f"none of its {self._values.table.block_count} blocks has the empty key",
                hint="take the file from another copy",
                id="metadata-missing",
            )
        if found.size > self._limits.block_bytes:
            raise LimitError(
                f"{self._path} is over a limit",
                why=f"what it says of its variables has {found.size} bytes, over "
                f"{self._limits.block_bytes}",
                hint="if the file is trusted, raise block_bytes in CKPTTOOL_LIMITS",
                id="limit-block",
            )
        tensors: dict[bytes, SavedTensor] = {}
        data = found.read()
        try:
            for number, _, value in fields(data):
                if number != 1 or isinstance(value, int):
                    continue
                for inner, _, part in fields(data, *value):
                    if isinstance(part, int):
                        continue
                    if inner == 1:
                        self._add(tensors, self._tensor(data, *part, budget))
                    elif inner == 2:
                        self.versions = read_versions(data, *part, self.versions)
        except CorruptError as error:
            if error.id != "message-malformed":
                raise
            raise self._malformed(error.why) from None
        return list(tensors.values())

    def _tensor(self, data: bytes, start: int, end: int, budget: SliceBudget) -> SavedTensor:
        """A SavedSliceMeta."""
        name, dtype = b"", 0
        shape = TensorShape()
        places: list[tuple[int, int]] = []
        for number, _, value in fields(data, start, end):
            if isinstance(value, int):
                if number == 3:
                    dtype = signed32(value)
            elif number == 1:
                name = data[slice(*value)]
            elif number == 2:
                shape.add(data, *value)
            elif number == 4:
                self._parser.count_slice(name, len(places), budget)
                places.append(value)
        dims = tuple(shape.dims)
        if shape.unknown_rank:
            raise self._malformed(f"{_text(name)} has no shape")
        self._parser.check_shape(name, dtype, dims)
        return SavedTensor(name, dtype, dims, tuple(parse_slice(data, *place) for place in places))

    def _add(self, tensors: dict[bytes, SavedTensor], found: SavedTensor) -> None:
        """Take what one message says; TensorFlow forgets one without slices, and so do we."""
        if not found.slices:
            return
        known = tensors.get(found.name)
        if known is None:
            self._values.table.check_count(len(tensors) + 1)
            tensors[found.name] = found
            return
        if (known.dtype, known.shape) != (found.dtype, found.shape):
            raise self._malformed(f"{_text(found.name)} has two dtypes or shapes")
        tensors[found.name] = known._replace(slices=known.slices + found.slices)

    def _malformed(self, why: str) -> CorruptError:
        return CorruptError(
            f"{self._path}: what it says of its variables is malformed",
            why=why,
            hint="take the file from another copy",
            id="metadata-malformed",
        )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
