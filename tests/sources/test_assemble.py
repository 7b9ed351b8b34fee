"""Variables out of parts: any layout, any selection, and layouts that make no sense."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import CorruptError, IncompleteError, LimitError
from ckpttool.model import numel
from ckpttool.sources import assemble, gather
from ckpttool.sources.assemble import Box, check_boxes, pieces, require_cover
from ckpttool.sources.selection import Index, Selection
from tests.sources.test_gather import ITEMSIZES, indexed_shapes


@st.composite
def cut(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Box]:
    """A shape cut into boxes, again and again, in any order."""
    boxes = [Box((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 6))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axes = [axis for axis, size in enumerate(box.extent) if size > 1]
        if not axes:
            boxes.append(box)
            continue
        axis = draw(st.sampled_from(axes))
        size = draw(st.integers(1, box.extent[axis] - 1))
        boxes += halves(box, axis, size)
    return draw(st.permutations(boxes))


def halves(box: Box, axis: int, size: int) -> list[Box]:
    start, low, high = list(box.start), list(box.extent), list(box.extent)
    start[axis] += size
    low[axis], high[axis] = size, high[axis] - size
    return [Box(box.start, tuple(low)), Box(tuple(start), tuple(high))]


@settings(deadline=None)
@given(st.data(), indexed_shapes(), ITEMSIZES, st.sampled_from([1, 16, 64, 2**22]))
def test_puts_any_cut_together(
    data: st.DataObject, case: tuple[tuple[int, ...], Index], dtype: str, window: int
) -> None:
    shape, index = case
    boxes = data.draw(cut(shape))
    array = np.arange(numel(shape)).astype(dtype).reshape(shape)
    parts = [
        array[tuple(slice(a, a + n) for a, n in zip(box.start, box.extent, strict=True))].tobytes()
        for box in boxes
    ]

    def read(part: int, offset: int, size: int) -> bytes:
        assert 0 <= offset < offset + size <= len(parts[part])
        return parts[part][offset : offset + size]

    selection = Selection.of(shape, index)
    check_boxes("v", shape, boxes)
    require_cover("v", selection, boxes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "WINDOW_BYTES", window)
        patch.setattr(assemble, "WINDOW_BYTES", window)
        found = list(pieces(selection, array.itemsize, boxes, read))
    assert b"".join(found) == array[index].tobytes()
    assert max(map(len, found), default=1) in range(1, max(window, array.itemsize) + 1)


def test_a_grid_of_many_parts_is_checked_quickly() -> None:
    boxes = [Box((i, j), (1, 1)) for i in range(150) for j in range(150)]
    random.Random(1).shuffle(boxes)
    check_boxes("v", (150, 150), boxes)


def test_parts_that_no_straight_cut_separates() -> None:
    pinwheel = [
        Box((0, 0), (2, 3)),
        Box((0, 3), (3, 2)),
        Box((3, 2), (2, 3)),
        Box((2, 0), (3, 2)),
        Box((2, 2), (1, 1)),
    ]
    check_boxes("v", (5, 5), pinwheel)
    require_cover("v", Selection.whole((5, 5)), pinwheel)
    with pytest.raises(CorruptError, match="overlap") as caught:
        check_boxes("v", (5, 5), [*pinwheel[:-1], Box((2, 2), (2, 1))])
    assert caught.value.id == "slice-overlap"


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        ((4, 4), Box((0,), (4,))),
        ((4,), Box((0, 0), (4, 1))),
        ((4,), Box((-1,), (2,))),
        ((4,), Box((2,), (3,))),
        ((4,), Box((0,), (2**62,))),
        ((4,), Box((1,), (-1,))),
    ],
)
def test_parts_outside_their_variable(shape: tuple[int, ...], box: Box) -> None:
    with pytest.raises(CorruptError) as caught:
        check_boxes("v", shape, [box])
    assert caught.value.id == "slice-shape"


def test_one_dimension_is_no_plural() -> None:
    with pytest.raises(CorruptError) as caught:
        check_boxes("v", (4, 4), [Box((0,), (4,))])
    assert caught.value.why == "the slice has 1 dimension, the variable 2"


def test_scalars_and_empty_parts() -> None:
    check_boxes("v", (), [Box((), ())])
    with pytest.raises(CorruptError, match="overlap"):
        check_boxes("v", (), [Box((), ()), Box((), ())])
    check_boxes("v", (0, 3), [Box((0, 0), (0, 2)), Box((0, 1), (0, 2))])


def test_a_hole_matters_only_where_it_is_wanted() -> None:
    boxes = [Box((0,), (4,)), Box((6,), (4,))]
    check_boxes("v", (10,), boxes)
    assert require_cover("v", Selection.of((10,), (slice(7, 9),)), boxes) == [1]
    with pytest.raises(IncompleteError, match="8 of the 10 elements") as caught:
        require_cover("v", Selection.whole((10,)), boxes)
    assert caught.value.id == "slice-gap"


def test_a_layout_made_to_take_for_ever_is_refused() -> None:
    """Boxes that can only be peeled off one by one."""
    boxes, row, column = [], 0, 0
    for number in range(5000):
        if number % 2:
            boxes.append(Box((row, column), (1, 10_000 - column)))
            row += 1
        else:
            boxes.append(Box((row, column), (10_000 - row, 1)))
            column += 1
    with pytest.raises(LimitError) as caught:
        check_boxes("v", (10_000, 10_000), boxes)
    assert caught.value.id == "slice-layout"
