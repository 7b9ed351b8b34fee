"""Compares the bytes of one data file with the checksums that the index has for them.

Reads in the order of the file: small neighbours together in one window, large ranges in
pieces, so that a gigabyte passes through one megabyte of memory and a million small
variables cost no system call each. Every claimed byte is read once, whatever overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError, IncompleteError
from ckpttool.formats.crc32c import crc, extend, mask
from ckpttool.formats.dtypes import STRING
from ckpttool.formats.tensor_bytes import string_checksum, variant_checksum
from ckpttool.ops.verification.extents import Extents
from ckpttool.storage import FileStat, ReadableFile

__all__ = ["WINDOW", "Mismatch", "Unit", "check_range", "check_unit", "sum_bytes", "units"]

#: One read; larger ones fall out of the processor's cache before they are summed.
WINDOW = 2**20
#: A range from here on starts a unit of its own, so that it is read in its own pieces.
_LARGE = 2**18
#: Unclaimed bytes that are read along rather than starting a new window.
_GAP = 2**12


@dataclass(slots=True)
class Unit:
    """Work that one thread does at a time: positions of ranges in ``[start, end)``.

    Either ranges within one window, or a longer one and its aliases. ``nbytes`` are the
    bytes that they claim together.
    """

    start: int
    end: int
    positions: list[int]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A range whose bytes are not what the index says.

    ``outcome`` is the masked checksum of its bytes, or the error that says why there is
    none: they could not be read, or are no list of strings.
    """

    position: int
    outcome: int | CkpttoolError


def units(extents: Extents, length: int) -> Iterator[Unit]:
    """The ranges that end inside a file of ``length`` bytes in windows, by rising offset."""
    offsets, sizes = extents.offsets, extents.sizes
    unit = Unit(0, 0, [], 0)
    for position in extents.order():
        offset, size = offsets[position], sizes[position]
        stop = offset + size
        if size and stop > length:
            continue
        if size >= _LARGE:
            fits = offset == unit.start and stop == unit.end  # an alias is read once
        else:
            fits = stop <= unit.start + WINDOW and offset <= unit.end + _GAP
        if not fits and unit.positions:
            yield unit
        if not fits or not unit.positions:
            unit = Unit(offset, stop, [], 0)
        unit.positions.append(position)
        unit.nbytes += size
        unit.end = max(unit.end, stop)
    if unit.positions:
        yield unit


def check_unit(
    file: ReadableFile, extents: Extents, unit: Unit, *, big_endian: bool
) -> list[Mismatch]:
    """The ranges of the unit that do not match, by rising offset."""
    if unit.end - unit.start <= WINDOW and len(unit.positions) > 1:
        try:
            window = _Window(file, unit.start, file.pread(unit.start, unit.end - unit.start))
        except CkpttoolError:
            pass  # read one by one, to know which ranges are beyond reading
        else:
            return _check_window(window, extents, unit, big_endian=big_endian)
    found: list[Mismatch] = []
    last: tuple[int, int, int, int] | None = None
    outcome: int | CkpttoolError = 0
    for position in unit.positions:
        claim = extents.claim(position)
        if claim != last:
            last, outcome = claim, _masked_crc(file, *claim, big_endian=big_endian)
        if outcome != extents.checksums[position]:
            found.append(Mismatch(position, outcome))
    return found


def check_range(
    file: ReadableFile, extents: Extents, position: int, *, big_endian: bool
) -> Mismatch | None:
    """Check one range with reads of its own."""
    outcome = _masked_crc(file, *extents.claim(position), big_endian=big_endian)
    return None if outcome == extents.checksums[position] else Mismatch(position, outcome)


def _masked_crc(
    file: ReadableFile, offset: int, size: int, dtype: int, count: int, *, big_endian: bool
) -> int | CkpttoolError:
    """The checksum that the index should have for a range, or why there is none."""
    try:
        if not dtype:
            return mask(sum_bytes(file, offset, size))
        checksum = string_checksum if dtype == STRING else variant_checksum
        return checksum(file, offset, size, count, big_endian=big_endian)
    except CkpttoolError as error:
        return error


def sum_bytes(file: ReadableFile, offset: int, size: int) -> int:
    """The plain checksum of bytes of a file, however many; raises as ``pread``."""
    value = 0
    while size:
        piece = file.pread(offset, min(size, WINDOW))
        value = extend(value, piece)
        offset += len(piece)
        size -= len(piece)
    return value


def _check_window(
    window: _Window, extents: Extents, unit: Unit, *, big_endian: bool
) -> list[Mismatch]:
    """The hot loop of a checkpoint of many small variables."""
    found: list[Mismatch] = []
    offsets, sizes, opaque = extents.offsets, extents.sizes, extents.opaque
    checksums, data, start = extents.checksums, window.data, unit.start
    for position in unit.positions:
        if opaque and position in opaque:
            mismatch = check_range(window, extents, position, big_endian=big_endian)
            if mismatch:
                found.append(mismatch)
            continue
        at = offsets[position] - start
        computed = mask(crc(data[at : at + sizes[position]]))
        if computed != checksums[position]:
            found.append(Mismatch(position, computed))
    return found


class _Window:
    """Bytes of a file that are in memory already, in the guise of that file."""

    def __init__(self, file: ReadableFile, start: int, data: bytes) -> None:
        self._file = file
        self._start = start
        self.data = data

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def stat(self) -> FileStat:
        return self._file.stat

    def pread(self, offset: int, size: int) -> bytes:
        data = self.data[offset - self._start : offset - self._start + size]
        if len(data) < size:
            raise IncompleteError(f"{self.path} ends too early", id="short-read")
        return data

    def fileno(self) -> int | None:
        return None

    def changed(self) -> bool:
        return self._file.changed()

    def close(self) -> None:
        """Nothing is open."""
