"""The report: what `inspect` says of a source, and the figures of its variables. Data only.

Bounded: of very many variables the largest have a row, and so has (up to a bound of its
own) what is not finite or cannot be read; the others are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappush, heappushpop
from typing import NamedTuple

from ckpttool.errors import ChangedError, CkpttoolError
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Variable
from ckpttool.ops.figures.model import Figures
from ckpttool.ops.inspect import InspectResult, inspect
from ckpttool.ops.stats import Stats, stats

__all__ = ["Report", "ReportRow", "make_report"]

#: Variables that have a row.
ROWS = 2000
#: Variables with NaN or Inf, or an error, that have one whatever their size.
_REMARKABLE = 200
#: A graph says which variables there are, and has no values: that is no fault of theirs.
_NO_VALUES = "graph-without-values"

Progress = Callable[[int, int], None]


class ReportRow(NamedTuple):
    """A variable; ``figures`` are None where it holds no numbers, or could not be read."""

    variable: Variable
    figures: Figures | None
    error: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a report shows.

    Attributes:
        inspected: of the source, with the tree of scopes.
        rows: of variables, in the order of the source's keys.
        left_out: variables without a row.
        bad: how many variables have a NaN or an infinity.
        failed: how many could not be read (a graph has no values; that does not count).
    """

    inspected: InspectResult
    rows: tuple[ReportRow, ...]
    left_out: int
    bad: int
    failed: int


def make_report(
    address: str, *, limits: Limits | None = None, progress: Progress | None = None
) -> Report:
    """Look at a source and read every value of it once.

    Args:
        address: whatever has variables.
        limits: bounds on what files may claim; None: those of this process.
        progress: called with bytes done and bytes in all.

    Raises:
        CkpttoolError: as `inspect`.
        ChangedError: another program changed the files meanwhile.
    """
    limits = limits or default_limits()
    inspected = inspect(address, tree=True, limits=limits)
    if inspected.checkpoint is None:
        return Report(inspected, (), 0, 0, 0)
    rows = _Rows()
    with stats(inspected.checkpoint.prefix, limits=limits, progress=progress) as measured:
        _measure(measured, rows)
        return Report(inspected, rows.chosen(), rows.left_out, measured.bad, rows.failed)


def _measure(measured: Stats, rows: _Rows) -> None:
    try:
        for row in measured.rows():
            rows.add(ReportRow(row.item.variable, row.figures, ""), remarkable=row.figures.bad)
    except ChangedError:
        raise
    except CkpttoolError:
        if not measured.failed:  # else nothing at all could be read, which the rows say
            raise
    for skipped in (*measured.skipped, *measured.failed):
        error = skipped.error
        if error is not None and error.id == _NO_VALUES:
            error = None
        if skipped.item is not None:
            why = "" if error is None else str(error)
            rows.add(ReportRow(skipped.item.variable, None, why), remarkable=bool(why))
            rows.failed += error is not None


class _Rows:
    """Keeps the rows that matter most: the largest, and what is remarkable.

    ``failed`` counts the variables that could not be read.
    """

    def __init__(self) -> None:
        self.failed = 0
        self._seen = 0
        self._remarkable: list[ReportRow] = []
        self._largest: list[tuple[int, int, ReportRow]] = []  # a heap, the smallest first

    def add(self, row: ReportRow, *, remarkable: bool) -> None:
        self._seen += 1
        if remarkable and len(self._remarkable) < _REMARKABLE:
            self._remarkable.append(row)
            return
        item = (row.variable.nbytes, -self._seen, row)
        if len(self._largest) < ROWS:
            heappush(self._largest, item)
        else:
            heappushpop(self._largest, item)

    def chosen(self) -> tuple[ReportRow, ...]:
        rows = [*self._remarkable, *(row for *_, row in self._largest)]
        rows.sort(key=lambda row: row.variable.key)
        return tuple(rows)

    @property
    def left_out(self) -> int:
        return self._seen - len(self._remarkable) - len(self._largest)
