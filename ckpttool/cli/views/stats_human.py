"""``stats`` for people: a table with small bars; one variable in full; a run as a course."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckpttool.cli.bars import bars, line
from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen
from ckpttool.model import shape_text
from ckpttool.ops.figures.model import Figures, Histogram, Number
from ckpttool.ops.stats import Row, Stats
from ckpttool.policy.words import count, plural
from ckpttool.sources.series import Series

__all__ = ["human", "short"]

#: Columns of the bars beside a bin, at the most.
_BAR = 40
#: Columns from which on the bars in a table are a bin each, and not two.
_WIDE = 120
#: Skipped variables that are named.
_NAMED = 3


def human(stats: Stats, screen: Screen) -> Iterator[object]:
    """Text and tables, in the order of reading."""
    if stats.series is not None:
        yield from _series(list(stats.rows()), stats, stats.series, screen)
    else:
        yield from _source(stats, screen)
    if stats.skipped:
        named = ", ".join(f"{item.name} ({item.dtype})" for item in stats.skipped[:_NAMED])
        more = len(stats.skipped) - _NAMED
        text = f"no numbers: {named}" + (f" and {more} more" if more > 0 else "")
        yield screen.text(screen.style(escape(text), "dim"), hang=2)


def short(value: Number | None) -> str:
    """A number for a table: four digits, integers whole while they are short."""
    if value is None:
        return "-"
    if isinstance(value, int) and abs(value) < 10**9:
        return str(value)
    return f"{value:.4g}"


# One source -------------------------------------------------------------------------------


def _source(stats: Stats, screen: Screen) -> Iterator[object]:
    rows = stats.rows()
    first, second = next(rows, None), next(rows, None)
    if first is None:
        return
    if second is None:
        yield from _one(first, screen)
        return

    def all_rows() -> Iterator[Row]:
        yield first
        yield second
        yield from rows

    columns = (
        Column("name", style="cyan"),
        Column("shape", drop=2),
        Column("min", "right"),
        Column("max", "right"),
        Column("mean", "right", drop=4),
        Column("std", "right", drop=5),
        Column("norm", "right", drop=3),
        Column("zeros", "right", drop=1),
        Column("bad", style="bold red"),
        Column("values", style="dim", drop=6),
    )
    yield from screen.table(columns, (_table_cells(row, screen) for row in all_rows()))
    values = f"{stats.parameters:,} {plural(stats.parameters, 'value')}"
    total = f"{count(stats.count, 'variable')}, {values}"
    if stats.bad:
        verdict = screen.style(f"{stats.bad:,} with NaN or Inf", "bold red")
    else:
        verdict = screen.style("no NaN, no Inf", "green")
    yield f"{screen.style(total + ',', 'dim')} {verdict}\n"


def _table_cells(row: Row, screen: Screen) -> tuple[str, ...]:
    figures = row.figures
    return (
        row.name,
        shape_text(row.item.shape),
        short(figures.minimum),
        short(figures.maximum),
        short(figures.mean),
        short(figures.std),
        short(figures.norm),
        _share(figures.zeros, figures.count),
        _bad(figures),
        _bars(figures.histogram, screen),
    )


def _share(part: int, whole: int) -> str:
    """``0``, or a percentage that is neither 0 nor 100 while it is not."""
    if not part:
        return "0"
    percent = part / whole
    if percent < 0.001:
        return "<0.1%"
    return f"{percent:.0%}" if percent == 1 else f"{min(percent, 0.999):.1%}"


def _bad(figures: Figures) -> str:
    words = [f"{n:,} {word}" for n, word in ((figures.nan, "NaN"), (figures.inf, "Inf")) if n]
    return ", ".join(words)


def _bars(histogram: Histogram | None, screen: Screen) -> str:
    if histogram is None or len(histogram.counts) == 1:
        return ""
    counts = histogram.counts
    if screen.width < _WIDE and len(counts) % 2 == 0:
        counts = tuple(map(sum, zip(counts[::2], counts[1::2], strict=True)))
    return bars(counts, unicode=screen.unicode).rstrip()


def _one(row: Row, screen: Screen) -> Iterator[str]:
    """One variable: every figure, and its histogram bin by bin."""
    figures = row.figures
    what = f"{row.item.dtype} {shape_text(row.item.shape)}"
    name = screen.style(escape(row.name), "bold")
    yield screen.text(f"{name}  {what}  {screen.style(row.item.variable.kind, 'dim')}") + "\n"
    facts = [
        ("values", f"{figures.count:,}"),
        ("min", short(figures.minimum)),
        ("max", short(figures.maximum)),
        ("mean", short(figures.mean)),
        ("std", short(figures.std)),
        ("norm", short(figures.norm)),
        ("zeros", f"{figures.zeros:,}"),
        ("NaN", f"{figures.nan:,}"),
        ("Inf", f"{figures.inf:,}"),
    ]
    for label, text in facts:
        style = "bold red" if label in {"NaN", "Inf"} and text != "0" else ""
        yield f"  {screen.style(f'{label:<7}', 'dim')} {screen.style(text, style)}\n"
    if figures.histogram is not None and len(figures.histogram.counts) > 1:
        yield "\n"
        yield from _bins(figures.histogram, screen)


def _bins(histogram: Histogram, screen: Screen) -> Iterator[str]:
    """A line a bin: from its left edge, how many values, and a bar."""
    most = max(histogram.counts)
    edges = [short(edge) for edge in histogram.edges]
    wide = max(map(len, edges))
    counts = [f"{n:,}" for n in histogram.counts]
    room = max(map(len, counts))
    bar = max(1, min(_BAR, screen.width - wide - room - 6))
    block = "█" if screen.unicode else "#"
    for edge, text, n in zip(edges, counts, histogram.counts, strict=False):
        length = 0 if not n else max(1, round(n / most * bar))
        line = f"  {edge:>{wide}}  {text:>{room}}  {screen.style(block * length, 'cyan')}"
        yield line.rstrip() + "\n"
    yield f"  {edges[-1]:>{wide}}\n"


# A run ------------------------------------------------------------------------------------


def _series(rows: Sequence[Row], stats: Stats, series: Series, screen: Screen) -> Iterator[object]:
    if not rows:
        return
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    along = f"along {escape(series.directory)} ({count(len(series.members), 'checkpoint')})"
    if len(by_name) == 1:
        yield from _course(rows, along, screen)
    else:
        yield screen.text(screen.style(f"{len(by_name)} variables {along}", "bold")) + "\n"
        yield from _courses(by_name, screen)
    yield "\n"
    yield from _verdict(stats, screen)


def _course(rows: Sequence[Row], along: str, screen: Screen) -> Iterator[object]:
    """One variable: a line a checkpoint."""
    item = rows[-1].item
    name = screen.style(escape(rows[-1].name), "bold")
    yield screen.text(f"{name}  {item.dtype} {shape_text(item.shape)}  {along}") + "\n"
    columns = (
        Column("  step", "right", style="cyan"),
        Column("min", "right"),
        Column("max", "right"),
        Column("mean", "right", drop=2),
        Column("std", "right", drop=3),
        Column("norm", "right"),
        Column("zeros", "right", drop=1),
        Column("bad", style="bold red"),
        Column("values", style="dim", drop=4),
    )
    yield from screen.table(columns, ((_step(row), *_table_cells(row, screen)[2:]) for row in rows))
    yield "\n"
    for label, values in (
        ("mean", [row.figures.mean for row in rows]),
        ("norm", [row.figures.norm for row in rows]),
    ):
        ends = f"{short(values[0])} → {short(values[-1])}"
        arrow = ends if screen.unicode else ends.replace("→", "->")
        course = screen.style(
            line(_thinned(values, screen.width // 2), unicode=screen.unicode), "cyan"
        )
        yield screen.text(f"  {screen.style(label, 'dim')}  {course}  {arrow}")


def _courses(by_name: dict[str, list[Row]], screen: Screen) -> Iterator[object]:
    """Several variables: a line each."""
    columns = (
        Column("  name", style="cyan"),
        Column("norm, first", "right", drop=1),
        Column("last", "right", drop=2),
        Column("along the run", drop=3),
        Column("bad from step", style="bold red"),
    )
    half = max(screen.width // 3, 8)

    def cells(name: str, rows: list[Row]) -> tuple[str, ...]:
        norms = [row.figures.norm for row in rows]
        bad = next((row for row in rows if row.figures.bad), None)
        return (
            f"  {name}",
            short(norms[0]),
            short(norms[-1]),
            line(_thinned(norms, half), unicode=screen.unicode),
            "" if bad is None else _step(bad),
        )

    yield from screen.table(columns, (cells(name, rows) for name, rows in by_name.items()))


def _verdict(stats: Stats, screen: Screen) -> Iterator[str]:
    """Where a NaN or an infinity is first met, variable by variable."""
    if not stats.first_bad:
        yield screen.style("no NaN, no Inf", "green") + "\n"
    for found in sorted(stats.first_bad.values(), key=lambda found: found.member.step or 0):
        words = [f"{n:,} {word}" for n, word in ((found.nan, "NaN"), (found.inf, "Inf")) if n]
        step = "" if found.member.step is None else f"step {found.member.step}, "
        where = f"{escape(found.name)}: first in {step}{escape(found.member.address)}"
        yield screen.text(f"{screen.style(where, 'bold red')} ({', '.join(words)})")


def _step(row: Row) -> str:
    assert row.member is not None, "rows of a series have one"
    return "-" if row.member.step is None else str(row.member.step)


def _thinned(values: Sequence[float | None], room: int) -> Sequence[float | None]:
    """At most ``room`` of the values, at equal distances, both ends among them."""
    if len(values) <= room:
        return values
    last = len(values) - 1
    return [values[round(place * last / (room - 1))] for place in range(room)]
