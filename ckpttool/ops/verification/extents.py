"""The byte ranges that an index claims in one data file, kept as flat arrays.

Some thirty bytes a range instead of an object each, so that a million variables fit in
little memory. A range is known by its ordinal in the index; names are looked up again
(a second walk) only for those that a message has to name. Knows nothing of files.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Extents", "Layout"]

_STRETCHES = 64


@dataclass(frozen=True, slots=True)
class Layout:
    """How the ranges of one data file lie to each other.

    Attributes:
        aliased: ranges that are exactly the one before, and the ordinals of the first two.
        aliased_bytes: bytes that they claim.
        overlapping: ranges that share some bytes with others, and the first two.
        gaps: stretches between ranges that none claims.
        unclaimed: bytes in those stretches.
    """

    aliased: int
    first_aliased: tuple[int, int] | None
    aliased_bytes: int
    overlapping: int
    first_overlapping: tuple[int, int] | None
    gaps: int
    unclaimed: int


class Extents:
    """The ranges in one data file; parallel arrays, in the order of the index."""

    __slots__ = (
        "_largest_offset",
        "_last_offset",
        "_order",
        "_sorted",
        "checksums",
        "end",
        "nbytes",
        "offsets",
        "opaque",
        "ordinals",
        "sizes",
    )

    def __init__(self) -> None:
        self.ordinals = array("I")
        self.offsets = array("Q")
        self.sizes = array("Q")
        #: Masked crc32c, as stored.
        self.checksums = array("I")
        #: The dtype and the number of elements of strings and variants, by position: their
        #: checksum is not that of the bytes as they are.
        self.opaque: dict[int, tuple[int, int]] = {}
        #: All sizes together.
        self.nbytes = 0
        #: One past the last claimed byte.
        self.end = 0
        self._last_offset = 0
        self._largest_offset = 0
        self._sorted = True
        self._order: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, ordinal: int, offset: int, size: int, checksum: int) -> None:
        """Append a range; offset and size are below 2**63 and not negative."""
        self.ordinals.append(ordinal)
        self.offsets.append(offset)
        self.sizes.append(size)
        self.checksums.append(checksum)
        self.nbytes += size
        if size and offset + size > self.end:
            self.end = offset + size
        if offset < self._last_offset:
            self._sorted = False
        elif offset > self._largest_offset:
            self._largest_offset = offset
        self._last_offset = offset
        self._order = None

    def add_opaque(
        self, ordinal: int, offset: int, size: int, checksum: int, dtype: int, count: int
    ) -> None:
        """Append the range of a string or variant variable of ``count`` elements."""
        self.opaque[len(self)] = (dtype, count)
        self.add(ordinal, offset, size, checksum)

    def claim(self, position: int) -> tuple[int, int, int, int]:
        """What its checksum depends on: offset, size, and (else 0) opaque dtype and count."""
        dtype, count = self.opaque.get(position, (0, 0))
        return self.offsets[position], self.sizes[position], dtype, count

    def order(self) -> Sequence[int]:
        """Positions by rising offset."""
        if self._order is None:
            self._order = range(len(self)) if self._sorted else self._sort()
        return self._order

    def _sort(self) -> Sequence[int]:
        """Sort by stretches of the file: a list of all would take more than the ranges."""
        width = self._largest_offset // _STRETCHES + 1
        stretches = [array("I") for _ in range(_STRETCHES)]
        for position, offset in enumerate(self.offsets):
            stretches[offset // width].append(position)
        order = array("I")
        for stretch in stretches:
            order.extend(sorted(stretch, key=self.offsets.__getitem__))
        return order

    def layout(self) -> Layout:
        """Overlaps and gaps, in one pass by offset; empty ranges lie nowhere."""
        aliased = aliased_bytes = overlapping = gaps = unclaimed = end = 0
        first_aliased: tuple[int, int] | None = None
        first_overlapping: tuple[int, int] | None = None
        before = reaching = -1
        offsets, sizes, ordinals = self.offsets, self.sizes, self.ordinals
        for position in self.order():
            size = sizes[position]
            if not size:
                continue
            offset = offsets[position]
            if offset > end:
                gaps += 1
                unclaimed += offset - end
            elif offset < end:
                if offset == offsets[before] and size == sizes[before]:
                    aliased += 1
                    aliased_bytes += size
                    first_aliased = first_aliased or (ordinals[before], ordinals[position])
                else:
                    overlapping += 1
                    first_overlapping = first_overlapping or (
                        ordinals[reaching],
                        ordinals[position],
                    )
            if offset + size > end:
                end = offset + size
                reaching = position
            before = position
        return Layout(
            aliased,
            first_aliased,
            aliased_bytes,
            overlapping,
            first_overlapping,
            gaps,
            unclaimed,
        )
