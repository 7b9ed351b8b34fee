"""How variables are cut, against TensorFlow's partitioners; where the pieces go."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import UsageError
from ckpttool.policy import partition
from ckpttool.policy.partition import Part
from ckpttool.policy.placement import Piece, balanced, bounded, by_hash, by_rule, in_turn


@pytest.fixture(scope="module", autouse=True)
def tensorflow_is_imported():
    """Its seconds are not to count as the time of the first example."""
    pytest.importorskip("tensorflow")


shapes = st.lists(st.integers(1, 50), min_size=1, max_size=4).map(tuple)
dtypes = st.sampled_from(["float32", "float64", "int8", "bfloat16", "string"])


def tensorflow_parts(partitioner, shape, dtype, axis):
    """What TensorFlow cuts: its partitioner's counts, made slices by its own code."""
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.ops.variable_scope import _iter_slices

    counts = partitioner(shape=tf.TensorShape(shape), dtype=tf.as_dtype(dtype))
    return [
        Part(tuple(start), tuple(extent))
        for start, extent in _iter_slices(list(shape), counts[axis], axis)
    ]


def item_size(dtype):
    tf = pytest.importorskip("tensorflow")
    return partition.BYTES_PER_STRING if dtype == "string" else tf.as_dtype(dtype).size


@given(shapes, dtypes, st.integers(1, 40), st.integers(1, 5000), st.data())
def test_min_max_cuts_as_tensorflow_does(shape, dtype, most, least, data):
    tf = pytest.importorskip("tensorflow")
    axis = data.draw(st.integers(0, len(shape) - 1))
    theirs = tf.compat.v1.min_max_variable_partitioner(most, axis, least)
    ours = partition.min_max(most, axis, least)
    assert ours(shape, item_size(dtype)) == tensorflow_parts(theirs, shape, dtype, axis)


@given(shapes, dtypes, st.integers(1, 5000), st.none() | st.integers(1, 9), st.data())
def test_max_size_cuts_as_tensorflow_does(shape, dtype, most, shards, data):
    tf = pytest.importorskip("tensorflow")
    axis = data.draw(st.integers(0, len(shape) - 1))
    theirs = tf.compat.v1.variable_axis_size_partitioner(most, axis, max_shards=shards)
    ours = partition.max_size(most, axis, shards)
    assert ours(shape, item_size(dtype)) == tensorflow_parts(theirs, shape, dtype, axis)


@given(shapes, st.integers(1, 60), st.data())
def test_fixed_cuts_as_tensorflow_does(shape, shards, data):
    tf = pytest.importorskip("tensorflow")
    axis = data.draw(st.integers(0, len(shape) - 1))
    theirs = tf.compat.v1.fixed_size_partitioner(shards, axis)
    assert partition.fixed(shards, axis)(shape, 4) == tensorflow_parts(
        theirs, shape, "float32", axis
    )


@given(shapes, dtypes, st.integers(1, 9), st.integers(1, 5000))
def test_the_partitioners_of_parameter_servers(shape, dtype, shards, nbytes):
    tf = pytest.importorskip("tensorflow")
    experimental = tf.distribute.experimental.partitioners
    size = item_size(dtype)
    for theirs, ours in (
        (experimental.FixedShardsPartitioner(shards), partition.fixed(shards)),
        (
            experimental.MinSizePartitioner(nbytes, shards),
            partition.min_max(shards, min_slice_size=nbytes),
        ),
        (
            experimental.MaxSizePartitioner(nbytes, shards),
            partition.max_size(nbytes, max_shards=shards),
        ),
    ):
        assert ours(shape, size) == tensorflow_parts(theirs, shape, dtype, 0)


@pytest.mark.parametrize(
    "partitioner",
    [partition.fixed(4), partition.min_max(4, min_slice_size=1), partition.max_size(1)],
)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 5)])
def test_what_cannot_be_cut_stays_whole(partitioner, shape):
    assert partitioner(shape, 4) == [Part((0,) * len(shape), shape)]


def test_uneven_ranges():
    assert partition.ranges([1, 4], axis=1)((2, 5), 4) == [
        Part((0, 0), (2, 1)),
        Part((0, 1), (2, 4)),
    ]
    with pytest.raises(UsageError, match="do not fill") as caught:
        partition.ranges([1, 3])((5, 2), 4)
    assert "4 rows, and axis 0 has 5" in caught.value.why


@pytest.mark.parametrize(
    "make",
    [
        lambda: partition.fixed(0),
        lambda: partition.min_max(0),
        lambda: partition.min_max(1, min_slice_size=0),
        lambda: partition.max_size(0),
        lambda: partition.max_size(1, max_shards=0),
        lambda: partition.ranges([3, 0]),
        lambda: balanced([], 0),
        lambda: bounded([], 0),
    ],
)
def test_numbers_that_make_no_sense(make):
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.id == "partition-number"


sizes = st.lists(st.integers(0, 1000), max_size=40)


def pieces_of(sizes):
    return [Piece(f"v{number}", nbytes) for number, nbytes in enumerate(sizes)]


@given(sizes, st.integers(1, 8))
def test_balanced_places_each_piece_once_and_no_shard_is_one_late_piece_too_full(sizes, shards):
    pieces = pieces_of(sizes)
    placed = balanced(pieces, shards)
    assert len(placed) == len(pieces)
    load = [0] * shards
    for piece, one in zip(pieces, placed, strict=True):
        load[one.shard] += piece.nbytes
    # A lower bound of the best: the mean, the largest, and two of the shards + 1 largest.
    largest = sorted(sizes, reverse=True)
    best = max([Fraction(sum(sizes), shards), *largest[:1]])
    extra = largest[shards] if len(sizes) > shards else 0
    assert max(load) <= best + extra
    assert balanced(list(reversed(pieces)), shards) == list(reversed(placed))


@given(sizes, st.integers(1, 1500))
def test_bounded_fills_shards_in_order(sizes, most):
    placed = bounded(pieces_of(sizes), most)
    shards = [one.shard for one in placed]
    assert shards == sorted(shards)
    assert set(shards) == set(range(max(shards, default=-1) + 1))
    for shard in set(shards):
        held = [size for size, one in zip(sizes, placed, strict=True) if one.shard == shard]
        assert sum(held) <= most or [n for n in held if n] == [sum(held)]
    assert len(set(shards)) <= 2 * math.ceil(sum(sizes) / most) + 1


def test_an_oversize_piece_says_so():
    placed = bounded([Piece("a", 1), Piece("b", 100), Piece("c", 1)], 10)
    assert [one.shard for one in placed] == [0, 1, 2]
    assert "over 10" in placed[1].reason


def test_by_hash_goes_by_the_name_and_keeps_parts_together():
    pieces = [Piece("emb", 4, part) for part in range(5)] + [Piece("w", 8)]
    placed = by_hash(pieces, 3)
    assert len({one.shard for one in placed[:5]}) == 1
    assert placed[5].shard == zlib.crc32(b"w") % 3


def test_row_ranges_go_in_turn_and_the_rest_where_room_is():
    pieces = [Piece("emb", 4, part) for part in range(4)] + [Piece("w", 8), Piece("b", 1)]
    placed = in_turn(pieces, 3)
    assert [one.shard for one in placed[:4]] == [0, 1, 2, 0]
    assert [one.shard for one in placed[4:]] == [1, 2]


def test_a_rule_has_to_place_everything():
    pieces = [Piece("a", 1), Piece("b", 1), Piece("c", 1)]
    rules = {"a": (1, "said so"), "b": (7, "said so")}
    with pytest.raises(UsageError, match="2 variables") as caught:
        by_rule(pieces, 2, lambda piece: rules.get(piece.name))
    assert caught.value.why == "b (shard 7 of 2), c (no rule)"
    with pytest.raises(UsageError, match=r"^1 variable has no shard"):
        by_rule(pieces[:2], 2, lambda piece: rules.get(piece.name))
    assert [one.shard for one in by_rule(pieces[:1], 2, lambda _: (1, "said so"))] == [1]
