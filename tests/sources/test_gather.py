"""Picking elements out of stored bytes: the right ones, with few and bounded reads."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.model import numel
from ckpttool.sources import gather
from ckpttool.sources.selection import Index, Selection, strides

ITEMSIZES = st.sampled_from(["u1", "u2", "f4", "f8", "c16"])


@st.composite
def indexed_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], Index]:
    """A shape and an index that fits it."""
    shape = draw(st.lists(st.integers(0, 6), max_size=4).map(tuple))
    bounds = st.none() | st.integers(-7, 7)
    steps = st.sampled_from([None, 1, 2, 3, -1, -2])
    index = []
    for size in shape:
        slices: st.SearchStrategy[int | slice] = st.builds(slice, bounds, bounds, steps)
        index.append(draw(st.integers(-size, size - 1) | slices if size else slices))
    return shape, tuple(index)


class Stored:
    """A stored array that counts what is read of it."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.array = np.arange(numel(shape)).astype(dtype).reshape(shape)
        self._data = self.array.tobytes()
        self.reads: list[int] = []

    def read(self, offset: int, size: int) -> bytes:
        assert 0 <= offset <= offset + size <= len(self._data)
        self.reads.append(size)
        return self._data[offset : offset + size]

    def take(self, index: Index) -> bytes:
        selection = Selection.of(self.array.shape, index)
        itemsize = self.array.itemsize
        taken = bytearray()
        for band in gather.bands(selection, max(1, gather.WINDOW_BYTES // itemsize)):
            result = bytearray(band.size * itemsize)
            places = strides(tuple(axis.length for axis in band.axes))
            gather.fill(self.read, band, itemsize, result, places)
            taken += result
        return bytes(taken)


@settings(deadline=None)
@given(
    indexed_shapes(), ITEMSIZES, st.sampled_from([1, 16, 64, 2**22]), st.sampled_from([0, 8, 64])
)
def test_takes_what_numpy_takes(
    case: tuple[tuple[int, ...], Index], dtype: str, window: int, gap: int
) -> None:
    shape, index = case
    stored = Stored(shape, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gather, "WINDOW_BYTES", window)
        patch.setattr(gather, "GAP_BYTES", gap)
        assert stored.take(index) == stored.array[index].tobytes()
    assert max(stored.reads, default=0) <= max(window, stored.array.itemsize)


def test_rows_are_one_read_of_just_their_bytes() -> None:
    stored = Stored((1000, 50), "f4")
    stored.take((slice(10, 20),))
    assert stored.reads == [10 * 50 * 4]


def test_a_narrow_column_is_read_in_windows() -> None:
    stored = Stored((30_000, 16), "f4")
    stored.take((slice(None), 3))
    assert len(stored.reads) == 1
    assert sum(stored.reads) <= stored.array.nbytes


def test_elements_far_apart_are_read_one_by_one() -> None:
    apart = 2 * gather.GAP_BYTES
    stored = Stored((20, apart), "u1")
    stored.take((slice(None), slice(5, 8)))
    assert stored.reads == [3] * 20


def test_no_piece_and_no_read_is_larger_than_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "WINDOW_BYTES", 4096)
    stored = Stored((100, 200), "f4")
    selection = Selection.whole((100, 200))
    assert [band.size for band in gather.bands(selection, 1024)] == [1000] * 20
    assert stored.take((slice(None, None, -1),)) == stored.array[::-1].tobytes()
    assert max(stored.reads) <= 4096


def test_reading_leaves_no_cycles_behind() -> None:
    """The command line runs without the garbage collector."""
    stored = Stored((3000, 16), "f4")
    gc.collect()
    gc.disable()
    try:
        for column in range(8):
            stored.take((slice(None), column))
        assert gc.collect() == 0
    finally:
        gc.enable()
