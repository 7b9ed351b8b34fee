"""What a graph or a model asks a checkpoint for, compared with what that has. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.model import Kind, Variable, shape_text
from ckpttool.ops.diff.facts import Differs, Level, Only

if TYPE_CHECKING:
    from ckpttool.formats.tensor_shape import PartialShape
    from ckpttool.ops.wanted import Wanted

__all__ = ["Question", "Unanswered", "unanswered"]


class Question(NamedTuple):
    """A variable that is asked for, and what the checkpoint has for it.

    Attributes:
        name: under which it is asked for.
        kind: what it is for.
        dtype: TensorFlow's word; empty where that is not known.
        shape: None, or with -1 in it, where that is not known.
        found: the variable of the checkpoint; None: it has none.
    """

    name: str
    kind: Kind
    dtype: str
    shape: PartialShape
    found: Variable | None


@dataclass(slots=True)
class Unanswered:
    """What is in the way of a restore, and the ``keys`` of the checkpoint that it takes."""

    missing: list[Only] = field(default_factory=list)
    dtype: list[Differs] = field(default_factory=list)
    shape: list[Differs] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


def unanswered(questions: Iterable[Question], want: Wanted, level: Level) -> Unanswered:
    """Everything that is missing or different, of the variables that are wanted."""
    result = Unanswered()
    for name, kind, dtype, shape, found in questions:
        if found is not None:
            result.keys.add(found.key)
        if not want(name, kind):
            continue
        if found is None:
            known = None if shape is None or -1 in shape else shape
            result.missing.append(Only(name, kind, dtype, known))
            continue
        if level == "keys":
            continue
        if found.dtype != dtype and dtype:
            result.dtype.append(Differs(name, kind, found.dtype, dtype))
        if not _fits(found.shape, shape):
            words = shape_text(found.shape), shape_text(shape)
            result.shape.append(Differs(name, kind, *words))
    return result


def _fits(stored: tuple[int, ...] | None, expected: PartialShape) -> bool:
    """Whether a shape is one that is meant, whose sizes may be open (-1)."""
    if expected is None or stored is None:
        return True
    return len(stored) == len(expected) and all(
        size in {-1, there} for size, there in zip(expected, stored, strict=True)
    )
