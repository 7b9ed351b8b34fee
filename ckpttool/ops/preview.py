"""The corners of an array, for people: a few values of each axis, and where some are left out.

Reads only the values that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from types import EllipsisType
from typing import TYPE_CHECKING, Union

from ckpttool.model import numel
from ckpttool.sources.selection import Axis, Selection

if TYPE_CHECKING:
    from ckpttool.formats.elements import Value
    from ckpttool.ops.load import Loaded

__all__ = ["WHOLE_UP_TO", "Nested", "preview"]

#: Arrays of up to so many elements are shown whole; NumPy's threshold.
WHOLE_UP_TO = 1000

#: A value, values along an axis, or ``...`` for those left out.
Nested = Union["Value", bytes, EllipsisType, list["Nested"]]

#: How many are kept at the beginning and at the end of an axis.
_EDGES = ((3, 3), (1, 1), (1, 0))


def preview(loaded: Loaded, number: int) -> Nested:
    """The values of an item as nested lists, abbreviated where there are many.

    Raises:
        CkpttoolError: as ``Loaded.chunks``.
    """
    selection = loaded.items[number].selection
    if not selection.size:
        return []
    kept = _kept(selection.result_shape)
    axes = iter(kept)
    ranges = [[(0, 1)] if axis.dropped else next(axes) for axis in selection.axes]
    found: dict[tuple[int, ...], Value | bytes] = {}
    for block in product(*ranges):
        part = Selection(selection.shape, tuple(map(_part, selection.axes, block)))
        shown = [
            range(begin, begin + count)
            for (begin, count), axis in zip(block, selection.axes, strict=True)
            if not axis.dropped
        ]
        found.update(zip(product(*shown), loaded.some(number, part), strict=True))
    return _nest(found, kept, selection.result_shape, ())


def _part(axis: Axis, block: tuple[int, int]) -> Axis:
    begin, count = block
    return axis._replace(start=axis.start + begin * axis.step, length=count)


def _kept(shape: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Of each axis, the one or two ranges (begin, count) that are shown."""
    if numel(tuple(shape)) <= WHOLE_UP_TO:
        return [[(0, size)] for size in shape]
    edges = [_EDGES[0]] * len(shape)
    for narrower in _EDGES[1:]:
        for axis in range(len(shape) - 1):
            if numel(tuple(map(_shown, shape, edges))) <= WHOLE_UP_TO:
                break
            edges[axis] = narrower
    return [list(_ranges(size, *edge)) for size, edge in zip(shape, edges, strict=True)]


def _shown(size: int, edge: tuple[int, int]) -> int:
    return min(size, sum(edge))


def _ranges(size: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    if size <= first + last:
        yield 0, size
        return
    yield 0, first
    if last:
        yield size - last, last


def _nest(
    found: dict[tuple[int, ...], Value | bytes],
    kept: list[list[tuple[int, int]]],
    shape: tuple[int, ...],
    place: tuple[int, ...],
) -> Nested:
    axis = len(place)
    if axis == len(shape):
        return found[place]
    result: list[Nested] = []
    end = 0
    for begin, count in kept[axis]:
        if begin > end:
            result.append(...)
        end = begin + count
        result += [_nest(found, kept, shape, (*place, at)) for at in range(begin, end)]
    if end < shape[axis]:
        result.append(...)
    return result
