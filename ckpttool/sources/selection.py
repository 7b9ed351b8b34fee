"""NumPy basic indexing as data: which elements of a variable are wanted.

``emb[0:10, :]`` becomes a name and an index; an index meets a shape and becomes a
`Selection`, which knows the shape of its result and where its elements lie in C order.
Pure arithmetic in elements: no bytes, no files, no numpy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import NamedTuple, NoReturn

from ckpttool.errors import UsageError
from ckpttool.model import numel, shape_text

__all__ = [
    "Axis",
    "Index",
    "Loop",
    "Selection",
    "index_text",
    "parse_brackets",
    "parse_index",
    "split_name",
    "strides",
]

#: What stands between the brackets: integers, slices, at most one ellipsis.
Index = tuple[int | slice | EllipsisType, ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_HINT = "write integers, start:stop:step and one ..., for example 'emb[0:10, :]' or 'w[..., -1]'"


class Axis(NamedTuple):
    """The positions wanted along one dimension: ``start + i * step`` for i < ``length``."""

    start: int
    step: int
    length: int
    #: Chosen by a plain integer, so the result does not have this dimension.
    dropped: bool = False


class Loop(NamedTuple):
    """``length`` repetitions, ``stride`` elements apart (negative: backwards)."""

    length: int
    stride: int


class Selection(NamedTuple):
    """An index that has met a shape: one `Axis` a dimension, all inside the shape."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Selection:
        """Every element."""
        return cls(shape, tuple(Axis(0, 1, size) for size in shape))

    @classmethod
    def of(cls, shape: tuple[int, ...], index: Index = (), what: str = "") -> Selection:
        """Meet ``index`` with ``shape`` as ``array[index]`` would.

        Args:
            shape: the variable's.
            index: integers, slices and at most one ellipsis.
            what: the variable's name, for messages.

        Raises:
            UsageError: too many indices, two ellipses, a zero step, out of range.
        """
        axes: list[Axis] = []
        items = _expand(index, shape, what)
        for dimension, (size, item) in enumerate(zip(shape, items, strict=True)):
            if isinstance(item, slice):
                if item.step == 0:
                    _refuse(what, "a slice step cannot be zero")
                start, stop, step = item.indices(size)
                axes.append(Axis(start, step, len(range(start, stop, step))))
            else:
                if not -size <= item < size:
                    _refuse(
                        what,
                        f"index {item} is out of bounds for axis {dimension} with size {size}",
                        f"its shape is {shape_text(shape)}",
                    )
                axes.append(Axis(item % size, 1, 1, True))
        return cls(shape, tuple(axes))

    @property
    def result_shape(self) -> tuple[int, ...]:
        """The shape of ``array[index]``."""
        return tuple(axis.length for axis in self.axes if not axis.dropped)

    @property
    def size(self) -> int:
        """Number of elements selected."""
        return numel(tuple(axis.length for axis in self.axes))

    @property
    def is_whole(self) -> bool:
        """Whether it is every element in its own order (dropped axes of size 1 too)."""
        return all(
            axis.length == size and (axis.step == 1 or size <= 1)
            for axis, size in zip(self.axes, self.shape, strict=True)
        )

    @property
    def first(self) -> int:
        """Offset in elements of the first selected element (0 when there is none)."""
        if not self.size:
            return 0
        by_axis = zip(self.axes, strides(self.shape), strict=True)
        return sum(axis.start * stride for axis, stride in by_axis)

    def loops(self) -> list[Loop]:
        """The elements as nested loops, outermost first, with as few loops as possible.

        A contiguous stretch is an innermost loop of stride 1. No loop has length 1; a
        single element has no loop; the selection must not be empty.
        """
        result: list[Loop] = []  # innermost first while it is built
        by_axis = zip(self.axes, strides(self.shape), strict=True)
        for axis, stride in reversed(list(by_axis)):
            if axis.length == 1:
                continue
            loop = Loop(axis.length, axis.step * stride)
            if result and loop.stride == result[-1].length * result[-1].stride:
                loop = Loop(loop.length * result[-1].length, result.pop().stride)
            result.append(loop)
        return result[::-1]

    def runs(self) -> Iterator[tuple[int, int]]:
        """``(offset, count)`` of each contiguous stretch, in the order of the result.

        Neighbouring stretches are merged, so the whole variable is one run.
        """
        if not self.size:
            return
        loops = self.loops()
        length = loops.pop().length if loops and loops[-1].stride == 1 else 1
        offset, pending = self.first, 0
        for start in _walk(self.first, loops):
            if start == offset + pending:
                pending += length
            else:
                yield offset, pending
                offset, pending = start, length
        yield offset, pending


def strides(shape: tuple[int, ...]) -> list[int]:
    """How many elements apart neighbours lie along each dimension, in C order."""
    result: list[int] = []
    step = 1
    for size in reversed(shape):
        result.append(step)
        step *= size
    return result[::-1]


def _walk(base: int, loops: list[Loop]) -> Iterator[int]:
    """The offset of every repetition of nested loops, outermost slowest."""
    if not loops:
        yield base
        return
    *outer, inner = loops
    for start in _walk(base, outer):
        yield from range(start, start + inner.length * inner.stride, inner.stride)


def _expand(index: Index, shape: tuple[int, ...], what: str) -> list[int | slice]:
    """The index with its ellipsis (or its missing end) spelled out: one item a dimension."""
    given = sum(item is not Ellipsis for item in index)
    if len(index) - given > 1:
        _refuse(what, "an index can only have a single ellipsis ('...')")
    if given > len(shape):
        why = f"too many indices: it is {len(shape)}-dimensional, but {given} were indexed"
        _refuse(what, why, f"its shape is {shape_text(shape)}")
    missing: list[int | slice] = [slice(None)] * (len(shape) - given)
    full: list[int | slice] = []
    for item in index:
        if isinstance(item, EllipsisType):
            full.extend(missing)
            missing = []
        else:
            full.append(item)
    return full + missing


def _refuse(what: str, why: str, hint: str = _HINT) -> NoReturn:
    subject = f"the index of '{what}'" if what else "the index"
    raise UsageError(f"{subject} does not fit", why=why, hint=hint, id="bad-index")


def parse_index(text: str) -> Index:
    """What stands between the brackets, for example ``"0:10, :"``.

    Raises:
        UsageError: id ``bad-index``: empty, or anything but integers, slices and ``...``.
    """
    items: list[int | slice | EllipsisType] = []
    parts = text.split(",")
    if len(parts) > 1 and not parts[-1].strip():
        parts.pop()  # a trailing comma, as Python allows
    for part in parts:
        word = part.strip()
        if word == "...":
            items.append(Ellipsis)
        elif ":" in word:
            bounds = word.split(":")
            if len(bounds) > 3:
                _refuse(f"[{text}]", f"{word!r} has more than two colons")
            limits = [_integer(bound, text) if bound.strip() else None for bound in bounds]
            items.append(slice(*limits))
        else:
            items.append(_integer(word, text))
    return tuple(items)


def _integer(word: str, text: str) -> int:
    word = word.strip()
    if _INTEGER.fullmatch(word):
        return int(word)
    if word in {"None", "newaxis", "np.newaxis"}:
        why = "a new axis (None) adds no element, so it is not supported"
    elif word[0:1] == "[" or word[-1:] == "]":
        why = "a list of positions is not supported"
    elif not word:
        why = "there is nothing between the brackets or commas"
    else:
        why = f"{word!r} is neither an integer nor a slice"
    _refuse(f"[{text}]", why)


def split_name(text: str, exists: Callable[[str], bool]) -> tuple[str, Index]:
    """Split ``emb[0:10,:]`` into its name and its index (empty: everything).

    A name that literally exists wins over any meaning of its brackets.

    Args:
        text: what the user typed.
        exists: whether the source has a variable of that name.

    Returns:
        The name and the index. Where neither reading exists, what to report as missing:
        the text before its last bracket when an index follows it, else the whole text.

    Raises:
        UsageError: id ``bad-index``: the name exists, what follows it is no index.
    """
    if "[" not in text[1:] or exists(text):
        return text, ()
    # The last bracket; the first too, for what stands between them may be wrong.
    last, first = text.rfind("[", 1), text.find("[", 1)
    for at in dict.fromkeys((last, first)):
        if exists(text[:at]):
            return text[:at], parse_brackets(text[at:])
    try:
        return text[:last], parse_brackets(text[last:])
    except UsageError:
        return text, ()


def parse_brackets(text: str) -> Index:
    """As `parse_index`, of an index with its brackets, the closing one of which may be lost."""
    if not text.endswith("]"):
        _refuse(text, "it has no closing bracket")
    return parse_index(text[1:-1])


def index_text(index: Index) -> str:
    """An index as it is typed, with its brackets; empty for everything."""
    if not index:
        return ""
    words = []
    for item in index:
        if isinstance(item, slice):
            start, stop, step = (
                "" if bound is None else str(bound) for bound in (item.start, item.stop, item.step)
            )
            words.append(f"{start}:{stop}" + (f":{step}" if step else ""))
        else:
            words.append("..." if isinstance(item, EllipsisType) else str(item))
    return f"[{', '.join(words)}]"
