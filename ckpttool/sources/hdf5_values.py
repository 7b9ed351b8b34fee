"""The elements of an HDF5 dataset that are stored in chunks, or as strings.

A selection is cut into bands of a few MiB; the chunks that a band meets are unpacked one
after the other, and their elements put in place. So a few rows of a large dataset cost a
few chunks. How a chunk is decoded is known in ``formats/hdf5_chunks.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from ckpttool.errors import LimitError, UnsafeError, UnsupportedError
from ckpttool.sources.assemble import Box, locate, pieces
from ckpttool.sources.gather import WINDOW_BYTES, bands, fill
from ckpttool.sources.selection import Axis, Selection, strides

if TYPE_CHECKING:
    from ckpttool.formats.hdf5 import Dataset, Hdf5

__all__ = ["read_elements", "read_strings", "require_readable"]


def require_readable(dataset: Dataset) -> None:
    """Check that a dataset keeps its elements in the file itself.

    Raises:
        UnsafeError: id ``hdf5-elsewhere``.
    """
    if dataset.layout in {"virtual", "external"}:
        raise UnsafeError(
            f"the values of {dataset.path} are not read",
            why="it is a virtual dataset, put together from other files"
            if dataset.layout == "virtual"
            else "they are in an external file that it names",
            hint="write it again as one file: h5repack, or h5py where you trust it",
            id="hdf5-elsewhere",
        )


def read_elements(
    file: Hdf5, dataset: Dataset, selection: Selection, itemsize: int, *, check: bool
) -> Iterator[bytes]:
    """The selected elements as they are stored, in C order, in pieces of some MiB.

    Args:
        file: the open file.
        dataset: any that is readable.
        selection: of its shape.
        itemsize: bytes of an element: 1, 2, 4, 8 or 16.
        check: compare checksums, where the dataset has them.

    Raises:
        CorruptError, IncompleteError, LimitError, UnsupportedError: as ``ChunkReader``.
    """
    require_readable(dataset)
    from ckpttool.formats.hdf5_chunks import ChunkReader, reach

    if not selection.size:
        return
    nbytes = selection.size * itemsize
    reach(dataset, nbytes)
    chunks = None if dataset.layout == "contiguous" else ChunkReader(file, dataset)
    if chunks is None or not dataset.stored:
        yield from _contiguous(file, dataset, selection, itemsize)
        return
    # The last axis of a string's bytes is no axis of the dataset.
    shape = chunks.shape + selection.shape[len(chunks.shape) :]
    reach(dataset, nbytes, prod(map(_count, selection.axes, shape)))
    for band in bands(selection, max(1, WINDOW_BYTES // itemsize)):
        result = bytearray(band.size * itemsize)
        places = strides(tuple(axis.length for axis in band.axes))
        for start in product(*map(_starts, band.axes, shape)):
            found = locate(band, Box(start, shape), 0)
            if found is None:
                continue
            data = memoryview(chunks.chunk(start[: len(chunks.shape)], check=check))

            def part(offset: int, size: int, data: memoryview = data) -> bytes:
                return bytes(data[offset : offset + size])

            at = sum(map(int.__mul__, found.first, places))
            fill(part, found.selection, itemsize, result, places, at)
        yield bytes(result)


def _contiguous(
    file: Hdf5, dataset: Dataset, selection: Selection, itemsize: int
) -> Iterator[bytes]:
    """Elements that lie in one piece, or of which nothing was ever written."""
    start = dataset.offset
    value = b"" if start is not None else file.fill_value(dataset)

    def read(_part: int, at: int, size: int) -> bytes:
        if start is not None:
            return file.pread(start + at, size)
        # Never written: the fill value again and again, from wherever ``at`` is in it.
        at %= len(value)
        return (value * ((at + size) // len(value) + 1))[at : at + size]

    box = Box((0,) * len(selection.shape), selection.shape)
    yield from pieces(selection, itemsize, [box], read)


def _count(axis: Axis, size: int) -> int:
    """How many chunks of an axis hold some of the positions wanted, at most."""
    span = (axis.length - 1) * abs(axis.step)
    return min(axis.length, span // size + 2)


def _starts(axis: Axis, size: int) -> list[int]:
    """Where the chunks of an axis begin that hold some of the positions wanted."""
    if abs(axis.step) >= size:
        at = {(axis.start + i * axis.step) // size for i in range(axis.length)}
        return [number * size for number in sorted(at)]
    last = axis.start + (axis.length - 1) * axis.step
    low, high = min(axis.start, last), max(axis.start, last)
    return [number * size for number in range(low // size, high // size + 1)]


def read_strings(file: Hdf5, dataset: Dataset, selection: Selection, *, check: bool) -> list[bytes]:
    """The selected elements of a dataset of strings.

    Raises:
        LimitError: more elements or bytes than the limits allow; and as `read_elements`.
    """
    limits, size = file.limits, dataset.type.size
    _require(dataset, "string-elements", selection.size, limits.string_elements)
    _require(dataset, "string-bytes", selection.size * size, limits.string_bytes)
    if dataset.type.strip:
        return _fixed_strings(file, dataset, selection, check)
    if dataset.layout == "compact":
        raise UnsupportedError(
            f"the strings of {dataset.path} cannot be read",
            why="they are stored in the header of their dataset",
            hint="write it again with h5repack -l CONTI",
            id="hdf5-filter",
        )
    from ckpttool.formats.hdf5_chunks import Heap

    width = 8 + file.address_bytes
    references = b"".join(_bytewise(file, dataset, selection, width, check=check))
    elements = [references[at : at + width] for at in range(0, len(references), width)]
    total = sum(int.from_bytes(element[:4], "little") for element in elements)
    _require(dataset, "string-bytes", total, limits.string_bytes)
    return Heap(file).strings(elements)


def _fixed_strings(file: Hdf5, dataset: Dataset, selection: Selection, check: bool) -> list[bytes]:
    size = dataset.type.size
    data = b"".join(_bytewise(file, dataset, selection, size, check=check))
    strings = [data[at : at + size] for at in range(0, len(data), size)]
    if dataset.type.strip == "end":
        return [text.split(b"\0", 1)[0] for text in strings]
    return [text.rstrip(b" " if dataset.type.strip == "spaces" else b"\0") for text in strings]


def _bytewise(
    file: Hdf5, dataset: Dataset, selection: Selection, size: int, *, check: bool
) -> Iterator[bytes]:
    """Elements of any size: their bytes as one more axis."""
    wider = Selection((*selection.shape, size), (*selection.axes, Axis(0, 1, size)))
    return read_elements(file, dataset, wider, 1, check=check)


def _require(dataset: Dataset, limit: str, needed: int, most: int) -> None:
    if needed <= most:
        return
    name = limit.replace("-", "_")
    raise LimitError(
        f"the strings of {dataset.path} are too many",
        why=f"{needed} {limit.removeprefix('string-')} are wanted, and the limit is {most}",
        hint=f"CKPTTOOL_LIMITS={name}={needed} allows them; or choose a part: 'NAME[0:10]'",
        id=f"limit-{limit}",
    )
