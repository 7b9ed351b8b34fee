"""What a benchmark found, and what it should be: one table of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Figure", "show"]


class Figure(NamedTuple):
    """One figure.

    Attributes:
        what: what was measured, and its unit.
        value: the median, where there were several runs.
        most, least: what it may be; both None: there is no target.
        worst: of the runs; None: it was one.
    """

    what: str
    value: float
    most: float | None = None
    least: float | None = None
    worst: float | None = None

    @property
    def missed(self) -> bool:
        """Whether the target is missed."""
        above = self.most is not None and self.value > self.most
        return above or (self.least is not None and self.value < self.least)

    @property
    def target(self) -> str:
        """The target as a person writes it; empty where there is none."""
        if self.most is not None:
            return f"≤ {_short(self.most)}"
        return "" if self.least is None else f"≥ {_short(self.least)}"


def show(figures: Iterable[Figure]) -> bool:
    """Print a Markdown table, a line as soon as it is known; whether a target is missed."""
    print("| what | target | reached | worst | |", flush=True)
    print("|---|---|---|---|---|", flush=True)
    missed = False
    for figure in figures:
        verdict = "missed" if figure.missed else "ok" if figure.target else ""
        worst = "" if figure.worst is None else _short(figure.worst)
        cells = (figure.what, figure.target, _short(figure.value), worst, verdict)
        print(f"| {' | '.join(cells)} |", flush=True)
        missed = missed or figure.missed
    return missed


def _short(value: float) -> str:
    """Three digits, and no more than two behind the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".")
