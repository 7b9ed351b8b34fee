"""A variable's bytes in another layout: which stored ranges make up which new part.

One question serves cutting, merging and cutting anew: given the parts that are stored and
a box of the variable, where do the box's bytes come from? Often they lie in one range, or
are whole entries one after the other, and then nothing needs to pass through here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import CorruptError, IncompleteError, UnsupportedError
from ckpttool.formats.dtypes import BY_NUMBER, dtype_name
from ckpttool.model import numel
from ckpttool.ops.rewrite.part_sums import check_whole
from ckpttool.ops.rewrite.tensors import Computed, Content, Joined, Stored, Tensor, for_threads
from ckpttool.sources.assemble import Box, check_boxes, pieces, require_cover
from ckpttool.sources.selection import Axis, Selection

__all__ = ["StoredPart", "Variable", "content_of"]


class StoredPart(NamedTuple):
    """A box of a variable and the entry that holds it."""

    box: Box
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable as it is stored, in one part or several.

    ``is_literal`` says that its parts are variables of their own: ``X/part_0`` and so on.
    """

    key: bytes
    dtype: int
    shape: tuple[int, ...]
    parts: tuple[StoredPart, ...]
    is_literal: bool = False

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.decode("utf-8", "surrogateescape")

    @property
    def is_whole(self) -> bool:
        """Whether it is stored as one variable; a slice that covers all of it is not that."""
        return len(self.parts) == 1 and self.parts[0].tensor.key == self.key

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 0 for types without a fixed size."""
        known = BY_NUMBER.get(self.dtype)
        return known.size if known else 0

    def check(self) -> None:
        """Check that the parts share nothing and leave nothing out, and are what they should.

        Raises:
            CorruptError: ids ``slice-shape``, ``slice-overlap``, ``slice-mismatch``.
            IncompleteError: ids ``slice-gap``, ``slice-missing``.
        """
        if not self.parts:
            raise IncompleteError(
                f"the values of {self.name} are nowhere",
                why="the index has no entry with bytes for any of its slices",
                hint="ckpttool verify shows what is lost; leave it out with a narrower pattern",
                id="slice-missing",
            )
        for box, tensor in self.parts:
            if (tensor.dtype, tensor.shape) != (self.dtype, box.extent):
                raise CorruptError(
                    f"a slice of {self.name} does not fit it",
                    why=f"it is {dtype_name(tensor.dtype)} {list(tensor.shape or ())}, and should "
                    f"be {dtype_name(self.dtype)} {list(box.extent)}",
                    hint="ckpttool verify shows all that is wrong; leave it out with a narrower "
                    "pattern",
                    id="slice-mismatch",
                )
        boxes = [part.box for part in self.parts]
        check_boxes(self.name, self.shape, boxes)
        require_cover(self.name, Selection.whole(self.shape), boxes)


def content_of(variable: Variable, box: Box) -> Content:
    """Where the bytes of a box of the variable come from.

    Raises:
        UnsupportedError: id ``dtype-unsupported``: elements without a fixed size, and the
            box is not one that is stored.
    """
    for part in variable.parts:
        if part.box == box:
            return part.tensor.content
    if not variable.itemsize:
        raise UnsupportedError(
            f"{variable.name} cannot be cut or joined",
            why=f"elements of {dtype_name(variable.dtype)} have no fixed size",
            hint="leave it out: it is kept as it is stored",
            id="dtype-unsupported",
        )
    touching = [part for part in variable.parts if _meet(part.box, box)]
    if len(touching) == 1 and _inside(touching[0].box, box):
        skip = _range_in(touching[0].box, box)
        stored = touching[0].tensor.content
        if skip is not None and isinstance(stored, Stored):
            size = variable.itemsize
            return stored.part(skip * size, numel(box.extent) * size)
    joined = _joined(touching, box)
    if joined is not None:
        return joined
    return _assembled(variable, box)


def _range_in(outer: Box, inner: Box) -> int | None:
    """The first element of ``inner`` in ``outer`` where it is one range of it, else None."""
    starts = (own - first for own, first in zip(inner.start, outer.start, strict=True))
    within = _selection(outer.extent, tuple(starts), inner.extent)
    loops = within.loops()
    if loops and (len(loops) > 1 or loops[0].stride != 1):
        return None
    return within.first


def _selection(
    shape: tuple[int, ...], start: tuple[int, ...], extent: tuple[int, ...]
) -> Selection:
    axes = (Axis(first, 1, length) for first, length in zip(start, extent, strict=True))
    return Selection(shape, tuple(axes))


def _joined(parts: Sequence[StoredPart], box: Box) -> Joined | None:
    """Whole entries that fill the box one after the other, along its first long axis."""
    axis = next((n for n, size in enumerate(box.extent) if size != 1), len(box.extent))
    if axis == len(box.extent) or not parts:
        return None
    ordered = sorted(parts, key=lambda part: part.box.start[axis])
    following = box.start[axis]
    contents = []
    for part in ordered:
        start, extent, content = part.box.start, part.box.extent, part.tensor.content
        same = all(
            start[n] == box.start[n] and extent[n] == box.extent[n]
            for n in range(len(extent))
            if n != axis
        )
        if not same or start[axis] != following or not isinstance(content, Stored):
            return None
        following += extent[axis]
        contents.append(content)
    if following != box.start[axis] + box.extent[axis]:
        return None
    return Joined(tuple(contents), sum(content.nbytes for content in contents))


def _assembled(variable: Variable, box: Box) -> Computed:
    """Elements picked out of several parts while they are written."""
    selection = _selection(variable.shape, box.start, box.extent)
    parts = [part for part in variable.parts if _meet(part.box, box)]
    boxes = [part.box for part in parts]

    def read(number: int, offset: int, size: int) -> bytes:
        content = parts[number].tensor.content
        if isinstance(content, Computed) and content.read is not None:
            return content.read(offset, size)
        assert isinstance(content, Stored), "only such parts are put together"
        return content.files.read(content.shard, content.offset + offset, size, variable.name)

    def chunks() -> Iterator[bytes]:
        for part in parts:
            content = part.tensor.content
            if isinstance(content, Stored):
                check_whole(content, part.tensor)
        yield from pieces(selection, variable.itemsize, boxes, read)

    return Computed(
        chunks,
        numel(box.extent) * variable.itemsize,
        for_threads=all(for_threads(part.tensor.content) for part in parts),
    )


def _inside(outer: Box, inner: Box) -> bool:
    sides = zip(outer.start, outer.extent, inner.start, inner.extent, strict=True)
    return all(a <= b and b + m <= a + n for a, n, b, m in sides)


def _meet(one: Box, other: Box) -> bool:
    """Whether two boxes share an element; an empty one meets what has its place."""
    sides = zip(one.start, one.extent, other.start, other.extent, strict=True)
    return all(a < b + n and b < a + m for a, m, b, n in sides)
