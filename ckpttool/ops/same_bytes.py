"""Whether an array that was written holds the very bytes that were to be written.

Where their checksum is stored with the source, what was written is held against that: it is
read once, and the source is not read again, which costs a third of comparing the two. That
finds damage of the source too, for a checksum that does not fit has both read and compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckpttool.formats.crc32c import extend, mask
from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    from ckpttool.formats.named_array import NamedArray, Place
    from ckpttool.model import Variable
    from ckpttool.sources.base import Extent, Source

__all__ = ["same_bytes", "same_pieces"]

#: Read at once: what stays in the processor's cache until it is summed up.
_WINDOW = 2**19


def same_bytes(
    array: NamedArray, result: Source, variable: Variable, *, check: bool = True
) -> bool:
    """Compare all elements of an array with those of a variable of its shape.

    ``check``: compare the checksums of the result too, where it has some.

    Raises:
        CkpttoolError: as ``Source.chunks``, of either side.
    """
    place = array.place()
    if place is not None and _holds(result.extent(variable), place):
        return True
    selection = Selection.whole(array.shape)
    if array.dtype == "string":
        return variable.dtype == "string" and list(array.strings()) == result.strings(
            variable, selection, check=check
        )
    return variable.dtype != "string" and same_pieces(
        array.chunks(), result.chunks(variable, selection, check=check)
    )


def _holds(extent: Extent | None, place: Place) -> bool:
    """Whether a range of a file has the checksum of a place; no where it is not known."""
    if extent is None or not extent.little_endian or extent.nbytes != place.nbytes:
        return False
    value = 0
    for start in range(0, extent.nbytes, _WINDOW):
        size = min(_WINDOW, extent.nbytes - start)
        value = extend(value, extent.file.pread(extent.offset + start, size))
    return mask(value) == place.crc32c


def same_pieces(lefts: Iterable[bytes], rights: Iterable[bytes]) -> bool:
    """Whether two streams hold the same bytes, wherever they are cut."""
    left_pieces, right_pieces = iter(lefts), iter(rights)
    left = right = b""
    while True:
        # An empty piece is no end.
        while not left and (piece := next(left_pieces, None)) is not None:
            left = piece
        while not right and (piece := next(right_pieces, None)) is not None:
            right = piece
        count = min(len(left), len(right))
        if not count:
            return left == right
        # A slice of all of a bytes object is that object: pieces of one size are not copied.
        if left[:count] != right[:count]:
            return False
        left, right = left[count:], right[count:]
