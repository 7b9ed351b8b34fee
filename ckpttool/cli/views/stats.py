"""How ``stats`` looks: a line a variable; of a run also how it went along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ckpttool.cli.jsontext import exact
from ckpttool.cli.screen import Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.errors import PartialError
from ckpttool.model import shape_text
from ckpttool.ops.figures.model import Figures, Number
from ckpttool.ops.stats import FirstBad, Row, Skipped, Stats
from ckpttool.sources.series import Member, Series

__all__ = ["StatsView", "figures_data"]

_T = TypeVar("_T")

#: Errors of variables that are said; the rest are counted.
_SAID = 20


class StatsView(View):
    """Figures that are still to be computed, row by row."""

    command = "stats"
    record_type = "variable"

    def __init__(self, stats: Stats, *, check: bool) -> None:
        self._stats = stats
        self._check = check

    @property
    def exit_code(self) -> int:
        """1: ``--check`` found something; 3: something could not be read."""
        if self._check and self._stats.bad:
            return 1
        return PartialError.exit_code if self._stats.failed else 0

    @property
    def warnings(self) -> Sequence[str]:
        stats = self._stats
        said = [str(failed.error) for failed in stats.failed[:_SAID]]
        if len(stats.failed) > _SAID:
            said.append(f"{len(stats.failed) - _SAID} more cannot be read")
        said += [f"{member.address} is left out: {error}" for member, error in stats.absent[:_SAID]]
        if not stats.count and not stats.failed:
            where = stats.source.location if stats.source else stats.address
            said.append(f"no variable that holds numbers is chosen of {where}")
        return said

    def plain(self) -> Iterator[str]:
        yield from tab_lines(map(_cells, self._stats.rows()))

    def human(self, screen: Screen) -> Iterator[object]:
        from ckpttool.cli.views.stats_human import human

        return human(self._stats, screen)

    def data(self) -> Mapping[str, object]:
        stats = self._stats
        # Generators, so that they are read after the rows: only then all is known.
        return {
            "source": stats.address,
            "series": _series(stats.series),
            "variables": self.records(),
            "skipped": map(_skipped, _late(stats.skipped)),
            "first_bad": map(_first_bad, _late(stats.first_bad.values())),
        }

    def records(self) -> Iterator[Mapping[str, object]]:
        return map(_record, self._stats.rows())

    def summary(self) -> Mapping[str, object]:
        stats = self._stats
        return {
            "source": stats.address,
            "series": _series(stats.series),
            "skipped": list(map(_skipped, stats.skipped)),
            "first_bad": list(map(_first_bad, stats.first_bad.values())),
        }


def _late(found: Iterable[_T]) -> Iterator[_T]:
    """The same, not looked at before it is asked for."""
    yield from found


def _skipped(item: Skipped) -> dict[str, object]:
    return {"name": item.name, "dtype": item.dtype}


def _cells(row: Row) -> tuple[str, ...]:
    figures = row.figures
    cells = (
        row.name,
        row.item.dtype,
        shape_text(row.item.shape),
        str(figures.count),
        *map(_text, (figures.minimum, figures.maximum, figures.mean, figures.std, figures.norm)),
        str(figures.zeros),
        str(figures.nan),
        str(figures.inf),
    )
    if row.member is None:
        return cells
    step = row.member.step
    return row.member.address, "" if step is None else str(step), *cells


def _text(value: Number | None) -> str:
    return "" if value is None else repr(value)


def _record(row: Row) -> dict[str, object]:
    figures = row.figures
    key = row.item.variable.key
    return {
        "name": row.name,
        "key": key,
        **exact("key", key),
        "dtype": row.item.dtype,
        "shape": row.item.shape,
        "kind": row.item.variable.kind,
        "checkpoint": None if row.member is None else _member(row.member),
        **figures_data(figures),
    }


def figures_data(figures: Figures) -> dict[str, object]:
    """Figures as JSON; infinite ones are null there."""
    histogram = figures.histogram
    return {
        "values": figures.count,
        "min": figures.minimum,
        "max": figures.maximum,
        "mean": figures.mean,
        "std": figures.std,
        "zeros": figures.zeros,
        "nan": figures.nan,
        "inf": figures.inf,
        "norm": figures.norm,
        "histogram": None
        if histogram is None
        else {"edges": histogram.edges, "counts": histogram.counts},
    }


def _member(member: Member) -> dict[str, object]:
    return {
        "prefix": member.address,
        **exact("prefix", member.address),
        "step": member.step,
    }


def _series(series: Series | None) -> dict[str, object] | None:
    if series is None:
        return None
    return {
        "directory": series.directory,
        "checkpoints": list(map(_member, series.members)),
        "passed_over": [{"prefix": prefix, "why": why} for prefix, why in series.passed_over],
    }


def _first_bad(found: FirstBad) -> dict[str, object]:
    return {
        "name": found.name,
        "checkpoint": _member(found.member),
        "nan": found.nan,
        "inf": found.inf,
    }
