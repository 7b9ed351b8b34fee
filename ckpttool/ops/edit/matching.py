"""Which variable of one checkpoint is which of another: by names, then by shapes.

Pure. Nothing is guessed: where two could be meant, both are named and neither is taken.
What counts, in this order: a map; the object path, where both sides have one; the full
name; the full name without what one side has in front of it (``regressor/hidden/kernel``
and ``hidden/kernel``); and of what is left a shape that each side has once.

Numbers that Keras gives by itself (``dense``, ``dense_1``) count on through a session, so
``dense_1`` of one checkpoint may be ``dense_2`` of another. Where the numbers of a name are
not the same on both sides, the name says nothing and is reported with what may be meant.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ckpttool.model import Kind, shape_text

__all__ = ["Described", "Matched", "match"]

_NUMBERED = re.compile(r"(.*?)(?:_([0-9]+))?", re.DOTALL)
#: Kinds of which every variable needs a partner.
_NEEDED = frozenset({"model"})


class Described(NamedTuple):
    """What is known of a variable; ``path`` and ``full_name`` may be empty.

    ``id`` is its own among all of both sides; ``follows`` is that of a slot's variable.
    """

    id: str
    key: str
    name: str
    path: str
    full_name: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...] | None
    follows: str | None = None

    @property
    def words(self) -> str:
        """Name, dtype and shape, for people."""
        shape = "?" if self.shape is None else shape_text(self.shape)
        return f"{self.name} {self.dtype} {shape}"


@dataclass(slots=True)
class Matched:
    """Pairs, and what could not be paired.

    Attributes:
        pairs: the ``id`` of a wanted variable → the one that has its values, and how it
            was found.
        missing: wanted variables of the model without a partner.
        homeless: variables of the model that are wanted nowhere.
        doubtful: wanted variables that more than one could be, with those.
        different: pairs of another dtype or shape.
        unknown: names of the map that neither side has.
    """

    pairs: dict[str, tuple[Described, str]] = field(default_factory=dict)
    missing: list[Described] = field(default_factory=list)
    homeless: list[Described] = field(default_factory=list)
    doubtful: list[tuple[Described, tuple[Described, ...]]] = field(default_factory=list)
    different: list[tuple[Described, Described]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether every variable of the model has its partner."""
        return not (
            self.missing or self.homeless or self.doubtful or self.different or self.unknown
        )


def match(
    have: Sequence[Described],
    want: Sequence[Described],
    named: Mapping[str, str],
    *,
    shapes: bool = True,
) -> Matched:
    """Pair what is wanted with what is there.

    Args:
        have: the variables that have the values.
        want: the variables that need some.
        named: names of the first → names of the second, as a person said.
        shapes: whether a shape that both sides have once tells what no name does.
    """
    matcher = _Matcher(have, want)
    matcher.by_map(named)
    matcher.by_name()
    if shapes:
        matcher.by_shape()
    return matcher.result()


class _Matcher:
    def __init__(self, have: Sequence[Described], want: Sequence[Described]) -> None:
        self._have = {one.id: one for one in have}
        self._want = {one.id: one for one in want}
        self._inner = _without_scope(have) | _without_scope(want)
        self._matched = Matched()
        self._taken: set[str] = set()
        #: Wanted variables with what they may be.
        self._doubts: dict[str, tuple[str, ...]] = {}

    def by_map(self, named: Mapping[str, str]) -> None:
        """Pair what a person says."""
        sources, targets = _by_any_name(self._have.values()), _by_any_name(self._want.values())
        for old, new in named.items():
            if old not in sources:
                self._matched.unknown.append(old)
            elif new not in targets:
                self._matched.unknown.append(new)
            else:
                self._pair(targets[new], sources[old], "the map")

    def by_name(self) -> None:
        """Pair what has one name: on either side nothing else may have it."""
        model = {"model"}
        proposals = self._proposed(("path",), model)
        if not self._fit(proposals):  # else one program wrote both: as TensorFlow restores
            proposals = self._proposed(("path", "full name", "name", "end of the name"), model)
        self._accept(proposals, self._numbered_differently())
        others = {"optimizer", "ema", "step", "other"}
        self._accept(self._proposed(("path", "full name"), others), set())

    def by_shape(self) -> None:
        """Pair what is left of the model and is the only one of its dtype and shape."""
        for target, source in self._same("shape", {"model"}):
            self._pair(target, source, "the only one of its dtype and shape")
            self._doubts.pop(target, None)

    def result(self) -> Matched:
        """What was found."""
        matched = self._matched
        for target, one in self._want.items():
            if target in matched.pairs:
                source = matched.pairs[target][0]
                if (source.dtype, source.shape) != (one.dtype, one.shape):
                    matched.different.append((source, one))
            elif target in self._doubts:
                candidates = tuple(self._have[source] for source in self._doubts[target])
                matched.doubtful.append((one, candidates))
            elif one.kind in _NEEDED:
                matched.missing.append(one)
        matched.homeless += [
            one
            for source, one in self._have.items()
            if one.kind in _NEEDED and source not in self._taken
        ]
        return matched

    def _same(self, way: str, kinds: set[str]) -> list[tuple[str, str]]:
        """Pairs that have in common what on each side only one has."""
        pairs, taken = self._matched.pairs, self._taken
        sides = (
            [one for one in self._have.values() if one.id not in taken and one.kind in kinds],
            [one for one in self._want.values() if one.id not in pairs and one.kind in kinds],
        )
        sources, targets = (_by_key(side, lambda one: self._keys(way, one)) for side in sides)
        found: dict[tuple[str, str], None] = {}
        for key, ids in targets.items():
            others = sources.get(key, ())
            if len(ids) == 1 and len(others) == 1:
                found[ids[0], others[0]] = None
        if way == "end of the name":
            return [pair for pair in found if self._one_ends_the_other(*pair)]
        return list(found)

    def _keys(self, way: str, one: Described) -> Iterable[Hashable]:
        if way == "shape":
            return ((one.dtype, one.shape),)
        if way == "path":
            return (one.path,) if one.path else ()
        if not one.full_name:
            return ()
        if way == "end of the name":
            return _ends(_clean(one.full_name))
        return (_clean(one.full_name) if way == "full name" else self._inner[one.id],)

    def _one_ends_the_other(self, target: str, source: str) -> bool:
        names = (_clean(self._have[source].full_name), _clean(self._want[target].full_name))
        short, long = sorted(names, key=len)
        return long == short or long.endswith(f"/{short}")

    def _proposed(self, ways: Sequence[str], kinds: set[str]) -> dict[str, dict[str, str]]:
        """For wanted variables: what they may be, and by what."""
        proposals: dict[str, dict[str, str]] = defaultdict(dict)
        for way in ways:
            for target, source in self._same(way, kinds):
                if self._belongs(target, source):
                    proposals[target].setdefault(source, f"its {way}")
        return proposals

    def _belongs(self, target: str, source: str) -> bool:
        """Whether two slots are of variables that were paired."""
        one, other = self._want[target].follows, self._have[source].follows
        if one is None or other is None:
            return one is other
        pair = self._matched.pairs.get(one)
        return pair is not None and pair[0].id == other

    def _fit(self, proposals: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether all of the model has a partner of its dtype and shape."""
        for one in self._want.values():
            if one.kind in _NEEDED and one.id not in self._matched.pairs:
                sources = [self._have[source] for source in proposals.get(one.id, ())]
                if [(each.dtype, each.shape) for each in sources] != [(one.dtype, one.shape)]:
                    return False
        return True

    def _accept(self, proposals: Mapping[str, Mapping[str, str]], numbered: set[str]) -> None:
        """Pair what is the only proposal both ways; the rest is in doubt."""
        times = Counter(source for found in proposals.values() for source in found)
        for target, found in proposals.items():
            source, how = next(iter(found.items()))
            sure = how == "its path" or not self._is_numbered(target, source, numbered)
            if len(found) == 1 and times[source] == 1 and sure:
                self._pair(target, source, how)
            else:
                self._doubts[target] = tuple(found)

    def _is_numbered(self, target: str, source: str, numbered: set[str]) -> bool:
        """Whether a pair rests on a number that counts differently on the two sides."""
        layers = [layer for one in (target, source) for layer in _layers(self._inner[one])]
        return any(_stem(layer)[0] in numbered for layer in layers)

    def _numbered_differently(self) -> set[str]:
        """Names of layers that both sides have with numbers, and not with the same ones."""
        numbers: list[dict[str, set[int]]] = []
        for side in (self._have, self._want):
            of_side: dict[str, set[int]] = defaultdict(set)
            for one in side.values():
                if one.kind in _NEEDED:
                    for layer in _layers(self._inner[one.id]):
                        stem, number = _stem(layer)
                        of_side[stem].add(number)
            numbers.append(of_side)
        first, second = numbers
        return {stem for stem in first.keys() & second.keys() if first[stem] != second[stem]}

    def _pair(self, target: str, source: str, how: str) -> None:
        self._matched.pairs[target] = (self._have[source], how)
        self._taken.add(source)


def _clean(full_name: str) -> str:
    return full_name.removesuffix(":0")


def _without_scope(side: Iterable[Described]) -> dict[str, str]:
    """The full names without the scope that all of the model has (its own name), by id."""
    names = {one.id: _clean(one.full_name) for one in side}
    scopes = {
        names[one.id].partition("/")[0] for one in side if one.kind in _NEEDED and one.full_name
    }
    if len(scopes) == 1:
        scope = f"{scopes.pop()}/"
        return {key: name.removeprefix(scope) for key, name in names.items()}
    return names


def _layers(name: str) -> list[str]:
    """The components of a name before its last."""
    return name.split("/")[:-1]


def _stem(layer: str) -> tuple[str, int]:
    """``dense_12`` → ``dense`` and 12; ``dense`` → ``dense`` and 0."""
    match = _NUMBERED.fullmatch(layer)
    assert match is not None, "it matches anything"
    return match[1], int(match[2] or 0)


def _by_key(
    side: Iterable[Described], keys: Callable[[Described], Iterable[Hashable]]
) -> dict[Hashable, list[str]]:
    found: dict[Hashable, list[str]] = defaultdict(list)
    for one in side:
        for key in keys(one):
            found[key].append(one.id)
    return found


def _by_any_name(side: Iterable[Described]) -> dict[str, str]:
    """The ``id`` for each key, path, full name and readable name; keys win."""
    ordered = list(side)
    found = {one.key: one.id for one in ordered}
    for one in ordered:
        for name in (one.name, one.path, one.full_name):
            found.setdefault(name, one.id)
    return found


def _ends(name: str) -> list[str]:
    """The name with fewer and fewer components in front; one of one component whole."""
    parts = name.split("/")
    return ["/".join(parts[start:]) for start in range(max(1, len(parts) - 1))]
