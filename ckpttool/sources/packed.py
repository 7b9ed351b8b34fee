"""Selected elements that are stored several to a byte, handed out a byte each.

Knows no format: where the bytes are, and how wide an element is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ckpttool.formats.packing import unpack
from ckpttool.sources.assemble import Box, pieces
from ckpttool.sources.selection import Selection

__all__ = ["unpacked_pieces", "whole_pieces"]


def whole_pieces(
    selection: Selection, itemsize: int, read: Callable[[int, int], bytes]
) -> Iterator[bytes]:
    """Selected elements of a variable that is stored in one part, in C order.

    Args:
        selection: of the variable.
        itemsize: bytes of an element.
        read: reads bytes of it, from its own start: offset and size.
    """
    box = Box((0,) * len(selection.shape), selection.shape)
    return pieces(selection, itemsize, [box], lambda _part, offset, size: read(offset, size))


def unpacked_pieces(
    selection: Selection, bits: int, read: Callable[[int, int], bytes], *, signed: bool = False
) -> Iterator[bytes]:
    """As `whole_pieces`, of elements of ``bits`` bits (2 or 4), as a byte each."""
    each = 8 // bits

    def elements(offset: int, size: int) -> bytes:
        first = offset // each
        stored = read(first, -(-(offset + size) // each) - first)
        begin = offset - first * each
        return unpack(stored, bits, signed=signed)[begin : begin + size]

    return whole_pieces(selection, 1, elements)
