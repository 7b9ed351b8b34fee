"""Picks selected elements out of stored bytes: few reads, bounded memory, no numpy.

Elements a short way apart are fetched together in one window and picked out in memory,
since a read costs more than a few kilobytes that nobody wants; elements far apart are
read one by one. Picking is strided copying between memoryviews, so it runs in C.
It knows shapes and offsets in elements, and nothing of files or variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Literal, NamedTuple

from ckpttool.sources.selection import Axis, Selection, strides

__all__ = ["GAP_BYTES", "WINDOW_BYTES", "Move", "Window", "bands", "fill", "moves", "windows"]

#: The largest single read, and about the largest piece of a result.
WINDOW_BYTES = 4 * 2**20
#: Unwanted bytes up to this many are read and thrown away rather than skipped: a read of
#: its own costs about as much as 32 KiB more, and a disk reads ahead more than that.
GAP_BYTES = 32 * 2**10

#: ``read(offset, size)``: bytes of the stored array, both in bytes from its start.
Read = Callable[[int, int], bytes]


class Move(NamedTuple):
    """``length`` elements (or inner moves), with their distances here and there."""

    length: int
    source: int
    target: int


class Window(NamedTuple):
    """One read: ``size`` elements from ``start``, and what is picked out of them.

    ``first`` is the first element picked, counted from the window's start (a negative
    stride starts at its end); ``target`` is where it goes in the result.
    """

    start: int
    size: int
    first: int
    target: int
    moves: tuple[Move, ...]


def bands(selection: Selection, limit: int) -> Iterator[Selection]:
    """Cut a selection, in the order of its result, into ones of at most ``limit`` elements."""
    if not selection.size:
        return
    axes = selection.axes
    split, inner = len(axes), 1
    while split and inner * axes[split - 1].length <= limit:
        split -= 1
        inner *= axes[split].length
    if not split:
        yield selection
        return
    split -= 1
    group = max(1, limit // inner)
    cut = axes[split]
    for at in product(*(range(axis.length) for axis in axes[:split])):
        outer = tuple(_part(axis, i, 1) for axis, i in zip(axes, at, strict=False))
        for begin in range(0, cut.length, group):
            middle = _part(cut, begin, min(group, cut.length - begin))
            yield selection._replace(axes=(*outer, middle, *axes[split + 1 :]))


def _part(axis: Axis, begin: int, count: int) -> Axis:
    """Positions ``begin`` to ``begin + count`` of an axis."""
    return axis._replace(start=axis.start + begin * axis.step, length=count)


def moves(selection: Selection, targets: Sequence[int]) -> tuple[Move, ...]:
    """How the elements go from stored to wanted places, outermost first, merged.

    Args:
        selection: of the stored array.
        targets: for each of its axes, how far apart neighbours lie in the result.
    """
    result: list[Move] = []  # innermost first while it is built
    by_axis = zip(selection.axes, strides(selection.shape), targets, strict=True)
    for axis, stride, target in reversed(list(by_axis)):
        if axis.length == 1:
            continue
        move = Move(axis.length, axis.step * stride, target)
        if result:
            inner = result[-1]
            span = (inner.length * inner.source, inner.length * inner.target)
            if (move.source, move.target) == span:
                move = Move(move.length * inner.length, inner.source, inner.target)
                result.pop()
        result.append(move)
    return tuple(reversed(result))


def windows(
    selection: Selection, targets: Sequence[int], target: int, itemsize: int
) -> Iterator[Window]:
    """The reads that fetch a selection, in the order of its result.

    Args:
        selection: of the stored array; not empty.
        targets: for each of its axes, how far apart neighbours lie in the result.
        target: where its first element goes.
        itemsize: bytes of an element.
    """
    steps = moves(selection, targets)
    limit = max(1, WINDOW_BYTES // itemsize)
    gap = GAP_BYTES // itemsize
    # Of each level and all inside it: elements from the lowest to the highest, how many
    # of them lie below the first, and whether no hole is large.
    spans, belows, dense = [1], [0], [True]
    for move in reversed(steps):
        dense.append(dense[-1] and abs(move.source) - spans[-1] <= gap)
        spans.append((move.length - 1) * abs(move.source) + spans[-1])
        belows.append(max(0, (move.length - 1) * -move.source) + belows[-1])
    for levels in (spans, belows, dense):
        levels.reverse()

    plan = _Levels(steps, spans, belows, dense, limit)
    yield from _walk(plan, 0, selection.first, target)


class _Levels(NamedTuple):
    """Facts about each level of nested moves, for `windows`."""

    steps: tuple[Move, ...]
    spans: list[int]
    belows: list[int]
    dense: list[bool]
    limit: int


def _walk(plan: _Levels, level: int, first: int, target: int) -> Iterator[Window]:
    # Not a function inside `windows`: one that calls itself is a cycle, and the command
    # line runs without the collector.
    steps, spans, belows, dense, limit = plan
    span, below = spans[level], belows[level]
    if dense[level] and span <= limit:
        yield Window(first - below, span, below, target, steps[level:])
        return
    move, inner = steps[level], steps[level + 1 :]
    span, below = spans[level + 1], belows[level + 1]
    stride = abs(move.source)
    if not dense[level + 1] or span > limit:
        for i in range(move.length):
            yield from _walk(plan, level + 1, first + i * move.source, target + i * move.target)
    elif not dense[level] or span + stride > limit:
        for i in range(move.length):
            start = first + i * move.source - below
            yield Window(start, span, below, target + i * move.target, inner)
    else:
        group = 1 + (limit - span) // stride
        for i in range(0, move.length, group):
            part = move._replace(length=min(group, move.length - i))
            reach = (part.length - 1) * stride
            under = below + (reach if move.source < 0 else 0)
            start = first + i * move.source - under
            yield Window(start, span + reach, under, target + i * move.target, (part, *inner))


def fill(
    read: Read,
    selection: Selection,
    itemsize: int,
    result: bytearray,
    targets: Sequence[int],
    target: int = 0,
) -> None:
    """Read a selection of a stored array into its places in ``result``.

    Args:
        read: reads the stored array.
        selection: of the stored array; not empty.
        itemsize: bytes of an element.
        result: elements in C order.
        targets: for each axis of the selection, how far apart neighbours lie in it.
        target: where the first element goes.
    """
    with memoryview(result) as view:
        for window in windows(selection, targets, target, itemsize):
            data = read(window.start * itemsize, window.size * itemsize)
            if not window.moves or window.moves == (Move(window.size, 1, 1),):
                at = window.target * itemsize
                view[at : at + len(data)] = data
            else:
                _copy(view, window.target, data, window.first, window.moves, itemsize)


_FORMATS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _copy(
    target: memoryview,
    target_at: int,
    source: bytes,
    source_at: int,
    steps: tuple[Move, ...],
    itemsize: int,
) -> None:
    """Copy elements between buffers, one strided copy along the move that pays most."""
    if itemsize == 16:  # no single format is so wide: two halves
        steps = tuple(Move(m.length, 2 * m.source, 2 * m.target) for m in steps)
        steps += (Move(2, 1, 1),)
        target_at, source_at, itemsize = 2 * target_at, 2 * source_at, 8
    there = target.cast(_FORMATS[itemsize])
    here = memoryview(source).cast(_FORMATS[itemsize])
    total = 1
    for move in steps:
        total *= move.length

    def cost(move: Move) -> int:
        # A slice assignment costs as much as two hundred elements; adjacent ones are free.
        return total // move.length * 200 + (0 if move.source == move.target == 1 else total)

    along = min(steps, key=cost, default=Move(1, 1, 1))
    others = [move for move in steps if move is not along]
    for at in product(*(range(move.length) for move in others)):
        begin, end = source_at, target_at
        for i, move in zip(at, others, strict=True):
            begin += i * move.source
            end += i * move.target
        there[_strided(end, along.length, along.target)] = here[
            _strided(begin, along.length, along.source)
        ]


def _strided(start: int, count: int, stride: int) -> slice:
    stop = start + count * stride
    return slice(start, stop if stop >= 0 else None, stride)
