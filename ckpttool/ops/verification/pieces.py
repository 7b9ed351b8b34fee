"""Large ranges cut into pieces, and the checksums of the pieces joined again.

Several threads can share one large variable in this way, and a bar moves while it is
read. Strings and variants stay whole: where one element ends is known only by reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError
from ckpttool.formats.crc32c import combine, mask
from ckpttool.ops.verification.checksums import Mismatch, Unit, sum_bytes
from ckpttool.ops.verification.extents import Extents
from ckpttool.storage import ReadableFile

__all__ = ["PIECE", "Joiner", "Piece", "PieceSum", "cut", "sum_piece"]

#: Bytes of a piece: some hundredths of a second of reading.
PIECE = 2**25


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``[start, end)`` of the range that a unit consists of."""

    unit: Unit
    start: int
    end: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start

    @property
    def nbytes(self) -> int:
        """Bytes that the variables of the unit claim of it together."""
        return self.size * len(self.unit.positions)


@dataclass(frozen=True, slots=True)
class PieceSum:
    """The plain checksum of a piece by itself, or why it has none."""

    piece: Piece
    outcome: int | CkpttoolError


def cut(units: Iterable[Unit], extents: Extents) -> Iterator[Unit | Piece]:
    """The units, the large ones in pieces."""
    for unit in units:
        if unit.end - unit.start <= PIECE or not extents.opaque.keys().isdisjoint(unit.positions):
            yield unit
            continue
        for start in range(unit.start, unit.end, PIECE):
            yield Piece(unit, start, min(start + PIECE, unit.end))


def sum_piece(file: ReadableFile, piece: Piece) -> PieceSum:
    """Read a piece and sum it up."""
    try:
        return PieceSum(piece, sum_bytes(file, piece.start, piece.size))
    except CkpttoolError as error:
        return PieceSum(piece, error)


class Joiner:
    """Collects the sums of pieces, in any order, until a range is complete."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        #: By the first position of the unit.
        self._sums: dict[int, list[PieceSum]] = {}

    def add(self, found: PieceSum) -> list[Mismatch]:
        """Take a sum; when it was the last of its range, tells what does not match."""
        unit = found.piece.unit
        sums = self._sums.setdefault(unit.positions[0], [])
        sums.append(found)
        if len(sums) * PIECE < unit.end - unit.start:
            return []
        del self._sums[unit.positions[0]]
        outcome = _joined(sums)
        return [
            Mismatch(position, outcome)
            for position in unit.positions
            if outcome != self._extents.checksums[position]
        ]


def _joined(sums: list[PieceSum]) -> int | CkpttoolError:
    """The masked checksum of the pieces together; else the error of the first bad one."""
    value = 0
    for each in sorted(sums, key=lambda each: each.piece.start):
        if isinstance(each.outcome, CkpttoolError):
            return each.outcome
        value = combine(value, each.outcome, each.piece.size)
    return mask(value)
