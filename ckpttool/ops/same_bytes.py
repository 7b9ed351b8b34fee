"""Whether an array that was written holds the very bytes that were to be written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    from ckpttool.formats.named_array import NamedArray
    from ckpttool.model import Variable
    from ckpttool.sources.base import Source

__all__ = ["same_bytes", "same_pieces"]


def same_bytes(
    array: NamedArray, result: Source, variable: Variable, *, check: bool = True
) -> bool:
    """Compare all elements of an array with those of a variable of its shape.

    ``check``: compare the checksums of the result too, where it has some.

    Raises:
        CkpttoolError: as ``Source.chunks``, of either side.
    """
    selection = Selection.whole(array.shape)
    if array.dtype == "string":
        return variable.dtype == "string" and list(array.strings()) == result.strings(
            variable, selection, check=check
        )
    return variable.dtype != "string" and same_pieces(
        array.chunks(), result.chunks(variable, selection, check=check)
    )


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
