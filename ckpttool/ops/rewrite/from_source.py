"""Any source as a ``Bundle``: what every command that writes a checkpoint begins with.

A V2 checkpoint is taken as it is stored. The elements of everything else (V1, Keras files,
arrays, …) are asked for while they are written, in pieces, so that memory does not grow
with a variable; they are little-endian then, and get checksums of their own. Slices stay
slices, in the spelling in which they were saved. Keys become the readable names: a Keras
file's own, ``layers/dense/vars/0``, mean nothing outside of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    IncompleteError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from ckpttool.formats.bundle import SliceSpec
from ckpttool.formats.bundle_writer import encode_header, encode_strings
from ckpttool.formats.dtypes import BY_NAME, STRING, DType
from ckpttool.model import Variable, numel
from ckpttool.ops.rewrite.tensors import Bundle, Computed, Input, Owner, Tensor, read_bundle
from ckpttool.sources.assemble import Box, check_boxes
from ckpttool.sources.base import NameStyle, Source
from ckpttool.sources.listed import ListedSource, selection_shape
from ckpttool.sources.selection import Axis, Selection
from ckpttool.sources.v1 import V1Source
from ckpttool.sources.v2 import BundleSource

__all__ = ["bundle_from", "written_as"]


#: Told of a variable, or a file, that is left out.
Lost = Callable[[str, CkpttoolError], None]


def bundle_from(source: Source, lost: Lost | None = None, *, names: NameStyle = "full") -> Bundle:
    """Everything of an open source, which has to stay open until the bundle is written.

    ``names`` are what its variables are written under, as ``written_as`` says. With ``lost``
    what is missing or damaged is handed to it and left out, and everything is read once to
    find that out; not of a V2 checkpoint.

    Raises:
        UnsupportedError: id ``dtype-not-representable``: TensorFlow has no such type; id
            ``shape-unknown``.
        RefusedError: id ``name-unusable``.
        IncompleteError: id ``shard-missing``: a file that may hold variables is not there.
        CorruptError: ids ``slice-shape``, ``slice-overlap``; what strings raise, which are
            read to know their size.
        CkpttoolError: as ``read_bundle``, of a V2 checkpoint.
    """
    if isinstance(source, BundleSource):
        return read_bundle(source)
    for error in _missing_files(source):
        if lost is None:
            raise error
        lost(source.location, error)
    owners: dict[bytes, Owner] = {}
    tensors: list[Tensor] = []
    keys = written_as(source, names)
    for variable in source.variables():
        try:
            owner, found = _entries(source, variable, keys[variable.key])
            if lost is not None:
                _read_through(source, variable)
        except CkpttoolError as error:
            if lost is None or isinstance(error, ChangedError | StorageError):
                raise
            lost(variable.name, error)
            continue
        tensors += found
        if owner is not None:
            owners[owner.key] = owner
    if not isinstance(source, V1Source):  # of other kinds one file is no parameter server's
        tensors = [tensor._replace(shard=0) for tensor in tensors]
    shards = 1 + max((tensor.shard for tensor in tensors), default=0)
    return Bundle(tensors, owners, encode_header(shards), False, shards, _inputs(source))


def written_as(source: Source, names: NameStyle = "full") -> dict[str, str]:
    """The key under which each variable of a source is written, by the key that it has there.

    It is the name that was asked for, where that can be a key and no other variable could be
    meant by it; else the old key. A partitioned variable keeps its key, for its slices have it.
    """
    variables = list(source.variables())
    wanted = {
        one.key: one.key if one.slices is not None else source.name_of(one, names)
        for one in variables
    }
    times = Counter(wanted.values())
    return {
        key: name if _usable(name) and times[name] == 1 and wanted.get(name, name) == name else key
        for key, name in wanted.items()
    }


def _usable(key: str) -> bool:
    """Whether an index may have this key: the empty one and what a zero byte opens are its own."""
    return bool(key) and not key.startswith("\0")


def _entries(source: Source, variable: Variable, key: str) -> tuple[Owner | None, list[Tensor]]:
    """The entries of a variable: its own, or one a slice and their owner."""
    _require_key(key, source)
    dtype = _dtype(variable, source)
    shape = selection_shape(variable)
    written = key.encode("utf-8", "surrogateescape")
    if variable.slices is None:
        box = Box((0,) * len(shape), shape)
        content = _content(source, variable, dtype, box)
        return None, [
            Tensor(written, written, dtype.number, shape, variable.shard or 0, content, b"")
        ]
    owner = _owner(source, variable, dtype, written)
    return owner, [
        Tensor(
            spec.key(written),
            written,
            dtype.number,
            part.extent,
            part.shard or 0,
            _content(source, variable, dtype, Box(part.start, part.extent)),
            b"",
        )
        for spec, part in zip(owner.slices, variable.slices, strict=True)
    ]


def _read_through(source: Source, variable: Variable) -> None:
    selection = Selection.whole(selection_shape(variable))
    if variable.dtype == "string":
        source.strings(variable, selection)
        return
    for _ in source.chunks(variable, selection):
        pass


def _missing_files(source: Source) -> Iterator[IncompleteError]:
    """The error of files that are not there: what is in them would be left out."""
    missing = [shard.path for shard in source.shards() if not shard.present]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        yield IncompleteError(
            f"{source.location} is not complete",
            why=f"{', '.join(missing[:3])}{more} is missing",
            hint="bring together all files of one save",
            id="shard-missing",
        )


def _require_key(key: str, source: Source) -> None:
    """Check a name that another format allows, and an index does not."""
    if not _usable(key):
        raise RefusedError(
            f"a variable of {source.location} cannot keep its name",
            why="it is empty, or begins with a zero byte: such keys are an index's own",
            hint="rename it where it was made",
            id="name-unusable",
        )


def _inputs(source: Source) -> tuple[Input, ...]:
    assert isinstance(source, ListedSource), "every other kind of source is one"
    return tuple(Input.of(file.path, file.stat) for file in source.opened())


def _dtype(variable: Variable, source: Source) -> DType:
    dtype = BY_NAME.get(variable.dtype)
    if dtype is None or not (dtype.size or dtype.number == STRING):
        raise UnsupportedError(
            f"{variable.name} of {source.location} cannot be in a checkpoint",
            why=f"its dtype is {variable.dtype}, which TensorFlow does not store",
            hint="leave it out (edit --drop), or convert it where it was made",
            id="dtype-not-representable",
        )
    return dtype


def _owner(source: Source, variable: Variable, dtype: DType, key: bytes) -> Owner:
    shape, parts = selection_shape(variable), variable.slices or ()
    check_boxes(variable.name, shape, [Box(part.start, part.extent) for part in parts])
    specs = (
        source.specs(variable)
        if isinstance(source, V1Source)
        else tuple(SliceSpec(part.start, part.extent) for part in parts)
    )
    return Owner(key, dtype.number, shape, specs, b"")


def _content(source: Source, variable: Variable, dtype: DType, box: Box) -> Computed:
    if dtype.number == STRING:
        return _strings(source, variable, box)
    elements = _Elements(source, variable, dtype, box)
    return Computed(elements.chunks, elements.nbytes, read=elements.read)


def _strings(source: Source, variable: Variable, box: Box) -> Computed:
    """Strings are read twice, and not held in between: their size and checksum come first."""
    selection = _selection(selection_shape(variable), box)
    head, crc32c, nbytes = encode_strings(source.strings(variable, selection))

    def chunks() -> Iterator[bytes]:
        yield head
        yield from source.strings(variable, selection)

    return Computed(chunks, nbytes, crc32c)


class _Elements(NamedTuple):
    """The elements of a box of a variable, as its own entry."""

    source: Source
    variable: Variable
    dtype: DType
    box: Box

    @property
    def nbytes(self) -> int:
        """How many bytes they are."""
        return numel(self.box.extent) * self.dtype.size

    def chunks(self) -> Iterator[bytes]:
        """All of them."""
        selection = _selection(selection_shape(self.variable), self.box)
        return self.source.chunks(self.variable, selection)

    def read(self, offset: int, size: int) -> bytes:
        """Some of them; both numbers are multiples of an element's size."""
        if isinstance(self.source, V1Source):  # damage must not be signed anew
            self.source.check_blocks(self.variable)
        first, count = offset // self.dtype.size, size // self.dtype.size
        shape = selection_shape(self.variable)
        found: list[bytes] = []
        for range_ in _ranges(self.box.extent, first, count):
            axes = zip(range_, self.box.start, strict=True)
            moved = tuple(axis._replace(start=axis.start + start) for axis, start in axes)
            found += self.source.chunks(self.variable, Selection(shape, moved))
        return b"".join(found)


def _selection(shape: tuple[int, ...], box: Box) -> Selection:
    sides = zip(box.start, box.extent, strict=True)
    return Selection(shape, tuple(Axis(start, 1, extent) for start, extent in sides))


def _ranges(shape: tuple[int, ...], first: int, count: int) -> Iterator[tuple[Axis, ...]]:
    """Boxes that hold, one after the other, ``count`` elements in C order from ``first`` on."""
    if not count:
        return
    if not shape:
        yield ()
        return
    length = numel(shape[1:])
    row, start = divmod(first, length)
    if start or count < length:
        part = min(count, length - start)
        for axes in _ranges(shape[1:], start, part):
            yield (Axis(row, 1, 1), *axes)
        row, count = row + 1, count - part
    if count >= length:
        rows = count // length
        yield (Axis(row, 1, rows), *(Axis(0, 1, size) for size in shape[1:]))
        row, count = row + rows, count - rows * length
    if count:
        for axes in _ranges(shape[1:], 0, count):
            yield (Axis(row, 1, 1), *axes)
