"""The words every layer shares: variable, slice, shard, finding.

Plain frozen data without behaviour that reads files; knows no third party. Named tuples
because a listing makes a million of them, and because a frozen dataclass costs ten times
as much to make, and the class itself 0.7 ms of every start; use them by their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

__all__ = [
    "KINDS",
    "Finding",
    "Kind",
    "Oddity",
    "Severity",
    "Shard",
    "Variable",
    "VariableSlice",
    "numel",
    "shape_text",
]

Kind = Literal["model", "optimizer", "ema", "step", "object_graph", "other"]
KINDS: tuple[Kind, ...] = ("model", "optimizer", "ema", "step", "object_graph", "other")

Severity = Literal["error", "warning", "note"]


class Oddity(str):
    """A note on how an address was understood that deserves to be a warning.

    The notes that are plain text say what was done as usual, and may be left out.
    """

    __slots__ = ()


def numel(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape; 1 for a scalar."""
    count = 1
    for size in shape:
        count *= size
    return count


def shape_text(shape: Iterable[int] | None) -> str:
    """A shape as it is printed everywhere: ``[784,16]``, ``[]`` for a scalar, or ``unknown``.

    Without spaces, so that it stays one field for ``awk`` and ``cut``.
    """
    return "unknown" if shape is None else f"[{','.join(map(str, shape))}]"


class VariableSlice(NamedTuple):
    """A stored part of a partitioned variable.

    ``start`` and ``extent`` have one number a dimension (an extent of the whole
    dimension is spelled out). ``offset`` and ``nbytes`` say where its bytes lie in
    shard ``shard``; all three are None where the index has no entry for the slice.
    """

    start: tuple[int, ...]
    extent: tuple[int, ...]
    shard: int | None
    offset: int | None
    nbytes: int | None
    crc32c: int | None = None


class Variable(NamedTuple):
    """One variable of a source.

    Attributes:
        name: the readable name (the key's own, or from the object graph).
        key: the literal key in the file; bytes that are not UTF-8 are kept as
            surrogate escapes, so ``key.encode("utf-8", "surrogateescape")`` is exact.
        dtype: TensorFlow's word (``float32``, ``string``; an unknown number n is ``dtype_n``).
        shape: None where the rank is unknown.
        nbytes: bytes as stored, over all slices.
        shard: the shard that holds it; None when it lies in several, or in none.
        offset: where its bytes start in that shard; None when it is partitioned.
        kind: what it is for.
        slices: its stored parts when it is partitioned, else None.
        crc32c: the stored (masked) checksum; None when it is partitioned.
    """

    name: str
    key: str
    dtype: str
    shape: tuple[int, ...] | None
    nbytes: int
    shard: int | None
    offset: int | None
    kind: Kind
    slices: tuple[VariableSlice, ...] | None = None
    crc32c: int | None = None

    @property
    def parameters(self) -> int:
        """Number of elements; 0 where the rank is unknown."""
        return 0 if self.shape is None else numel(self.shape)


class Shard(NamedTuple):
    """A data file: bytes on disk (None when absent) and bytes that the index needs."""

    path: str
    nbytes: int | None
    expected: int
    present: bool


class Finding(NamedTuple):
    """Something wrong or odd, with the object it concerns and a stable id."""

    id: str
    severity: Severity
    object: str
    message: str
