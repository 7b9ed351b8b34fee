"""What ``diff`` finds, in words that every part of it shares. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ckpttool.model import Kind

__all__ = [
    "LEVELS",
    "DiffResult",
    "Differs",
    "Level",
    "NotCompared",
    "Only",
    "Rule",
    "SideFacts",
    "Suggestion",
    "ValuesDiffer",
]

Level = Literal["keys", "meta", "values"]
LEVELS: tuple[Level, ...] = ("keys", "meta", "values")


class SideFacts(NamedTuple):
    """One of the two sides.

    Attributes:
        source: the address as given.
        location: what it came to.
        kind: what `inspect` calls it.
        style: ``object`` or ``name``; None where the kind knows no such thing.
        variables: how many of it were compared, after filtering.
    """

    source: str
    location: str
    kind: str
    style: str | None
    variables: int


class Only(NamedTuple):
    """A variable that only one side has, under the name that was asked for."""

    name: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...] | None


class Differs(NamedTuple):
    """A dtype or a shape that is another on the two sides, as words."""

    name: str
    kind: Kind
    a: str
    b: str


class ValuesDiffer(NamedTuple):
    """How far the values of a variable are apart.

    Attributes:
        name, kind: of the variable.
        elements: how many it has.
        differing: those that are further apart than the tolerance.
        max_abs: the largest ``|a - b|``; infinite where one of the two is; exact for
            integers. None for strings, and where no two numbers face each other.
        max_rel: the largest ``|a - b| / max(|a|, |b|)``.
        rms: the root of the mean of ``(a - b)²`` over all elements, finite ones only.
        nan_a, nan_b: elements that are NaN on that side alone.
        nan_both: elements that are NaN on both, which counts as equal. Those of stretches
            that are equal to the byte are not among them.
        infinite: elements that are infinitely far apart.
    """

    name: str
    kind: Kind
    elements: int
    differing: int
    max_abs: float | int | None
    max_rel: float | None
    rms: float | None
    nan_a: int = 0
    nan_b: int = 0
    nan_both: int = 0
    infinite: int = 0


class NotCompared(NamedTuple):
    """A variable whose values could not be read on one of the sides, and why."""

    name: str
    kind: Kind
    id: str
    why: str


class Suggestion(NamedTuple):
    """A variable of A that may be one of B under another name.

    ``same_values`` is None where the values were not compared.
    """

    a: str
    b: str
    why: str
    same_values: bool | None = None


class Rule(NamedTuple):
    """What many names have in common: in B stands ``b`` where in A stands ``a``.

    Attributes:
        where: the place in the name: its beginning, or one of its components.
        a: what stands there in A.
        b: what stands there in B.
        names: how many follow the rule.
        rename: the rule for ``edit --rename`` of A; None where that would also change names
            that both sides have.
    """

    where: Literal["prefix", "component"]
    a: str
    b: str
    names: int
    rename: str | None = None


@dataclass(frozen=True, slots=True)
class DiffResult:
    """All that is different.

    Attributes:
        level: how closely it was looked.
        a, b: the two sides.
        common: how many variables both have.
        only_a, only_b: variables that one side has, in its order.
        dtype, shape: variables that differ in these; empty at level ``keys``.
        values: variables that differ in their values; empty below level ``values``.
        not_compared: variables whose values could not be compared.
        suggestions: what may have been renamed, at most one for a variable.
        rules: what several of the suggestions have in common, the commonest first.
        renames: those of the rules that ``edit --rename`` of A may be given together.
        warnings: what a person should know.
        notes: how the two addresses were understood.
        restores: of a graph: whether it finds all that it asks for; else None.
    """

    level: Level
    a: SideFacts
    b: SideFacts
    common: int
    only_a: Sequence[Only] = ()
    only_b: Sequence[Only] = ()
    dtype: Sequence[Differs] = ()
    shape: Sequence[Differs] = ()
    values: Sequence[ValuesDiffer] = ()
    not_compared: Sequence[NotCompared] = ()
    suggestions: Sequence[Suggestion] = ()
    rules: Sequence[Rule] = ()
    renames: Sequence[str] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    restores: bool | None = None

    @property
    def same(self) -> bool:
        """Whether nothing is different, and all that was to be compared was."""
        return not (self.differs or self.not_compared)

    @property
    def differs(self) -> bool:
        """Whether anything is different."""
        return bool(self.only_a or self.only_b or self.dtype or self.shape or self.values)

    def by_kind(self) -> Mapping[Kind, Mapping[str, int]]:
        """Kind → how many differences of which sort; only where there are some."""
        counts: dict[Kind, dict[str, int]] = {}
        for what in ("only_a", "only_b", "dtype", "shape", "values", "not_compared"):
            for one in getattr(self, what):
                of_kind = counts.setdefault(one.kind, {})
                of_kind[what] = of_kind.get(what, 0) + 1
        return counts
