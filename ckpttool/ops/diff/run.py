"""``diff``: everything that is different between two sources, at once.

Three levels: ``keys`` (which variables there are), ``meta`` (their dtypes and shapes too)
and ``values``. Variables are matched by name, in one of the three ways of naming; what only
one side has is looked at for renames. An object graph is not compared unless it is asked
for by its kind: what it says is in the names, and two saves of one program spell it in ways
that mean nothing.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    ForeignFormatError,
    IncompleteError,
    LimitError,
    UnsafeError,
    UnsupportedError,
    UsageError,
)
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Kind, Variable, shape_text
from ckpttool.ops.diff.facts import (
    Differs,
    DiffResult,
    Level,
    NotCompared,
    Only,
    SideFacts,
    Suggestion,
    ValuesDiffer,
)
from ckpttool.ops.diff.suggest import with_rules
from ckpttool.ops.diff.values import Operand, Tolerance, comparable, compare, digest, equal
from ckpttool.ops.wanted import Wanted, wanted
from ckpttool.sources.registry import open_source
from ckpttool.storage.system import keep_buffers

if TYPE_CHECKING:
    from ckpttool.ops.diff.model_code import ModelCode
    from ckpttool.sources.address import Address
    from ckpttool.sources.base import NameStyle, Source

__all__ = ["Progress", "diff"]

#: Called with bytes read and to be read.
Progress = Callable[[int, int], None]

#: What is no reason to give up on all the other variables.
_OF_ONE = (
    CorruptError,
    ForeignFormatError,
    IncompleteError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)


def diff(
    a: Address,
    b: Address | None = None,
    *,
    graph: Address | None = None,
    model: ModelCode | str | None = None,
    level: Level | None = None,
    names: NameStyle = "full",
    rtol: float = 0.0,
    atol: float = 0.0,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    regex: str | None = None,
    kinds: Iterable[Kind] = (),
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> DiffResult:
    """Compare two sources, or a source with what a graph or model asks for; all are only read.

    Args:
        a: whatever has variables.
        b: the same; or None where there is a graph or a model.
        graph: a ``.meta``, ``.pb`` or ``.pbtxt`` file, or the directory of a SavedModel.
        model: the code that builds a model (``file.py:function``), which is run in a child
            with TensorFlow.
        level: how closely to look; None: at the values, or at what a graph knows (``meta``).
        names: by which of their names variables are matched.
        rtol: elements differ where ``|a - b| > atol + rtol * max(|a|, |b|)``; with
            both 0 where their bits do, but NaN equals NaN.
        atol: the same.
        include: which variables, as in ``list``.
        exclude: the same.
        regex: the same.
        kinds: the same.
        limits: bounds on what files may claim; None: those of this process.
        progress: called with bytes read and to be read.

    Raises:
        UsageError: a tolerance that is negative or no number; not one of B, a graph and a
            model; the values of a graph or a model; id ``bad-regex``.
        ChangedError: another program changed a side meanwhile, and did so again.
        CkpttoolError: as ``open_source`` and ``diff_model``; an index that cannot be read.
    """
    tolerance = Tolerance(rtol, atol)
    if not (rtol >= 0 and atol >= 0):
        raise UsageError(
            "a tolerance has to be 0 or more",
            why=f"--rtol is {rtol:g} and --atol is {atol:g}",
            hint="for example --rtol 1e-5 --atol 1e-8",
        )
    want = wanted(include, exclude, regex, kinds)
    limits = limits or default_limits()
    _require_question(b, graph, model, level, tolerance)
    if model is not None:
        from ckpttool.ops.diff.model import diff_model
        from ckpttool.ops.diff.model_code import ModelCode

        code = ModelCode(model) if isinstance(model, str) else model
        return diff_model(a, code, level=level or "meta", names=names, want=want, limits=limits)
    if graph is not None:
        from ckpttool.ops.diff.graph import diff_graph

        return diff_graph(a, graph, level=level or "meta", names=names, want=want, limits=limits)
    assert b is not None, "one of the three is there"
    addresses = os.fsdecode(a), os.fsdecode(b)

    def compared() -> DiffResult:
        with (
            open_source(addresses[0], limits) as left,
            open_source(addresses[1], limits) as right,
        ):
            sides = _Side(left, want, names), _Side(right, want, names)
            return _Diff(*sides, level or "values", tolerance, progress).result()

    try:
        return compared()
    except ChangedError:  # a trainer saved meanwhile: what is there now is compared
        return compared()


def _require_question(
    b: Address | None,
    graph: Address | None,
    model: ModelCode | str | None,
    level: Level | None,
    tolerance: Tolerance,
) -> None:
    """Refuse what makes no sense."""
    given = sum(one is not None for one in (b, graph, model))
    if given != 1:
        raise UsageError(
            "diff takes either B, a graph or a model",
            why=f"{given} of them are given" if given else "none of them is given",
            hint="ckpttool diff A B, ckpttool diff A --graph FILE, or "
            "ckpttool diff A --model FILE.py:FUNCTION",
        )
    if b is None and (level == "values" or tolerance != Tolerance()):
        what = "a graph" if graph is not None else "a model"
        raise UsageError(
            f"the values of {what} cannot be compared",
            why=f"{what} says which variables there are, and holds no values of a checkpoint",
            hint="leave out --level values, --rtol and --atol",
        )


class _Side:
    """The wanted variables of one source, by the name that was asked for."""

    def __init__(self, source: Source, want: Wanted, names: NameStyle) -> None:
        self.source = source
        self.variables: dict[str, Variable] = {}
        graph_too = want.kinds is not None and "object_graph" in want.kinds
        for variable in source.variables():
            if variable.kind == "object_graph" and not graph_too:
                continue
            name = variable.name if names == "full" else source.name_of(variable, names)
            if want(name, variable.kind):
                self.variables[variable.key if name in self.variables else name] = variable

    def operand(self, name: str) -> Operand:
        """The variable of this name, to be read."""
        return Operand(self.source, self.variables[name])

    def without(self, other: _Side) -> list[Only]:
        """What the other side has not."""
        return [
            Only(name, variable.kind, variable.dtype, variable.shape)
            for name, variable in self.variables.items()
            if name not in other.variables
        ]

    def facts(self) -> SideFacts:
        """What is said of the side."""
        source = self.source
        return SideFacts(
            source.address, source.location, source.kind, source.style, len(self.variables)
        )


class _Diff:
    """One comparison."""

    def __init__(
        self, a: _Side, b: _Side, level: Level, tolerance: Tolerance, progress: Progress | None
    ) -> None:
        self._a, self._b = a, b
        self._level: Level = level
        self._tolerance = tolerance
        self._progress = progress
        self._common = [name for name in a.variables if name in b.variables]
        self._total = self._done = 0
        self._not_compared: list[NotCompared] = []

    def result(self) -> DiffResult:
        """Look, as closely as was asked for."""
        meta, values = self._level != "keys", self._level == "values"
        only_a, only_b = self._a.without(self._b), self._b.without(self._a)
        found = with_rules(only_a, only_b, self._common)
        pairs = found.pairs
        differ: list[ValuesDiffer] = []
        if values:
            self._total = sum(
                side.variables[name].nbytes for side in (self._a, self._b) for name in self._common
            )
            keep_buffers()
            differ = self._values()
            pairs = [self._looked_at(pair) for pair in pairs]
            pairs += self._by_values(found.left_a, found.left_b)
        return DiffResult(
            self._level,
            self._a.facts(),
            self._b.facts(),
            len(self._common),
            only_a,
            only_b,
            self._meta(lambda variable: variable.dtype) if meta else (),
            self._meta(lambda variable: shape_text(variable.shape)) if meta else (),
            differ,
            self._not_compared,
            pairs,
            found.rules,
            found.renames,
            tuple(self._warnings()),
            (*self._a.source.notes, *self._b.source.notes),
        )

    def _meta(self, word: Callable[[Variable], str]) -> list[Differs]:
        found = []
        for name in self._common:
            one, other = self._a.variables[name], self._b.variables[name]
            a, b = word(one), word(other)
            if a != b:
                found.append(Differs(name, one.kind, a, b))
        return found

    def _values(self) -> list[ValuesDiffer]:
        found = []
        for name in self._common:
            a, b = self._a.operand(name), self._b.operand(name)
            before = self._done
            if comparable(a.variable, b.variable):
                try:
                    differs = compare(name, a, b, self._tolerance, self._read)
                except _OF_ONE as error:
                    self._failed(name, a.variable.kind, error)
                else:
                    if differs is not None:
                        found.append(differs)
            self._read(before + a.variable.nbytes + b.variable.nbytes - self._done)
        return found

    def _looked_at(self, pair: Suggestion) -> Suggestion:
        """The suggestion, and whether the values are the same."""
        a, b = self._a.operand(pair.a), self._b.operand(pair.b)
        if (a.variable.dtype, a.variable.shape) != (b.variable.dtype, b.variable.shape):
            return pair
        try:
            return pair._replace(same_values=equal(a, b))
        except _OF_ONE:
            return pair  # a suggestion needs no values; what is wrong is verify's affair

    def _by_values(self, only_a: list[Only], only_b: list[Only]) -> list[Suggestion]:
        """What has no similar name, but the values of one other variable alone."""
        wanted_a = defaultdict(list)
        wanted_b = defaultdict(list)
        for one in only_a:
            wanted_a[one.dtype, one.shape].append(one.name)
        for one in only_b:
            wanted_b[one.dtype, one.shape].append(one.name)
        found = []
        for alike in wanted_a.keys() & wanted_b.keys():
            left = _unique_digests(self._a, wanted_a[alike])
            right = _unique_digests(self._b, wanted_b[alike])
            found += [
                Suggestion(left[value], right[value], "the same shape and the same values", True)
                for value in left.keys() & right.keys()
            ]
        order = {name: place for place, name in enumerate(self._a.variables)}
        return sorted(found, key=lambda pair: order[pair.a])

    def _failed(self, name: str, kind: Kind, error: CkpttoolError) -> None:
        self._not_compared.append(NotCompared(name, kind, error.id, str(error)))

    def _read(self, nbytes: int) -> None:
        self._done += nbytes
        if nbytes and self._progress is not None:
            self._progress(self._done, self._total)

    def _warnings(self) -> Iterable[str]:
        for side in (self._a, self._b):
            if not side.variables:
                yield f"nothing of {side.source.location} was compared: no variable, or none wanted"
        styles = {self._a.source.style, self._b.source.style}
        if not self._common and styles == {"object", "name"}:
            yield (
                "one side is object-based and the other name-based: their names have nothing "
                "in common; see ckpttool list --map, and edit --map"
            )


def _unique_digests(side: _Side, names: list[str]) -> Mapping[bytes, str]:
    """Digest → the variable, of those of which only one has it; what cannot be read is none."""
    digests: dict[str, bytes] = {}
    for name in names:
        try:
            digests[name] = digest(side.operand(name))
        except _OF_ONE:
            continue
    times = Counter(digests.values())
    return {value: name for name, value in digests.items() if times[value] == 1}
