"""How ``diff`` looks: what is different, sort by sort and kind by kind; then renames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from ckpttool.cli.escape import escape
from ckpttool.cli.jsontext import exact
from ckpttool.cli.screen import Column, Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.model import KINDS, shape_text
from ckpttool.ops.diff.facts import (
    Differs,
    DiffResult,
    NotCompared,
    Only,
    Rule,
    SideFacts,
    Suggestion,
    ValuesDiffer,
)
from ckpttool.policy.words import count

__all__ = ["DiffView"]

#: Lines of one sort and kind that a person is shown; --json has all.
_SHOWN = 12


class DiffView(View):
    """The answer of ``diff``."""

    command = "diff"
    record_type = "difference"

    def __init__(self, result: DiffResult) -> None:
        self._result = result

    @property
    def exit_code(self) -> int:
        if self._result.restores is not None:
            return 0 if self._result.restores else 1
        if self._result.differs:
            return 1
        return 0 if self._result.same else 3

    @property
    def warnings(self) -> Sequence[str]:
        return self._result.warnings

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "same": result.same,
            "restores": result.restores,
            "level": result.level,
            "a": _side(result.a),
            "b": _side(result.b),
            "common": result.common,
            "only_a": [one.name for one in result.only_a],
            "only_b": [one.name for one in result.only_b],
            "dtype": [one._asdict() for one in result.dtype],
            "shape": [one._asdict() for one in result.shape],
            "values": [one._asdict() for one in result.values],
            "not_compared": [one._asdict() for one in result.not_compared],
            "suggestions": [one._asdict() for one in result.suggestions],
            "rules": [one._asdict() for one in result.rules],
            "by_kind": result.by_kind(),
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        result = self._result
        for what, found in _sorts(result):
            for one in found:
                yield {"what": what, **one._asdict(), **exact("name", one.name)}
        for pair in result.suggestions:
            yield {"what": "suggestion", **pair._asdict()}

    def summary(self) -> Mapping[str, object]:
        result = self._result
        return {
            "same": result.same,
            "restores": result.restores,
            "level": result.level,
            "a": _side(result.a),
            "b": _side(result.b),
            "common": result.common,
            "rules": [one._asdict() for one in result.rules],
            "by_kind": result.by_kind(),
        }

    def plain(self) -> Iterator[str]:
        result = self._result
        yield from tab_lines(
            (what, one.kind, one.name, *_cells(one))
            for what, found in _sorts(result)
            for one in found
        )
        yield from tab_lines(
            ("rename", "", pair.a, pair.b, _why(pair)) for pair in result.suggestions
        )

    def human(self, screen: Screen) -> Iterator[str]:
        result = self._result
        for letter, side in (("A", result.a), ("B", result.b)):
            yield screen.text(f"{letter}  {escape(side.location)}  {_described(side)}", hang=3)
        for what, found in _sorts(result):
            if found:
                yield screen.style(f"\n{_TITLES[what]}: {len(found)}", "bold") + "\n"
                yield from _tables(screen, what, found)
        yield from _renames(screen, result)
        yield "\n" + screen.text(_verdict(screen, result))


_TITLES = {
    "only_a": "only in A",
    "only_b": "only in B",
    "dtype": "of another dtype",
    "shape": "of another shape",
    "values": "of other values",
    "not_compared": "not compared",
}
_TWO_SIDES = (Column("name"), Column("A"), Column("B"))
_COLUMNS = {
    "only_a": (Column("name"), Column("dtype", drop=1), Column("shape")),
    "only_b": (Column("name"), Column("dtype", drop=1), Column("shape")),
    "dtype": _TWO_SIDES,
    "shape": _TWO_SIDES,
    "values": (
        Column("name"),
        Column("max abs", "right"),
        Column("max rel", "right", drop=4),
        Column("rms", "right", drop=3),
        Column("differ", "right", drop=2),
        Column("of", "right", drop=1),
    ),
    "not_compared": (Column("name"), Column("id", drop=1), Column("why", prose=True)),
}

_Difference = Only | Differs | ValuesDiffer | NotCompared


def _sorts(result: DiffResult) -> Iterator[tuple[str, Sequence[_Difference]]]:
    """Every sort of difference, in the order in which it is told."""
    yield "only_a", result.only_a
    yield "only_b", result.only_b
    yield "dtype", result.dtype
    yield "shape", result.shape
    yield "values", result.values
    yield "not_compared", result.not_compared


def _cells(one: _Difference) -> tuple[str, ...]:
    """What is said of a difference besides its sort, its kind and its name."""
    if isinstance(one, Only):
        return one.dtype, shape_text(one.shape)
    if isinstance(one, Differs):
        return one.a, one.b
    if isinstance(one, NotCompared):
        return one.id, one.why
    figures = (one.max_abs, one.max_rel, one.rms)
    return (*map(_number, figures), str(one.differing), str(one.elements))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _tables(screen: Screen, what: str, found: Sequence[_Difference]) -> Iterator[str]:
    """The first few of each kind, below its name."""
    for kind in KINDS:
        alike = [one for one in found if one.kind == kind]
        if not alike:
            continue
        yield f"  {kind}: {len(alike)}\n"
        shown = alike if len(alike) <= _SHOWN + 1 else alike[:_SHOWN]
        rows = ((one.name, *_cells(one)) for one in shown)
        for lines in screen._replace(width=screen.width - 4).table(_COLUMNS[what], rows):
            yield "".join(f"    {line}\n" for line in lines.splitlines())
        if more := len(alike) - len(shown):
            yield screen.style(f"    and {more} more (--json has all)", "dim") + "\n"
        yield from _nans(screen, alike)


def _nans(screen: Screen, found: Sequence[_Difference]) -> Iterator[str]:
    """What the figures leave out."""
    values = [one for one in found if isinstance(one, ValuesDiffer)]
    for side, number in (
        ("in A alone", sum(one.nan_a for one in values)),
        ("in B alone", sum(one.nan_b for one in values)),
        ("in both, which is equal", sum(one.nan_both for one in values)),
    ):
        if number:
            verb = "is" if number == 1 else "are"
            yield screen.text(f"    {number:,} of their elements {verb} NaN {side}", hang=6)


def _renames(screen: Screen, result: DiffResult) -> Iterator[str]:
    pairs = result.suggestions
    if not pairs:
        return
    yield screen.style("\nrenamed?", "bold") + "\n"
    for rule in result.rules:
        yield screen.text(f"  {_rule_words(rule, result)}", hang=4)
    shown = pairs if len(pairs) <= _SHOWN + 1 else pairs[:_SHOWN]
    columns = (Column("A"), Column("B"), Column("why", prose=True, drop=1))
    rows = ((pair.a, pair.b, _why(pair)) for pair in shown)
    for lines in screen._replace(width=screen.width - 2).table(columns, rows):
        yield "".join(f"  {line}\n" for line in lines.splitlines())
    if more := len(pairs) - len(shown):
        yield screen.style(f"  and {more} more (--json has all)", "dim") + "\n"
    if result.renames and result.a.style != "object":
        # One line, for the shell that it is copied into.
        options = " ".join(f"--rename {escape(quote(rename))}" for rename in result.renames)
        yield f"  to rename: ckpttool edit A DST {options}\n"


def _rule_words(rule: Rule, result: DiffResult) -> str:
    """``all 34 differ by prefix `model/```."""
    every = rule.names == len(result.only_a) == len(result.only_b)
    who = f"all {rule.names} differ" if every else f"{count(rule.names, 'name')} differ"
    old, new = escape(rule.a), escape(rule.b)
    if rule.where == "component":
        return f"{who} by a component: `{old}` in A is `{new}` in B"
    if not new:
        return f"{who} by prefix `{old}`, which only A has"
    if not old:
        return f"{who} by prefix `{new}`, which only B has"
    return f"{who} by prefix: `{old}` in A is `{new}` in B"


def _why(pair: Suggestion) -> str:
    if pair.same_values is None or "same values" in pair.why:
        return pair.why
    return f"{pair.why}; {'the same' if pair.same_values else 'other'} values"


def _verdict(screen: Screen, result: DiffResult) -> str:
    looked = f"{count(result.common, 'variable')} compared, {_LOOKED[result.level]}"
    if result.restores:
        extra = f"; {len(result.only_a)} more are not asked for" if result.only_a else ""
        if not result.b.variables:
            return f"{screen.style('nothing to restore', 'bold yellow')}  {looked}{extra}"
        return f"{screen.style('restores', 'bold green')}  {looked}{extra}"
    if result.differs:
        sorts = (f"{len(found)} {_TITLES[what]}" for what, found in _sorts(result) if found)
        word = "different" if result.restores is None else "does not restore"
        return f"{screen.style(word, 'bold red')}  {', '.join(sorts)} ({looked})"
    if result.not_compared:
        return f"{screen.style('not all compared', 'bold yellow')}  {looked}"
    return f"{screen.style('the same', 'bold green')}  {looked}"


_LOOKED = {
    "keys": "their names",
    "meta": "their dtypes and shapes",
    "values": "with their values",
}


def _described(side: SideFacts) -> str:
    style = {"object": "object-based, ", "name": "name-based, "}.get(side.style or "", "")
    return f"({side.kind}, {style}{count(side.variables, 'variable')})"


def _side(side: SideFacts) -> dict[str, object]:
    return side._asdict()
