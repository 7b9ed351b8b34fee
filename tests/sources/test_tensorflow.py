"""Random checkpoints that TensorFlow writes, read back: names, shapes, dtypes, every value.

Some of them TensorFlow itself cannot put together again: slices of float16, unsigned and
string variables. There the arrays that were written are the measure.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpttool.model import Variable
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from tests.support.tf_write import write_name_based, write_sharded, write_slices

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "float8_e5m2",
    "float8_e4m3fn",
    "int4",
    "uint4",
    "string",
]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
WORDS = st.binary(max_size=200)


def array_of(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """Random elements of a dtype, NaNs and extremes among them."""
    import ml_dtypes

    random = np.random.default_rng(seed)
    if dtype == "string":
        count = int(np.prod(shape))
        flat = np.empty(count, object)
        flat[:] = [random.bytes(int(random.integers(0, 300))) for _ in range(count)]
        return flat.reshape(shape)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    element = np.dtype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
    if "int4" in dtype:
        return random.integers(0, 7, shape).astype(element)
    raw = random.integers(0, 256, (*shape, element.itemsize), np.uint8)
    return np.ascontiguousarray(raw).view(element).reshape(shape)


def whole(source: Source, variable: Variable) -> np.ndarray:
    assert variable.shape is not None
    return source.read(variable, Selection.whole(variable.shape))


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    if ours.dtype == object:
        return bool((ours == theirs).all())
    return ours.tobytes() == theirs.tobytes()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    variables=st.lists(
        st.tuples(NAMES, st.sampled_from(DTYPES), SHAPES),
        min_size=1,
        max_size=8,
        unique_by=lambda item: item[0],
    ),
    shards=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_tensorflow_writes_is_read_back(
    tmp_path: Path, variables: list[tuple[str, str, tuple[int, ...]]], shards: int, seed: int
) -> None:
    pytest.importorskip("tensorflow")
    arrays = {
        name: array_of(dtype, shape, seed + number)
        for number, (name, dtype, shape) in enumerate(variables)
    }
    prefix = tmp_path / f"random-{len(list(tmp_path.iterdir()))}"
    parts = [dict(list(arrays.items())[at::shards]) for at in range(shards)]
    parts = [part for part in parts if part]
    if len(parts) == 1:
        write_name_based(prefix, parts[0])
    else:
        write_sharded(prefix, parts)
    with open_source(str(prefix)) as source:
        found = list(source.variables())
        assert [variable.key for variable in found] == sorted(arrays, key=str.encode)
        for variable in found:
            expected = arrays[variable.key]
            dtype = next(item[1] for item in variables if item[0] == variable.key)
            assert (variable.dtype, variable.shape) == (dtype, expected.shape)
            assert same_bits(whole(source, variable), expected)
        assert all(shard.present for shard in source.shards())


@st.composite
def cuts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """A shape, and the starts and extents of slices that cover it as a grid."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
    boxes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for size in shape:
        inner = draw(st.sets(st.integers(1, size - 1), max_size=2)) if size > 1 else set()
        marks = [0, *sorted(inner), size]
        boxes = [
            ((*start, low), (*extent, high - low))
            for start, extent in boxes
            for low, high in pairwise(marks)
        ]
    return shape, draw(st.permutations(boxes))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=cuts(), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 2**32 - 1))
def test_slices_that_tensorflow_writes_are_put_together(
    tmp_path: Path, cut: Any, dtype: str, seed: int
) -> None:
    pytest.importorskip("tensorflow")
    shape, boxes = cut
    array = array_of(dtype, shape, seed)
    prefix = tmp_path / f"sliced-{len(list(tmp_path.iterdir()))}"
    parts = [
        (start, extent, array[tuple(slice(a, a + n) for a, n in zip(start, extent, strict=True))])
        for start, extent in boxes
    ]
    write_slices(prefix, "v", shape, parts, {"other": np.float32(1)})
    with open_source(str(prefix)) as source:
        found = list(source.variables())
        assert [variable.key for variable in found] == ["other", "v"]
        v = found[1]
        assert (v.dtype, v.shape) == (dtype, shape)
        assert (v.slices is None) == (len(boxes) == 1), "one slice of everything is stored whole"
        assert same_bits(whole(source, v), array)
        flipped = Selection.of(shape, (slice(None, None, -1),) * len(shape))
        assert same_bits(
            np.ascontiguousarray(source.read(v, flipped)),
            np.ascontiguousarray(array[(slice(None, None, -1),) * len(shape)]),
        )
