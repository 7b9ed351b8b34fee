"""One variable out of its stored parts: checks how they lie, and reads across them.

TensorFlow stores a partitioned variable as boxes of one logical array and can put only
some dtypes together again; here the dtype does not matter, since elements are moved as
bytes. A whole variable is the case of one part. Knows boxes and reads, not files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations, product
from typing import NamedTuple

from ckpttool.errors import CorruptError, IncompleteError, LimitError
from ckpttool.model import numel, shape_text
from ckpttool.policy.words import count
from ckpttool.sources.gather import WINDOW_BYTES, bands, fill, windows
from ckpttool.sources.selection import Axis, Selection, strides

__all__ = ["Box", "Located", "check_boxes", "locate", "pieces", "reads", "require_cover", "scatter"]

#: ``read(part, offset, size)``: bytes of part number ``part``, from its own start.
ReadPart = Callable[[int, int, int], bytes]

#: Comparisons spent on proving that parts do not overlap; a grid of n parts costs 2n.
_OVERLAP_BUDGET = 600_000


class Box(NamedTuple):
    """Where a part lies in the variable: one start and one extent a dimension."""

    start: tuple[int, ...]
    extent: tuple[int, ...]

    def __str__(self) -> str:
        sides = zip(self.start, self.extent, strict=True)
        return f"[{', '.join(f'{start}:{start + extent}' for start, extent in sides)}]"


class Located(NamedTuple):
    """What a part gives to a selection: a selection of the part, and where it goes.

    ``first`` is the place of its first element in the result, one number an axis.
    """

    part: int
    selection: Selection
    first: tuple[int, ...]


def check_boxes(name: str, shape: tuple[int, ...], boxes: Sequence[Box]) -> None:
    """Check that parts lie inside the variable and share no element.

    Raises:
        CorruptError: id ``slice-shape`` or ``slice-overlap``.
        LimitError: id ``slice-layout``: too irregular to decide in reasonable time.
    """
    for box in boxes:
        if len(box.start) != len(shape) or len(box.extent) != len(shape):
            raise CorruptError(
                f"a slice of {name} does not fit its variable",
                why=f"the slice has {count(len(box.start), 'dimension')}, "
                f"the variable {len(shape)}",
                hint="copy the checkpoint again; the other variables can be read",
                id="slice-shape",
            )
        sides = zip(box.start, box.extent, shape, strict=True)
        if any(start < 0 or extent < 0 or start + extent > size for start, extent, size in sides):
            raise CorruptError(
                f"a slice of {name} does not fit its variable",
                why=f"the slice is {box}, the variable's shape {shape_text(shape)}",
                hint="copy the checkpoint again; the other variables can be read",
                id="slice-shape",
            )
    pair = _overlap(name, [box for box in boxes if numel(box.extent)], len(shape))
    if pair:
        raise CorruptError(
            f"slices of {name} overlap",
            why=f"{pair[0]} and {pair[1]} share elements, so its values are ambiguous",
            hint="save it again, or copy the checkpoint again; the other variables can be read",
            id="slice-overlap",
        )


def _overlap(name: str, boxes: list[Box], rank: int) -> tuple[Box, Box] | None:
    """Two boxes that share an element, or None.

    Along one axis the boxes fall into groups whose intervals touch; boxes of different
    groups are apart, so each group is split along the next axis, until it is one box or
    no axis splits it; only then every pair is compared.
    """
    budget = _OVERLAP_BUDGET
    groups = [(boxes, 0, 0)]
    while groups:
        group, axis, failed = groups.pop()
        if len(group) < 2:
            continue
        # Pairs are paid for as they are compared: many equal parts are found out at once.
        for one, other in combinations(group, 2) if failed == rank else ():
            if _touch(one, other):
                return one, other
            budget -= 1
            if budget < 0:
                break
        budget -= len(group)
        if budget < 0:
            raise LimitError(
                f"the slices of {name} cannot be checked for overlaps",
                why=f"its {len(boxes)} slices lie too irregularly",
                id="slice-layout",
            )
        if failed == rank:
            continue
        parts = _split(group, axis)
        failed = failed + 1 if len(parts) == 1 else 0
        groups.extend((part, (axis + 1) % rank, failed) for part in parts)
    return None


def _split(group: list[Box], axis: int) -> list[list[Box]]:
    """Groups of boxes whose intervals along an axis are connected."""
    parts: list[list[Box]] = []
    reach = -1
    for box in sorted(group, key=lambda box: box.start[axis]):
        start = box.start[axis]
        if start >= reach:
            parts.append([])
        parts[-1].append(box)
        reach = max(reach, start + box.extent[axis])
    return parts


def _touch(one: Box, other: Box) -> bool:
    sides = zip(one.start, one.extent, other.start, other.extent, strict=True)
    return all(a < b + n and b < a + m for a, m, b, n in sides)


def locate(selection: Selection, box: Box, part: int) -> Located | None:
    """What a part gives to a selection of the variable; None where it gives nothing."""
    axes, first = [], []
    for axis, start, extent in zip(selection.axes, box.start, box.extent, strict=True):
        begin, end = _between(axis, start, start + extent)
        if begin >= end:
            return None
        at = axis.start + begin * axis.step - start
        axes.append(Axis(at, axis.step, end - begin))
        first.append(begin)
    return Located(part, Selection(box.extent, tuple(axes)), tuple(first))


def _between(axis: Axis, low: int, high: int) -> tuple[int, int]:
    """The range of i for which ``low <= start + i * step < high``."""
    if axis.step > 0:
        begin = -((axis.start - low) // axis.step)
        end = -((axis.start - high) // axis.step)
    else:
        begin = (axis.start - high) // -axis.step + 1
        end = (axis.start - low) // -axis.step + 1
    return max(begin, 0), min(end, axis.length)


def require_cover(name: str, selection: Selection, boxes: Sequence[Box]) -> list[int]:
    """Check that parts which share no element hold all that is selected.

    Returns:
        The numbers of the parts that hold some of it.

    Raises:
        IncompleteError: id ``slice-gap``.
    """
    covered, needed = 0, []
    for number, box in enumerate(boxes):
        located = locate(selection, box, number)
        if located:
            covered += located.selection.size
            needed.append(number)
    if covered != selection.size:
        raise IncompleteError(
            f"{name} is not completely stored",
            why=f"its {len(boxes)} slices hold {covered} of the {selection.size} elements wanted",
            hint="choose a part that is stored (see its slices with: ckpttool list --json)",
            id="slice-gap",
        )
    return needed


class _Parts:
    """Boxes ordered along the first axis, to find the few that a band meets."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self._boxes = boxes
        if boxes and boxes[0].start:
            self._order = sorted(range(len(boxes)), key=lambda i: boxes[i].start[0])
            self._starts = [boxes[i].start[0] for i in self._order]
            ends = (boxes[i].start[0] + boxes[i].extent[0] for i in self._order)
            self._ends = list(accumulate(ends, max))
        else:  # scalars have no axis
            self._order = list(range(len(boxes)))
            self._starts, self._ends = [0] * len(boxes), [1] * len(boxes)

    def located(self, band: Selection) -> Iterator[Located]:
        low = high = 0
        if band.axes:
            axis = band.axes[0]
            low, high = sorted((axis.start, axis.start + (axis.length - 1) * axis.step))
        begin = bisect_right(self._ends, low)
        end = bisect_left(self._starts, high + 1)
        for i in self._order[begin:end]:
            located = locate(band, self._boxes[i], i)
            if located:
                yield located


def pieces(
    selection: Selection, itemsize: int, boxes: Sequence[Box], read: ReadPart
) -> Iterator[bytes]:
    """The selected elements in C order, in pieces of at most `WINDOW_BYTES`.

    Args:
        selection: of the variable.
        itemsize: bytes of an element.
        boxes: its parts, which share no element and hold all that is selected.
        read: reads bytes of a part.
    """
    parts = _Parts(boxes)
    for band in bands(selection, max(1, WINDOW_BYTES // itemsize)):
        size = band.size * itemsize
        places = strides(tuple(axis.length for axis in band.axes))
        result: bytearray | None = None
        for found in parts.located(band):
            if found.selection.size == band.size:
                loops = found.selection.loops()
                if not loops or (len(loops) == 1 and loops[0].stride == 1):
                    yield read(found.part, found.selection.first * itemsize, size)
                    break
            if result is None:
                result = bytearray(size)
            at = sum(map(int.__mul__, found.first, places))
            part = found.part

            def read_part(offset: int, wanted: int, part: int = part) -> bytes:
                return read(part, offset, wanted)

            fill(read_part, found.selection, itemsize, result, places, at)
        else:
            if result is not None:
                yield bytes(result)


def reads(
    selection: Selection, itemsize: int, boxes: Sequence[Box]
) -> Iterator[tuple[int, int, int]]:
    """The reads that `pieces` does: number of the part, offset in it, size."""
    parts = _Parts(boxes)
    for band in bands(selection, max(1, WINDOW_BYTES // itemsize)):
        for found in parts.located(band):
            targets = [0] * len(band.axes)
            for window in windows(found.selection, targets, 0, itemsize):
                yield found.part, window.start * itemsize, window.size * itemsize


def scatter(
    stored: list[bytes], selection: Selection, result: list[bytes], places: list[int], at: int
) -> None:
    """Put selected strings of a part into the result.

    Args:
        stored: the strings of the part.
        selection: of the part.
        result: the strings of the whole selection, in C order.
        places: for each axis, how far apart neighbours lie in the result; the last is 1.
        at: where the first one goes.
    """
    if not selection.axes:
        result[at] = stored[0]
        return
    *outer, last = selection.axes
    steps = strides(selection.shape)
    for position in product(*(range(axis.length) for axis in outer)):
        source, target = last.start, at
        for i, axis, step, place in zip(position, outer, steps, places, strict=False):
            source += (axis.start + i * axis.step) * step
            target += i * place
        for i in range(last.length):
            result[target + i] = stored[source + i * last.step]
