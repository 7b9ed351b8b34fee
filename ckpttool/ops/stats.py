"""``stats``: the figures of variables, of one source or along the checkpoints of a run.

Streams: variables are read one after another in pieces of some MiB, and nothing but the
figures is held, and those only where an order other than the file's is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from ckpttool.errors import ChangedError, CkpttoolError, NotFoundError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Kind
from ckpttool.ops.load import Picked, Progress, pick
from ckpttool.ops.wanted import Wanted, wanted
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from ckpttool.sources.series import Member, Series, series_of
from ckpttool.storage.base import Closing

if TYPE_CHECKING:
    from ckpttool.ops.figures.model import Figures
    from ckpttool.sources.base import NameStyle, Source

__all__ = ["SORTS", "FirstBad", "Row", "Skipped", "SortKey", "Stats", "stats"]

SortKey = Literal["name", "bytes", "params", "min", "max", "mean", "std", "norm", "zeros", "bad"]
SORTS: tuple[SortKey, ...] = (
    *("name", "bytes", "params", "min", "max", "mean", "std", "norm", "zeros", "bad"),
)


class Row(NamedTuple):
    """The figures of one variable, or of a part of one.

    Attributes:
        item: which variable, and what of it.
        name: what it is called, with the index as it was typed.
        figures: of what was read.
        member: the checkpoint of the series; None where there is but one source.
    """

    item: Picked
    name: str
    figures: Figures
    member: Member | None


class Skipped(NamedTuple):
    """A variable that has no figures: it holds no numbers, or (``error``) cannot be read.

    ``item`` is None where it is a whole checkpoint of a series that cannot be read.
    """

    name: str
    item: Picked | None
    error: CkpttoolError | None = None

    @property
    def dtype(self) -> str:
        """TensorFlow's word; empty for a whole checkpoint."""
        return "" if self.item is None else self.item.dtype


class FirstBad(NamedTuple):
    """The first checkpoint of a series in which a variable has a NaN or an infinity."""

    name: str
    member: Member
    nan: int
    inf: int


@dataclass(frozen=True, slots=True)
class _Order:
    """What is wanted of a source, and in which order."""

    names: tuple[str, ...]
    want: Wanted
    sort: SortKey | None
    naming: NameStyle


class Stats(Closing):
    """The figures that were asked for; a context manager. Made by `stats`.

    Attributes:
        address: as it was given.
        source: the open source; None for a series, whose sources are opened in turn.
        series: the checkpoints of a run; None for one source.
        count, parameters, bad: rows that ``rows`` has given so far, their elements, and
            how many rows have a NaN or an infinity.
        skipped: what holds no numbers, so far; of a series that of its last checkpoint.
        failed: variables, and checkpoints of a series, that cannot be read.
        absent: checkpoints of a series that have none of the names, with the reason.
        first_bad: name → where a NaN or an infinity is first met in a series.
    """

    def __init__(
        self,
        address: str,
        source: Source | None,
        series: Series | None,
        order: _Order,
        limits: Limits,
        progress: Progress | None,
    ) -> None:
        self.address = address
        self.source = source
        self.series = series
        self.count = self.parameters = self.bad = 0
        self.skipped: list[Skipped] = []
        self.failed: list[Skipped] = []
        self.absent: list[tuple[Member, NotFoundError]] = []
        self.first_bad: dict[str, FirstBad] = {}
        self._order = order
        self._limits = limits
        self._progress = progress
        self._done = self._total = 0

    @property
    def notes(self) -> Sequence[str]:
        """What a person should be told about how the address was understood."""
        if self.source is not None:
            return self.source.notes
        assert self.series is not None, "one of the two is there"
        return [f"{prefix} is passed over: {why}" for prefix, why in self.series.passed_over]

    def rows(self) -> Iterator[Row]:
        """The figures, variable by variable, in the order asked for.

        Of a series, checkpoint by checkpoint. What cannot be read is passed over and kept
        in ``failed``.

        Raises:
            NotFoundError: a name is no variable's; of a series, in none of its checkpoints.
            ChangedError: another program changed the files meanwhile.
            CkpttoolError: nothing at all could be read: the first error.
        """
        found = self._of_series(self.series) if self.series else self._of_source(self.source, None)
        for row in found:
            self.count += 1
            self.parameters += row.figures.count
            if row.figures.bad:
                self.bad += 1
                if row.member is not None and row.name not in self.first_bad:
                    figures = row.figures
                    self.first_bad[row.name] = FirstBad(
                        row.name, row.member, figures.nan, figures.inf
                    )
            yield row
        if self.failed and not self.count:
            error = self.failed[0].error
            assert error is not None, "what failed has one"
            raise error

    def _of_series(self, series: Series) -> Iterator[Row]:
        for number, member in enumerate(series.members):
            self.skipped.clear()
            try:
                source = open_source(member.address, self._limits)
            except CkpttoolError as error:
                self.failed.append(Skipped(member.address, None, error))
                continue
            with source:
                try:
                    yield from self._of_source(source, member, len(series.members) - number)
                except NotFoundError as error:
                    self.absent.append((member, error))
        if len(self.absent) == len(series.members):
            raise self.absent[-1][1]

    def _of_source(
        self, source: Source | None, member: Member | None, remaining: int = 1
    ) -> Iterator[Row]:
        assert source is not None, "one of the two is there"
        order = self._order
        if self._progress is not None:
            nbytes = sum(item.variable.nbytes for item, _ in self._chosen(source))
            self._total = self._done + nbytes * remaining
            self.skipped.clear()
        chosen = self._chosen(source)
        if (key := _BEFORE.get(order.sort)) is not None:
            chosen = iter(sorted(chosen, key=key))
        rows = self._measured(source, chosen, member)
        if (value := _AFTER.get(order.sort)) is not None:
            rows = iter(sorted(rows, key=lambda row: _largest_first(value(row.figures))))
        yield from rows

    def _chosen(self, source: Source) -> Iterator[tuple[Picked, str]]:
        """What is wanted of a source and holds numbers, each with its name."""
        order = self._order
        items: Iterable[Picked] = (
            pick(source, order.names, order.naming)
            if order.names
            else (
                Picked(variable, (), Selection.whole(variable.shape or ()), variable.dtype)
                for variable in source.variables()
                if variable.kind != "object_graph"
            )
        )
        # One that was asked for by itself is an error that says why, not one left out.
        alone = isinstance(items, tuple) and len(items) == 1
        for item in items:
            name = item.name
            if order.naming != "full":
                called = source.name_of(item.variable, order.naming)
                name = called + name.removeprefix(item.variable.name)
            if not order.want(name, item.variable.kind):
                continue
            known = BY_NAME.get(item.dtype)
            if alone or (known is not None and known.size):
                yield item, name
            else:
                self.skipped.append(Skipped(name, item))

    def _measured(
        self, source: Source, chosen: Iterator[tuple[Picked, str]], member: Member | None
    ) -> Iterator[Row]:
        from ckpttool.ops.figures.running import compute

        for item, name in chosen:
            try:
                figures = compute(partial(self._pieces, source, item), item.dtype)
            except ChangedError:
                raise
            except CkpttoolError as error:
                self.failed.append(Skipped(name, item, error))
                continue
            yield Row(item, name, figures, member)

    def _pieces(self, source: Source, item: Picked) -> Iterator[bytes]:
        for piece in source.chunks(item.variable, item.selection):
            yield piece
            if self._progress is not None:
                self._done += len(piece)
                self._progress(min(self._done, self._total), self._total)

    def close(self) -> None:
        """Close the source."""
        if self.source is not None:
            self.source.close()


def stats(
    address: str,
    names: Sequence[str] = (),
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    regex: str | None = None,
    kinds: Iterable[Kind] = (),
    sort: SortKey | None = None,
    naming: NameStyle = "full",
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Stats:
    """The figures of variables; the caller closes the result.

    Args:
        address: whatever has variables, or ``RUN/@*`` for every whole checkpoint of a run.
        names: names, keys, object paths or patterns, each maybe with an index, as of
            ``load``; none: every variable.
        include: globs, of which the name has to match one (``wanted.py``).
        exclude: globs, of which it must match none.
        regex: an expression that must be found in it.
        kinds: only variables of these.
        sort: an order other than that of the keys or names; of a series, in each of its
            checkpoints. By a figure: the largest first.
        naming: what variables are called.
        limits: bounds on what files may claim; None: those of this process.
        progress: called with bytes done and bytes in all.

    Raises:
        UsageError: id ``bad-regex``.
        CkpttoolError: as ``open_source`` and ``series_of``.
    """
    limits = limits or default_limits()
    order = _Order(tuple(names), wanted(include, exclude, regex, kinds), sort, naming)
    series = series_of(address, limits)
    source = None if series else open_source(address, limits)
    return Stats(address, source, series, order, limits, progress)


#: Orders that are known before anything is read.
_BEFORE: dict[SortKey | None, Callable[[tuple[Picked, str]], tuple[object, ...]]] = {
    "name": lambda chosen: (chosen[1],),
    "bytes": lambda chosen: (-(chosen[0].nbytes or 0), chosen[1]),
    "params": lambda chosen: (-chosen[0].selection.size, chosen[1]),
}
#: Orders by a figure.
_AFTER: dict[SortKey | None, Callable[[Figures], float | None]] = {
    "min": lambda figures: figures.minimum,
    "max": lambda figures: figures.maximum,
    "mean": lambda figures: figures.mean,
    "std": lambda figures: figures.std,
    "norm": lambda figures: figures.norm,
    "zeros": lambda figures: figures.zeros,
    "bad": lambda figures: figures.nan + figures.inf,
}


def _largest_first(value: float | None) -> tuple[bool, float]:
    """Sorts numbers from the largest to the least, and what has none after them."""
    return value is None, 0.0 if value is None else -value
