"""Which variables of A may be which of B under another name: by names and shapes. Pure.

Most renames are one rule for many names (a scope in front of all, ``weights`` for
``kernel``), so rules are looked for first: a beginning of the names, found where their ends
are the same, then one component. What is left is matched by likeness, among variables of one
shape. A variable is in one suggestion at most, and what could be two is in none.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ckpttool.model import shape_text
from ckpttool.ops.diff.facts import Only, Rule, Suggestion
from ckpttool.ops.edit.rules import parse_rename
from ckpttool.sources.nearest import likeness

__all__ = ["Suggestions", "rename_rule", "suggest", "with_rules"]

#: Names of a side that are looked at: past that, a list of pairs is no help to anybody.
_LOOKED_AT = 100_000
#: Rules that are tried on all names.
_RULES = 100
#: Rules that a command line is made of.
_GIVEN = 8
#: Pairs of names that are compared closely for want of a rule: some seconds.
_COMPARED = 20_000
#: Below this likeness two names of one shape are not said to be one.
_CUTOFF = 0.6


#: What stands before and behind a component of a name, and the shape of the variable.
_Hole = tuple[str, str, tuple[int, ...] | None]


class Suggestions(NamedTuple):
    """Pairs, the rules that several of them follow, and what no pair was found for.

    ``renames`` are rules for ``edit --rename`` that may be given together.
    """

    pairs: list[Suggestion]
    rules: list[Rule]
    left_a: list[Only]
    left_b: list[Only]
    renames: tuple[str, ...] = ()


def suggest(only_a: Sequence[Only], only_b: Sequence[Only]) -> Suggestions:
    """Pair what only one side has with what only the other has."""
    finder = _Finder(only_a[:_LOOKED_AT], only_b[:_LOOKED_AT])
    finder.by_prefix()
    finder.by_component()
    finder.by_likeness()
    return finder.result()


def with_rules(
    only_a: Sequence[Only], only_b: Sequence[Only], common: Iterable[str]
) -> Suggestions:
    """As `suggest`, with each rule as ``edit`` takes it, where it leaves ``common`` alone."""
    found = suggest(only_a, only_b)
    rules = [rule._replace(rename=rename_rule(rule, common)) for rule in found.rules]
    return found._replace(rules=rules, renames=_together(rules, found.pairs))


def _together(rules: Iterable[Rule], pairs: Sequence[Suggestion]) -> tuple[str, ...]:
    """The rules that ``edit`` may apply one after the other; of those that clash, the first.

    One clashes where it would make of a name of A something else than what it is paired with.
    """
    chosen: list[str] = []
    names = [pair.a for pair in pairs]
    for rule in islice(rules, _GIVEN):
        if rule.rename is None:
            continue
        renamed = list(map(parse_rename(rule.rename).replace, names))
        if all(name in {pair.a, pair.b} for name, pair in zip(renamed, pairs, strict=True)):
            chosen.append(rule.rename)
            names = renamed
    return tuple(chosen)


def rename_rule(rule: Rule, others: Iterable[str]) -> str | None:
    """The rule as ``edit --rename`` takes it; None where it would change one of ``others``."""
    old = re.escape(rule.a)  # the sign around the expression too
    new = re.sub(r"[\\&#]", r"\\\g<0>", rule.b)
    if rule.where == "prefix":
        if any(name.startswith(rule.a) for name in others):
            return None
        return f"s#^{old}#{new}#"
    if any(f"/{rule.a}/" in f"/{name}/" for name in others):
        return None
    return rf"s#(^|/){old}(/|$)#\1{new}\2#"


class _Finder:
    def __init__(self, only_a: Sequence[Only], only_b: Sequence[Only]) -> None:
        self._a = {one.name: one for one in only_a}
        self._b = {one.name: one for one in only_b}
        self._order = {name: place for place, name in enumerate(self._a)}
        self._pairs: list[Suggestion] = []
        self._rules: list[Rule] = []

    def result(self) -> Suggestions:
        """What was found, in the order of A; the rule for the most names first."""
        pairs = sorted(self._pairs, key=lambda pair: self._order[pair.a])
        rules = sorted(self._rules, key=lambda rule: -rule.names)
        return Suggestions(pairs, rules, list(self._a.values()), list(self._b.values()))

    def by_prefix(self) -> None:
        """Names whose ends are the same: what stands before that is put to the vote."""
        ends: dict[str, str | None] = {}
        for name in self._b:
            for at in _starts(name):
                end = name[at:]
                ends[end] = None if end in ends else name
        votes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for name in self._a:
            for at in _starts(name):
                other = ends.get(name[at:], "")
                if other and self._alike(name, other):
                    votes[name[:at], other[: len(other) - len(name) + at]].append(name)
                if other != "":
                    break
        ranked = sorted(votes.items(), key=lambda item: -len(item[1]))
        for place, ((old, new), voters) in enumerate(ranked):
            # A rule that several names follow holds for all others, and of another shape too.
            everywhere = len(voters) > 1 and place < _RULES
            names = [name for name in self._a if name.startswith(old)] if everywhere else voters
            found = 0
            for name in names:
                target = new + name[len(old) :]
                if target not in self._b or name not in self._a:
                    continue
                if everywhere or self._alike(name, target):
                    self._pair(name, target, _prefix_words(old, new))
                    found += 1
            if found > 1:
                self._rules.append(Rule("prefix", old, new, found))

    def by_component(self) -> None:
        """Names of one shape that are the same but for one component."""
        holes: dict[_Hole, str | None] = {}
        for one in self._b.values():
            for hole, _ in _holes(one):
                holes[hole] = None if hole in holes else one.name
        seen = Counter(hole for one in self._a.values() for hole, _ in _holes(one))
        found: Counter[tuple[str, str]] = Counter()
        for name, one in list(self._a.items()):
            for hole, component in _holes(one):
                target = holes.get(hole)
                if not target or seen[hole] > 1 or target not in self._b:
                    continue
                before, after, _ = hole
                other = target[len(before) : len(target) - len(after)]
                self._pair(name, target, f"`{component}` is `{other}` in B")
                found[component, other] += 1
                break
        self._rules += [
            Rule("component", old, new, count) for (old, new), count in found.items() if count > 1
        ]

    def by_likeness(self) -> None:
        """Names that are each other's most similar ones among those of one shape."""
        buckets: dict[object, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, ones in enumerate((self._a, self._b)):
            for one in ones.values():
                buckets[one.shape][side].append(one.name)
        left = _COMPARED
        for mine, theirs in buckets.values():
            if len(mine) * len(theirs) > left:
                continue
            left -= len(mine) * len(theirs)
            scores = [
                (likeness(name.casefold(), other.casefold()), name, other)
                for name in mine
                for other in theirs
            ]
            best_a, best_b = _best(scores, 1), _best(scores, 2)
            for name, other in best_a.items():
                if best_b.get(other) == name:
                    self._pair(name, other, "a similar name and the same shape")

    def _alike(self, name: str, target: str) -> bool:
        """Whether two shapes are the same, or one of them is not known."""
        shapes = {self._a[name].shape, self._b[target].shape}
        return len(shapes - {None}) < 2

    def _pair(self, name: str, target: str, why: str) -> None:
        one, other = self._a.pop(name), self._b.pop(target)
        if None not in {one.shape, other.shape} and one.shape != other.shape:
            why += f"; the shapes differ: {shape_text(one.shape)} and {shape_text(other.shape)}"
        self._pairs.append(Suggestion(name, target, why))


def _starts(name: str) -> Iterator[int]:
    """Where the name and each of its components begins, from the first on."""
    at = 0
    while at >= 0:
        yield at
        at = name.find("/", at) + 1 or -1


def _holes(one: Only) -> Iterator[tuple[_Hole, str]]:
    """For each component: what stands around it, and itself. One alone stands nowhere."""
    name = one.name
    starts = list(_starts(name))
    if len(starts) < 2:
        return
    for start in starts:
        stop = name.find("/", start)
        stop = len(name) if stop < 0 else stop
        yield (name[:start], name[stop:], one.shape), name[start:stop]


def _best(scores: Iterable[tuple[float, str, str]], of: int) -> dict[str, str]:
    """The name that is most like each one of a side, where that is one and like enough."""
    best: dict[str, tuple[float, str | None]] = {}
    for row in scores:
        score, mine, other = row[0], str(row[of]), str(row[3 - of])
        top, _ = best.get(mine, (0.0, None))
        if score > top:
            best[mine] = score, other
        elif score == top:
            best[mine] = score, None
    return {name: other for name, (score, other) in best.items() if other and score >= _CUTOFF}


def _prefix_words(old: str, new: str) -> str:
    if not new:
        return f"without the prefix `{old}` in B"
    return f"the prefix `{old}` is `{new}` in B" if old else f"with the prefix `{new}` in B"
