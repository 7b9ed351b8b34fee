"""Selections against NumPy's own basic indexing."""

from __future__ import annotations

from itertools import pairwise
from types import EllipsisType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import UsageError
from ckpttool.model import numel
from ckpttool.sources.selection import (
    Axis,
    Index,
    Loop,
    Selection,
    index_text,
    parse_index,
    split_name,
)

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)
BOUNDS = st.none() | st.integers(-7, 7)
SLICES = st.builds(slice, BOUNDS, BOUNDS, st.none() | st.integers(-3, 3))
ITEMS: st.SearchStrategy[int | slice | EllipsisType] = st.one_of(
    SLICES, SLICES, st.integers(-6, 6), st.just(...)
)
INDICES = st.lists(ITEMS, max_size=5).map(tuple)


def numpy_says(shape: tuple[int, ...], index: Index) -> np.ndarray | None:
    """The flat offsets NumPy selects, or None where it refuses."""
    try:
        return np.asarray(np.arange(numel(shape)).reshape(shape)[index])
    except (IndexError, ValueError):
        return None


@given(SHAPES, INDICES)
def test_selects_what_numpy_selects(shape: tuple[int, ...], index: Index) -> None:
    expected = numpy_says(shape, index)
    if expected is None:
        with pytest.raises(UsageError) as caught:
            Selection.of(shape, index, "v")
        assert caught.value.id == "bad-index"
        return
    selection = Selection.of(shape, index)
    assert selection.result_shape == expected.shape
    assert selection.size == expected.size
    runs = list(selection.runs())
    offsets = [offset + i for offset, count in runs for i in range(count)]
    assert offsets == expected.ravel().tolist()
    for (offset, count), (following, _) in pairwise(runs):
        assert offset + count != following, "neighbouring runs are merged"
    if selection.is_whole and expected.size:
        assert runs == [(0, numel(shape))]


@given(SHAPES, INDICES)
def test_loops_reach_every_element_once(shape: tuple[int, ...], index: Index) -> None:
    expected = numpy_says(shape, index)
    if expected is None or not expected.size:
        return
    selection = Selection.of(shape, index)
    loops = selection.loops()
    offsets = np.array(selection.first)
    for loop in loops:
        offsets = offsets[..., None] + np.arange(loop.length) * loop.stride
    assert offsets.ravel().tolist() == expected.ravel().tolist()
    assert all(loop.length > 1 for loop in loops)


@given(INDICES)
def test_the_text_of_an_index_parses_back(index: Index) -> None:
    text = index_text(index)
    if not index:
        assert text == ""
        return
    assert parse_index(text[1:-1]) == index


def test_parses_what_people_write() -> None:
    assert parse_index("0:10,:") == (slice(0, 10), slice(None))
    assert parse_index(" ... , -1 ") == (..., -1)
    assert parse_index("::2, 3") == (slice(None, None, 2), 3)
    assert parse_index("5") == (5,)
    assert parse_index("5,") == (5,)
    assert parse_index("+1 : -1 :") == (slice(1, -1),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "nothing between"),
        (" ", "nothing between"),
        ("1,,2", "nothing between"),
        ("None", "new axis"),
        ("a", "neither an integer nor a slice"),
        ("1.5", "neither an integer nor a slice"),
        ("1:2:3:4", "more than two colons"),
        ("True", "neither an integer nor a slice"),
        ("9" * 5000, "neither an integer nor a slice"),
        ("٣", "neither an integer nor a slice"),
    ],
)
def test_refuses_other_things(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        parse_index(text)
    assert caught.value.id == "bad-index"


def test_says_which_index_is_out_of_range() -> None:
    with pytest.raises(UsageError, match="index 9 is out of bounds for axis 1 with size 3"):
        Selection.of((2, 3), (0, 9), "w")


def test_contiguous_rows_are_one_loop() -> None:
    rows = Selection.of((100, 8, 4), (slice(10, 20),))
    assert rows.loops() == [Loop(320, 1)]
    assert rows.first == 320
    assert Selection.of((100, 8), (slice(None), 3)).loops() == [Loop(100, 8)]
    assert Selection.whole((2, 0)).is_whole
    assert Selection.of((1, 5), (0,)).axes[0] == Axis(0, 1, 1, dropped=True)


def test_a_name_that_exists_wins_over_brackets() -> None:
    names = {"w", "w[0]", "a[0][1:2]"}
    assert split_name("w", names.__contains__) == ("w", ())
    assert split_name("w[0]", names.__contains__) == ("w[0]", ())
    assert split_name("w[1]", names.__contains__) == ("w", (1,))
    assert split_name("w[0][1]", names.__contains__) == ("w[0]", (1,))
    assert split_name("a[0][1:2]", names.__contains__) == ("a[0][1:2]", ())
    assert split_name("b[1]", names.__contains__) == ("b", (1,))
    assert split_name("b[x]", names.__contains__) == ("b[x]", ())
    assert split_name("[1]", names.__contains__) == ("[1]", ())
    assert split_name("b[0", names.__contains__) == ("b[0", ())
    for wrong in ("w[x]", "w[0:2", "w[[0,2]]", "w[0:2][1", "w[", "w[]"):
        with pytest.raises(UsageError) as caught:
            split_name(wrong, names.__contains__)
        assert caught.value.id == "bad-index"
