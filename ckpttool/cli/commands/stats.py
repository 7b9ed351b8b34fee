"""``ckpttool stats``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.stats import StatsView
from ckpttool.ops.stats import SORTS, SortKey, stats

if TYPE_CHECKING:
    from ckpttool.model import Kind
    from ckpttool.sources.base import NameStyle

__all__ = ["command"]


@options.command(
    "stats",
    examples=[
        "ckpttool stats run/ --kind model --sort norm",
        "ckpttool stats run/@1000 'emb[0:10]'",
        "ckpttool stats 'run/@*' dense/kernel --check",
    ],
    epilog="Exit codes: 0 done, 1 --check found NaN or Inf, 3 not all could be read.",
)
@options.source
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=options.complete_variables)
@options.filters
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="An order other than that of the keys; by a number: the largest first.",
)
@click.option("--check", is_flag=True, help="Exit with 1 where there is a NaN or an Inf.")
@options.naming
@options.progress
@options.output(ndjson=True, notes=True)
def command(
    out: Output,
    source: str,
    names: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    regex: str | None,
    kinds: tuple[Kind, ...],
    sort: SortKey | None,
    check: bool,
    naming: NameStyle,
) -> int:
    """Say what values variables have: extremes, mean, norm, zeros, NaN, Inf, histogram.

    Without a NAME of all variables that hold numbers. A NAME may be a pattern, and may
    choose a part, as of load. Everything but the counts of NaN and Inf (together: bad) is of
    the finite values. In memory is a piece of some MiB at a time, whatever the size.

    RUN/@* (in quotes, for the shell) is every whole checkpoint of a run: it shows a variable
    along the run, and the first checkpoint with a NaN or an Inf.

    In a pipe: tab-separated lines of name, dtype, shape, values, min, max, mean, std, norm,
    zeros, NaN, Inf; of a run with the checkpoint and its step before these.
    """
    with out.progress("stats") as report:
        measured = stats(
            source,
            names,
            include=include,
            exclude=exclude,
            regex=regex,
            kinds=kinds,
            sort=sort,
            naming=naming,
            progress=report,
        )
        with measured:
            for note in measured.notes:
                out.note(note)
            return out.show(StatsView(measured, check=check))
