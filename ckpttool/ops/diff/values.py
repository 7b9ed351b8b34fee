"""Whether two variables hold the same values, and how far these are apart, in one pass.

Both sides are read from first to last in pieces, with the checksums that a source has: a
piece whose bytes are equal is done with, and only others are looked at as numbers. An equal
stored checksum proves nothing by itself and is never taken for equality; it tells damage
from difference, so that a flipped bit is an error and no result of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.formats.dtypes import BY_NAME
from ckpttool.model import Variable, numel
from ckpttool.ops.diff.facts import ValuesDiffer
from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    from ckpttool.sources.base import Source

__all__ = ["Operand", "Tolerance", "comparable", "compare", "digest", "equal"]


class Operand(NamedTuple):
    """A variable and the source that has it."""

    source: Source
    variable: Variable

    @property
    def selection(self) -> Selection:
        """All of it; a shape that is not known is read as a scalar's, and refused there."""
        return Selection.whole(self.variable.shape or ())

    def chunks(self) -> Iterator[bytes]:
        """Its elements, checked."""
        return self.source.chunks(self.variable, self.selection, check=True)

    def strings(self) -> list[bytes]:
        """Its strings, checked."""
        return self.source.strings(self.variable, self.selection, check=True)


class Tolerance(NamedTuple):
    """Elements differ where ``|a - b| > atol + rtol * max(|a|, |b|)``; 0: bit by bit."""

    rtol: float = 0.0
    atol: float = 0.0


def comparable(a: Variable, b: Variable) -> bool:
    """Whether two variables have elements of which each has its counterpart.

    Dtypes may differ: numbers are then compared as numbers.
    """
    return a.shape == b.shape and (a.dtype == b.dtype or bool(_size(a) and _size(b)))


def compare(
    name: str, a: Operand, b: Operand, tolerance: Tolerance, progress: Callable[[int], None]
) -> ValuesDiffer | None:
    """How the values of two comparable variables differ; None where they do not.

    Args:
        name: what the variable is called in the answer.
        a: the variable of one side.
        b: that of the other.
        tolerance: how far apart elements may be.
        progress: told of bytes read.

    Raises:
        CkpttoolError: as ``Source.chunks``.
    """
    kind, elements = a.variable.kind, numel(a.variable.shape or ())
    if a.variable.dtype == b.variable.dtype == "string":
        differing = sum(map(bytes.__ne__, a.strings(), b.strings()))
        progress(a.variable.nbytes + b.variable.nbytes)
        return (
            ValuesDiffer(name, kind, elements, differing, None, None, None) if differing else None
        )
    figures = None
    same_dtype = a.variable.dtype == b.variable.dtype
    for left, right in _aligned(a, b):
        progress(len(left) + len(right))
        if same_dtype and left == right:
            continue
        if figures is None:
            from ckpttool.ops.diff.figures import Figures

            figures = Figures(
                a.variable.dtype, b.variable.dtype, rtol=tolerance.rtol, atol=tolerance.atol
            )
        figures.add(left, right)
    if figures is None or not figures.differing:
        return None
    return ValuesDiffer(
        name,
        kind,
        elements,
        figures.differing,
        figures.max_abs if figures.met else None,
        figures.max_rel if figures.met else None,
        figures.rms(elements) if figures.met else None,
        figures.nan_a,
        figures.nan_b,
        figures.nan_both,
        figures.infinite,
    )


def equal(a: Operand, b: Operand) -> bool:
    """Whether two variables of one dtype and shape are equal to the byte; raises as `compare`."""
    if a.variable.dtype == "string":
        return a.strings() == b.strings()
    return all(left == right for left, right in _aligned(a, b))


def digest(operand: Operand) -> bytes:
    """A cryptographic digest of the elements; raises as `compare`."""
    from hashlib import blake2b

    found = blake2b(digest_size=20)
    if operand.variable.dtype == "string":
        for value in operand.strings():
            found.update(b"%d:" % len(value))
            found.update(value)
    else:
        for piece in operand.chunks():
            found.update(piece)
    return found.digest()


def _size(variable: Variable) -> int:
    dtype = BY_NAME.get(variable.dtype)
    return dtype.size if dtype else 0


def _aligned(a: Operand, b: Operand) -> Iterator[tuple[bytes, bytes]]:
    """Pieces of both sides that hold the same elements."""
    left_size, right_size = _size(a.variable) or 1, _size(b.variable) or 1
    lefts, rights = a.chunks(), b.chunks()
    left = right = b""
    while True:
        left = left or next(lefts, b"")
        right = right or next(rights, b"")
        count = min(len(left) // left_size, len(right) // right_size)
        if not count:  # both have ended: their shapes are the same, and sources keep to them
            return
        cut_left, cut_right = count * left_size, count * right_size
        # A slice of all of a bytes object is that object: pieces of one size are not copied.
        yield left[:cut_left], right[:cut_right]
        left, right = left[cut_left:], right[cut_right:]
