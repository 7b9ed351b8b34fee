"""Into which parts a variable is cut: TensorFlow's partitioners, and uneven row ranges.

Pure arithmetic on shapes. The same arguments give the same parts as in TensorFlow
(tensorflow/python/ops/partitioned_variables.py, variable_scope.py ``_iter_slices``;
tensorflow/python/distribute/sharded_variable.py for the ones of a parameter server), so
that a checkpoint cut here is one that such a training run would have written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckpttool.errors import UsageError
from ckpttool.model import shape_text

__all__ = [
    "BYTES_PER_STRING",
    "Part",
    "Partitioner",
    "even",
    "fixed",
    "max_size",
    "min_max",
    "ranges",
]

Shape = tuple[int, ...]

#: What TensorFlow's partitioners take a string element to weigh.
BYTES_PER_STRING = 16


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a variable: first index and length of every dimension."""

    start: Shape
    extent: Shape


#: ``(shape, bytes of an element)`` → the parts, in order; one part is the whole variable.
Partitioner = Callable[[Shape, int], list[Part]]


def even(shape: Shape, count: int, axis: int = 0) -> list[Part]:
    """``count`` parts along ``axis``, as equal as can be, the longer ones first."""
    length, longer = divmod(shape[axis], count)
    return _along(shape, axis, [length + (number < longer) for number in range(count)])


def fixed(shards: int, axis: int = 0) -> Partitioner:
    """As many parts as shards, but none without a row (``fixed_size_partitioner``).

    Also ``FixedShardsPartitioner`` of tf.distribute.
    """
    _positive("shards", shards)

    def partitioner(shape: Shape, itemsize: int) -> list[Part]:
        del itemsize
        return _counted(shape, axis, shards)

    return partitioner


def min_max(max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10) -> Partitioner:
    """At most ``max_partitions``, none under ``min_slice_size`` bytes.

    ``min_max_variable_partitioner``, and ``MinSizePartitioner`` of tf.distribute.
    """
    _positive("max_partitions", max_partitions)
    _positive("min_slice_size", min_slice_size)

    def partitioner(shape: Shape, itemsize: int) -> list[Part]:
        wanted = math.ceil(math.prod(shape) * itemsize / min_slice_size)
        return _counted(shape, axis, min(max_partitions, wanted))

    return partitioner


def max_size(max_shard_bytes: int, axis: int = 0, max_shards: int | None = None) -> Partitioner:
    """As many as it takes for none to pass ``max_shard_bytes`` (one row may).

    ``variable_axis_size_partitioner``, and ``MaxSizePartitioner`` of tf.distribute.
    """
    _positive("max_shard_bytes", max_shard_bytes)
    if max_shards is not None:
        _positive("max_shards", max_shards)

    def partitioner(shape: Shape, itemsize: int) -> list[Part]:
        if axis >= len(shape) or not math.prod(shape):
            return [_whole(shape)]
        rows = shape[axis]
        bytes_per_row = 1.0 * (math.prod(shape) / rows) * itemsize
        rows_per_shard = max(1, math.floor(max_shard_bytes / bytes_per_row))
        count = math.ceil(1.0 * rows / rows_per_shard)
        return _counted(shape, axis, min(max_shards, count) if max_shards else count)

    return partitioner


def ranges(lengths: Sequence[int], axis: int = 0) -> Partitioner:
    """Parts of exactly these lengths along ``axis``, which have to fill it.

    The partitioner raises:
        UsageError: id ``partition-lengths``: they do not add up to the dimension.
    """
    for length in lengths:
        _positive("the length of a part", length)

    def partitioner(shape: Shape, itemsize: int) -> list[Part]:
        del itemsize
        rows = shape[axis] if axis < len(shape) else 0
        if sum(lengths) != rows:
            raise UsageError(
                f"parts of {', '.join(map(str, lengths))} rows do not fill "
                f"shape {shape_text(shape)}",
                why=f"they are {sum(lengths)} rows, and axis {axis} has {rows}",
                hint="give lengths that add up to the dimension",
                id="partition-lengths",
            )
        return _along(shape, axis, lengths)

    return partitioner


def _whole(shape: Shape) -> Part:
    return Part((0,) * len(shape), shape)


def _counted(shape: Shape, axis: int, count: int) -> list[Part]:
    """Even parts, as many as asked for and as there are rows; a scalar stays whole."""
    if axis >= len(shape):
        return [_whole(shape)]
    count = max(1, min(shape[axis], count))
    return [_whole(shape)] if count == 1 else even(shape, count, axis)


def _along(shape: Shape, axis: int, lengths: Sequence[int]) -> list[Part]:
    parts = []
    first = 0
    for length in lengths:
        start = tuple(first if dim == axis else 0 for dim in range(len(shape)))
        extent = tuple(length if dim == axis else size for dim, size in enumerate(shape))
        parts.append(Part(start, extent))
        first += length
    return parts


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise UsageError(f"{name} is {value}", why="it has to be 1 or more", id="partition-number")
