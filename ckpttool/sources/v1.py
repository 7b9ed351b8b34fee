"""A V1 checkpoint as a source: one file, or the shards of one save.

The variables are those that the first entry of each file lists; elements are decoded by
``formats/v1_values.py`` when they are asked for, and put together out of slices whatever
their dtype, which TensorFlow's own reader does for few. A file that is missing takes only
its own variables with it, since no other file tells what is in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.errors import CkpttoolError, CorruptError, IncompleteError, UnsupportedError
from ckpttool.formats.dtypes import BY_NAME, BY_NUMBER, dtype_name
from ckpttool.formats.entry import SliceBudget, SliceSpec
from ckpttool.formats.v1 import SavedTensor, V1File, is_whole
from ckpttool.model import Finding, Oddity, Shard, Variable, VariableSlice, numel, shape_text
from ckpttool.sources.base import Extent, Read
from ckpttool.sources.filenames import join, split_number
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.listed import ListedSource, selection_shape
from ckpttool.sources.step import step_among
from ckpttool.sources.v1_files import missing_files, v1_files
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.formats.v1_values import V1Elements
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.assemble import Box
    from ckpttool.sources.selection import Selection
    from ckpttool.storage.base import Directory

__all__ = ["V1Source", "open_prefix", "open_resolved"]

#: Decoded bytes of parts that are kept while one variable is read.
_KEPT = 64 * 2**20

ReadPart = Callable[[int, int], bytes]


class _Part(NamedTuple):
    """A slice as it is stored: the number of its file, and its spelling."""

    file: int
    spec: SliceSpec


class _Found(NamedTuple):
    """What all files together have of a variable."""

    dtype: int
    shape: tuple[int, ...]
    parts: list[_Part]


def open_resolved(resolved: Resolved, limits: Limits) -> V1Source:
    """Open the checkpoint that an address came to; raises as `V1Source`."""
    return V1Source(open_directory(resolved.directory), resolved, limits)


def open_prefix(directory: str, prefix: str, limits: Limits) -> V1Source:
    """Open a prefix of a directory, spelled as in a state file; raises as `V1Source`."""
    from ckpttool.sources.address import Resolved

    address = join(directory, prefix)
    resolved = Resolved(address, "tf-v1", directory, prefix, "prefix", version="v1")
    return open_resolved(resolved, limits)


class V1Source(ListedSource):
    """An open V1 checkpoint; not to be used by several threads at once.

    Args:
        directory: where its files lie; the source closes it.
        resolved: what the address came to.
        limits: bounds on what its files may claim.

    Attributes:
        files: the number of each file that is there, and what it holds.
        stored_step: the step inside, where one can be read.

    Raises:
        NotFoundError: there is no file.
        CorruptError, LimitError, UnsupportedError: as ``V1File``; id ``metadata-malformed``
            also where files contradict each other.
    """

    def __init__(self, directory: Directory, resolved: Resolved, limits: Limits) -> None:
        super().__init__(directory, resolved, limits, kind="tf-v1", style="name")
        self.files: dict[int, V1File] = {}
        self._missing: list[str] = []
        self._parts: dict[str, list[_Part]] = {}
        self._last: _Readers | None = None
        try:
            self._open_files(resolved.prefix)
            self.publish(self._all_variables())
            self.number = split_number(resolved.prefix)[1]
            self.stored_step = step_among(self._variables, self._scalar)
            self.step = self.number if self.stored_step is None else self.stored_step
        except CkpttoolError:
            self.close()
            raise

    def _open_files(self, prefix: str) -> None:
        names = v1_files(self._directory, prefix)
        budget = SliceBudget(self._limits)
        for number, name in sorted(names.items()):
            self.files[number] = V1File(self.open(name), self._limits, budget)
        for name in missing_files(prefix, names):
            path = join(self._directory.path, name)
            self._missing.append(path)
            why = "its variables are not listed, for only it says which they are"
            self.found(Finding("shard-missing", "error", path, f"{path} is missing: {why}"))
            self.notes.append(Oddity(f"{path} is missing: {why}"))

    # Variables ------------------------------------------------------------------------

    def _all_variables(self) -> Iterator[Variable]:
        found: dict[bytes, _Found] = {}
        for number, file in self.files.items():
            for tensor in file.tensors:
                self._unite(found, number, tensor)
        for name, one in found.items():
            key = name.decode("utf-8", "surrogateescape")
            self._parts[key] = one.parts
            yield self._variable(key, one)

    def _unite(self, found: dict[bytes, _Found], number: int, tensor: SavedTensor) -> None:
        known = found.get(tensor.name)
        if known is None:
            known = found[tensor.name] = _Found(tensor.dtype, tensor.shape, [])
        elif (known.dtype, known.shape) != (tensor.dtype, tensor.shape):
            raise CorruptError(
                f"the files of {self.location} contradict each other",
                why=f"{tensor.name.decode('utf-8', 'backslashreplace')} is "
                f"{dtype_name(known.dtype)} {shape_text(known.shape)} in one, and "
                f"{dtype_name(tensor.dtype)} {shape_text(tensor.shape)} in another",
                hint="bring together the files of one save",
                id="metadata-malformed",
            )
        known.parts.extend(_Part(number, spec) for spec in tensor.slices)

    def _variable(self, key: str, found: _Found) -> Variable:
        dtype, shape, kind = dtype_name(found.dtype), found.shape, kind_of_name(key)
        known = BY_NUMBER.get(found.dtype)
        size = known.size if known else 0
        strings = self._string_bytes(key, shape) if dtype == "string" else 0
        (first, *others) = found.parts
        if not others and is_whole(first.spec, shape):
            nbytes = strings or numel(shape) * size
            return Variable(key, key, dtype, shape, nbytes, first.file, None, kind)
        slices = tuple(_slice(part, shape, size) for part in found.parts)
        nbytes = strings or sum(part.nbytes or 0 for part in slices)
        return Variable(key, key, dtype, shape, nbytes, None, None, kind, slices)

    def _string_bytes(self, key: str, shape: tuple[int, ...]) -> int:
        """The bytes of a variable's strings, which nothing but they themselves tell.

        0 where they cannot be read: whoever asks for them is told why.
        """
        try:
            return sum(
                self._elements(key, "string", part, shape, check=False).string_bytes()
                for part in self._parts[key]
            )
        except CkpttoolError:
            return 0

    def specs(self, variable: Variable) -> tuple[SliceSpec, ...]:
        """Its slices as they are spelled in the file, on which their keys depend."""
        return tuple(part.spec for part in self._parts[variable.key])

    def checksummed(self, variable: Variable) -> bool:  # noqa: ARG002 - every block has one
        return True

    def shards(self) -> Sequence[Shard]:
        there = list(super().shards())
        return there + [Shard(path, None, 0, present=False) for path in self._missing]

    def _scalar(self, variable: Variable) -> bytes:
        from ckpttool.sources.selection import Selection

        return b"".join(self.chunks(variable, Selection.whole(())))

    # Elements -------------------------------------------------------------------------

    def _elements(
        self, key: str, dtype: str, part: _Part, shape: tuple[int, ...], *, check: bool
    ) -> V1Elements:
        """The elements of a part, not yet decoded."""
        from ckpttool.formats.v1_values import V1Elements

        known = BY_NAME.get(dtype)
        if known is None:
            raise UnsupportedError(
                f"the values of {key} cannot be read: its dtype is {dtype}",
                why="no TensorFlow up to 2.21 has this type",
                hint="the variable can be listed",
                id="dtype-unsupported",
            )
        name = key.encode("utf-8", "surrogateescape")
        value = self.files[part.file].value(name, part.spec, check=check)
        if value is None:
            raise IncompleteError(
                f"{key} is not completely stored",
                why=f"file {part.file} lists its slice {_spelled(part.spec)}, and has no "
                "values of it",
                hint="choose elements of another slice, or take the checkpoint from another copy",
                id="slice-missing",
            )
        count = numel(part.spec.extent(shape) or ())
        return V1Elements(key, value, known, count, self._limits)

    def _boxes(self, variable: Variable) -> list[Box]:
        """Where the parts lie, after checking that they fit and share no element."""
        from ckpttool.sources.assemble import Box, check_boxes

        shape = selection_shape(variable)
        boxes = []
        for part in self._parts[variable.key]:
            extent = part.spec.extent(shape)
            boxes.append(Box(part.spec.start, part.spec.length if extent is None else extent))
        check_boxes(variable.name, shape, boxes)
        return boxes

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        from ckpttool.sources.assemble import pieces, require_cover

        boxes = self._boxes(variable)
        require_cover(variable.name, selection, boxes)
        # Blocks are summed up as a whole; for some rows out of gigabytes nobody would wait.
        whole = check and selection.is_whole
        if self._last is None or self._last.variable != variable:
            self._last = _Readers(self, variable)
        parts = self._last

        def read(number: int, offset: int, size: int) -> bytes:
            return parts.read(number, offset, size, check=whole)

        yield from pieces(selection, self._fixed(variable).size, boxes, read)

    def _strings(self, variable: Variable, selection: Selection, *, check: bool) -> list[bytes]:
        from ckpttool.formats.tensor_bytes import require_bounded
        from ckpttool.sources.assemble import locate, require_cover, scatter
        from ckpttool.sources.selection import strides

        boxes, shape = self._boxes(variable), selection_shape(variable)
        stored: list[tuple[Box, V1Elements]] = []
        count = size = 0
        for number in require_cover(variable.name, selection, boxes):
            part = self._parts[variable.key][number]
            elements = self._elements(variable.key, "string", part, shape, check=check)
            # Before anything as large as the shape claims is made, or as all parts together.
            elements.require_strings()
            count, size = count + elements.count, size + elements.stored_bytes
            require_bounded(f"reading {variable.name}", count, size, self._limits)
            stored.append((boxes[number], elements))
        places = strides(tuple(axis.length for axis in selection.axes))
        result = [b""] * selection.size
        for box, elements in stored:
            located = locate(selection, box, 0)
            assert located is not None, "it holds some of what is selected"
            at = sum(map(int.__mul__, located.first, places))
            scatter(elements.strings(), located.selection, result, places, at)
        return result

    def check_blocks(self, variable: Variable) -> None:
        """Compare every block that holds some of a variable with its checksum, each once.

        Raises:
            CorruptError: id ``block-checksum``.
        """
        name = variable.key.encode("utf-8", "surrogateescape")
        for part in self._parts[variable.key]:
            file = self.files[part.file]
            if (block := file.block(name, part.spec)) is not None:
                file.values.sum(block)

    def sums(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        for number, file in self.files.items():
            for handle in file.values.table.handles:
                yield self.path(number), file.values.pieces(handle)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        from ckpttool.sources.assemble import require_cover

        parts = self._parts[variable.key]
        name = variable.key.encode("utf-8", "surrogateescape")
        seen: set[tuple[int, int]] = set()
        for number in require_cover(variable.name, selection, self._boxes(variable)):
            part = parts[number]
            block = self.files[part.file].block(name, part.spec)
            if block is not None and (part.file, block.offset) not in seen:
                seen.add((part.file, block.offset))
                yield Read(self.path(part.file), block.offset, block.size)

    def path(self, number: int) -> str:
        """The path of a file."""
        return self._files[list(self.files).index(number)].path

    def extent(self, variable: Variable) -> Extent | None:
        if variable.slices is not None or variable.dtype == "string":
            return None
        (part,) = self._parts[variable.key]
        elements = self._elements(
            variable.key, self._fixed(variable).name, part, selection_shape(variable), check=False
        )
        place = elements.place()
        if place is None or place.source.file is None:  # decoded, or in a block that is held
            return None
        return Extent(place.source.file, place.start, place.end - place.start, little_endian=True)

    def reader(self, variable: Variable, number: int, *, check: bool) -> tuple[int, ReadPart]:
        """What reads ranges of a part, and the bytes that it holds."""
        part = self._parts[variable.key][number]
        shape = selection_shape(variable)
        elements = self._elements(variable.key, variable.dtype, part, shape, check=check)
        place = elements.place()
        if place is None:
            data = elements.decoded()
            return len(data), lambda offset, size: data[offset : offset + size]
        start, source = place.start, place.source
        held = 0 if source.file is not None else source.size
        return held, lambda offset, size: source.get(start + offset, start + offset + size)


class _Kept(NamedTuple):
    """A part that was looked up, and maybe decoded: what reads it, and the bytes held."""

    nbytes: int
    read: ReadPart
    checked: bool


class _Readers:
    """Reads ranges of the parts of one variable; keeps some of what it had to decode."""

    def __init__(self, source: V1Source, variable: Variable) -> None:
        self.variable = variable
        self._source = source
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._size = 0

    def read(self, number: int, offset: int, size: int, *, check: bool) -> bytes:
        """Bytes of part ``number``, from its own start."""
        kept = self._kept.get(number)
        if kept is None or kept.checked < check:
            kept = self._keep(number, check=check)
        return kept.read(offset, size)

    def _keep(self, number: int, *, check: bool) -> _Kept:
        if (old := self._kept.pop(number, None)) is not None:
            self._size -= old.nbytes
        kept = _Kept(*self._source.reader(self.variable, number, check=check), check)
        self._kept[number] = kept
        self._size += kept.nbytes
        while self._size > _KEPT and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._size -= dropped.nbytes
        return kept


def _slice(part: _Part, shape: tuple[int, ...], size: int) -> VariableSlice:
    """A part for a listing; one that does not fit is refused where elements are asked for."""
    start, extent = part.spec.start, part.spec.extent(shape)
    if extent is None:
        return VariableSlice(start, part.spec.length, part.file, None, None)
    return VariableSlice(start, extent, part.file, None, numel(extent) * size)


def _spelled(spec: SliceSpec) -> str:
    sides = zip(spec.start, spec.length, strict=True)
    text = ", ".join(":" if length < 0 else f"{start}:{start + length}" for start, length in sides)
    return f"[{text}]"
