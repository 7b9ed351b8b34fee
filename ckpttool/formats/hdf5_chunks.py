"""What an HDF5 file stores of a dataset, decoded: chunks, filters, strings of any length.

The library would allocate what a chunk claims to unpack to; here the size is known before
(it is the chunk's shape) and nothing larger is ever made. The library only says where a
chunk lies. Filters that h5py brings and that are rare (LZF, szip, n-bit, scale-offset) are
left to it; any other would make it load a plug-in, and is refused.

Facts: HDF5 file format specification (III.E global heap, IV.A.2.l filter pipeline),
HDF5's H5checksum.c for Fletcher's sum and H5Zshuffle.c for the order of shuffled bytes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NoReturn

from ckpttool.errors import CorruptError, LimitError, UnsupportedError
from ckpttool.model import numel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckpttool.formats.hdf5 import Dataset, Hdf5

__all__ = ["ChunkReader", "Heap", "reach"]

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
_OURS = {_DEFLATE, _SHUFFLE, _FLETCHER32}
#: Szip, n-bit, scale-offset, LZF: part of what h5py brings.
_LIBRARY = {4, 5, 6, 32000}

#: Bytes of Fletcher's sum, behind the chunk.
_SUM_BYTES = 4
#: Deflate expands at most 1,032-fold; a dataset that claims more is mostly never written.
_EXPANSION = 1100
#: What the library's filters may add to a chunk that does not shrink.
_SPARE_BYTES = 4096
#: Elements that were never written are given out up to this many bytes without a word.
_FILL_BYTES = 2**30
#: Chunks that were never written, of a dataset that has others: the library is asked for each.
_FILL_CHUNKS = 2**16


def reach(dataset: Dataset, nbytes: int, chunks: int = 1) -> None:
    """Check that a dataset does not claim absurdly more than the file has of it.

    Args:
        dataset: the dataset.
        nbytes: of the elements that are wanted.
        chunks: how many chunks they lie in; one takes a byte at least.

    Raises:
        LimitError: id ``hdf5-expansion``.
    """
    what = ""
    if nbytes > max(_FILL_BYTES, dataset.stored * _EXPANSION):
        what = f"{nbytes} bytes of elements"
    elif chunks > _FILL_CHUNKS + dataset.stored:
        what = f"{chunks} chunks"
    if what:
        raise LimitError(
            f"{dataset.path} claims more than its file can hold",
            why=f"{what}, of which {dataset.stored} bytes are stored",
            hint="choose the part that was written: 'NAME[0:10]'",
            id="hdf5-expansion",
        )


class ChunkReader:
    """The chunks of one dataset, unpacked; the last few are kept.

    Args:
        file: the file.
        dataset: one whose layout is ``chunked`` or ``compact``.

    Raises:
        LimitError: id ``limit-hdf5``: a chunk is over ``limits.hdf5_chunk_bytes``.
        UnsupportedError: id ``hdf5-filter``.
    """

    def __init__(self, file: Hdf5, dataset: Dataset) -> None:
        self._file = file
        self._dataset = dataset
        assert dataset.shape is not None
        #: The shape of a chunk; the last ones reach past the dataset's own.
        self.shape: tuple[int, ...] = dataset.chunk or dataset.shape
        self.nbytes = numel(self.shape) * dataset.type.size
        self._kept: dict[tuple[int, ...], bytes] = {}
        most = file.limits.hdf5_chunk_bytes
        if self.nbytes > most:
            raise LimitError(
                f"the chunks of {dataset.path} are too large",
                why=f"{self.nbytes} bytes each, and the limit is {most}",
                hint=f"CKPTTOOL_LIMITS=hdf5_chunk_bytes={self.nbytes} allows them",
                id="limit-hdf5",
            )
        self._keep = max(1, most // 4 // max(1, self.nbytes))
        unknown = [step for step in dataset.filters if step.code not in _OURS | _LIBRARY]
        if unknown:
            raise UnsupportedError(
                f"the values of {dataset.path} cannot be read",
                why=f"they are packed by filter {unknown[0].code}, which is a plug-in of HDF5",
                hint="write it again with h5repack -f GZIP=6",
                id="hdf5-filter",
            )

    def chunk(self, start: tuple[int, ...], *, check: bool) -> bytes:
        """The elements of the chunk that begins at ``start``, all of them, as stored.

        Raises:
            CorruptError: id ``hdf5-chunk``. IncompleteError: it lies past the end.
        """
        found = self._kept.pop(start, None)
        if found is None:
            found = self._read(start, check)
            while len(self._kept) >= self._keep:
                del self._kept[next(iter(self._kept))]
        self._kept[start] = found
        return found

    def _read(self, start: tuple[int, ...], check: bool) -> bytes:
        dataset = self._dataset
        if dataset.chunk is None:
            return self._file.unpacked_chunk(dataset, start)
        place = self._file.chunk_place(dataset, start)
        if place is None:
            return self._file.fill_value(dataset) * numel(self.shape)
        if any(step.code in _LIBRARY for step in dataset.filters):
            if place.nbytes > self.nbytes + _SPARE_BYTES:
                self._wrong(start, f"{place.nbytes} bytes are stored of it")
            return self._file.unpacked_chunk(dataset, start)
        if place.nbytes > self._file.limits.hdf5_chunk_bytes:
            self._wrong(start, f"{place.nbytes} bytes are stored of it")
        data = self._file.pread(place.offset, place.nbytes)
        for position in reversed(range(len(dataset.filters))):
            if place.skipped >> position & 1:
                continue  # it did not help for this chunk, so it was left out
            step = dataset.filters[position]
            if step.code == _DEFLATE:
                data = self._inflate(data, start)
            elif step.code == _SHUFFLE:
                data = _unshuffle(data, dataset.type.size)
            else:
                if len(data) < _SUM_BYTES:
                    self._wrong(start, f"{len(data)} bytes cannot hold its checksum")
                if check and not _fletcher32_fits(data):
                    self._wrong(start, "its checksum does not match")
                data = data[:-_SUM_BYTES]
        if len(data) != self.nbytes:
            self._wrong(start, f"{len(data)} bytes came out, and its shape needs {self.nbytes}")
        return data

    def _inflate(self, data: bytes, start: tuple[int, ...]) -> bytes:
        unpacker = zlib.decompressobj()
        room = self.nbytes + _SUM_BYTES * len(self._dataset.filters)  # checksums may lie inside
        try:
            result = unpacker.decompress(data, room)
        except zlib.error as error:
            self._wrong(start, str(error))
        if not unpacker.eof and len(result) == room:
            self._wrong(start, f"it unpacks to more than its {self.nbytes} bytes")
        return result

    def _wrong(self, start: tuple[int, ...], why: str) -> NoReturn:
        raise CorruptError(
            f"{self._file.file.path} is damaged in {self._dataset.path}",
            why=f"the chunk at {list(start)}: {why}",
            hint="copy the file again from where it is whole",
            id="hdf5-chunk",
        )


def _unshuffle(data: bytes, size: int) -> bytes:
    """First bytes of all elements, then second bytes… put together again."""
    count = len(data) // size
    if size == 1 or count <= 1:
        return data
    result = bytearray(data)
    for byte in range(size):
        result[byte : count * size : size] = data[byte * count : (byte + 1) * count]
    return bytes(result)


def _fletcher32_fits(data: bytes) -> bool:
    """Whether the last four bytes are Fletcher's sum of the others.

    The two sums count in ones' complement, where 0 and 65,535 are the same.
    """
    import numpy as np

    body, last = data[:-_SUM_BYTES], data[-_SUM_BYTES:]
    words = np.frombuffer(body + b"\0" * (len(body) % 2), ">u2").astype(np.uint64)
    first = second = 0
    for at in range(0, len(words), 2**16):
        part = words[at : at + 2**16]
        weights = np.arange(len(part), 0, -1, dtype=np.uint64)
        second = (second + first * len(part) + int((part * weights).sum())) % 65535
        first = (first + int(part.sum())) % 65535
    stored = int.from_bytes(last, "little")
    swapped = int.from_bytes(bytes(last[i] for i in (1, 0, 3, 2)), "little")
    # HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines.
    return any(
        (found >> 16) % 65535 == second and (found & 0xFFFF) % 65535 == first
        for found in (stored, swapped)
    )


class Heap:
    """The global heap: where strings of any length lie, by collection and number."""

    def __init__(self, file: Hdf5) -> None:
        self._file = file
        self._collection = -1
        #: Where it ends; the next one begins there, or behind it.
        self._end = 0
        self._objects: dict[int, tuple[int, int]] = {}

    def strings(self, references: Sequence[bytes]) -> list[bytes]:
        """The strings of elements: each has a length, the address of a collection, a number.

        Raises:
            CorruptError: id ``hdf5-heap``: nothing of that kind lies there.
        """
        found = [b""] * len(references)
        # In the order of the collections, so that each is looked through once.
        for place in sorted(range(len(references)), key=lambda at: self._address(references[at])):
            found[place] = self._string(references[place])
        return found

    def _address(self, reference: bytes) -> int:
        return int.from_bytes(reference[4 : 4 + self._file.address_bytes], "little")

    def _string(self, reference: bytes) -> bytes:
        length = int.from_bytes(reference[:4], "little")
        address = self._address(reference)
        number = int.from_bytes(reference[4 + self._file.address_bytes :], "little")
        if not length or not address:
            return b""
        if address != self._collection:
            self._enter(address)
        place = self._objects.get(number)
        if place is None or place[1] < length:
            self._wrong(address, f"it has no {length} bytes of number {number}")
        return self._file.pread(place[0], length)

    def _enter(self, address: int) -> None:
        """Look where the objects of a collection lie."""
        file, start = self._file, address + self._file.base
        header = file.pread(start, 8 + file.address_bytes)
        if header[:5] != b"GCOL\x01":
            self._wrong(address, "there is no collection of strings")
        end = start + int.from_bytes(header[8:], "little")
        if end > file.size:
            self._wrong(address, f"it claims to end at {end}, and the file has {file.size} bytes")
        if start < self._end:
            self._wrong(address, "it begins inside another collection")
        at = start + len(header)
        self._objects = {}
        while at + 8 + file.address_bytes <= end:
            head = file.pread(at, 8 + file.address_bytes)
            number = int.from_bytes(head[:2], "little")
            size = int.from_bytes(head[8:], "little")
            if not number:  # what is left is free
                break
            at += len(head)
            if at + size > end:
                self._wrong(address, f"its number {number} claims {size} bytes")
            self._objects[number] = (at, size)
            at += (size + 7) // 8 * 8
        self._collection, self._end = address, end

    def _wrong(self, address: int, why: str) -> NoReturn:
        raise CorruptError(
            f"{self._file.file.path} is damaged: a string cannot be read",
            why=f"at address {address}: {why}",
            hint="copy the file again from where it is whole",
            id="hdf5-heap",
        )
