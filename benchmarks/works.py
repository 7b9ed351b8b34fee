"""The rows of the table: which work, by which two commands, with which target."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.data import EMBEDDING, GIGABYTE_TENSORS, prepare
from benchmarks.measure import ROOT, Comparison, Failed, compare, run

__all__ = ["WORKS", "Result", "Work"]

MB = 10**6

#: As the console script does, for the tree that this file lies in.
CKPTTOOL = [sys.executable, "-c", "from ckpttool.cli.main import run; run()"]


@dataclass(frozen=True, slots=True)
class Result:
    """A finished row; ``misses`` says which targets were not reached."""

    work: str
    comparison: Comparison
    target: str
    reached: str
    misses: tuple[str, ...]


class Work(Protocol):
    """One row: a name to ask for it by, and the measurement."""

    @property
    def name(self) -> str: ...

    def measure(self, cache: Path, pairs: int) -> Result:
        """Make what is needed, run both sides in turn, hold the figures to the target."""
        ...


def _theirs(script: str, *args: str) -> list[str]:
    return [sys.executable, str(ROOT / "benchmarks" / "tensorflow_side" / script), *args]


def _judge(comparison: Comparison, times: float, memory_mb: float | None) -> tuple[str, list[str]]:
    """The target in words, and what of it was missed."""
    target, misses = f"≥ {times:g}×", []
    if comparison.times < times:
        misses.append(f"{comparison.times:.1f}× is below {times:g}×")
    if memory_mb is not None:
        target += f", ≤ {memory_mb:g} MB"
        if comparison.rss > memory_mb * MB:
            misses.append(f"{comparison.rss / MB:.0f} MB is over {memory_mb:g} MB")
    return target, misses


def _expect_lines(variables: int) -> Callable[[str, str], None]:
    """Both listings have a line for each variable (ours may have one more: the graph)."""

    def check(ours: str, theirs: str) -> None:
        for who, path in (("ckpttool", ours), ("TensorFlow", theirs)):
            with open(path, "rb") as listing:  # line by line: see measure.py on memory
                lines = sum(1 for _ in listing)
            if not variables <= lines <= variables + 3:
                raise Failed(f"{who} listed {lines} lines of {variables} variables")

    return check


@dataclass(frozen=True, slots=True)
class List:
    """Names, dtypes and shapes of many variables, piped."""

    name: str
    data: str
    variables: int
    times: float
    memory_mb: float | None = None

    def measure(self, cache: Path, pairs: int) -> Result:
        prefix = prepare(cache, self.data)
        comparison = compare(
            [*CKPTTOOL, "list", prefix],
            _theirs("list_variables.py", prefix),
            pairs,
            _expect_lines(self.variables),
        )
        target, misses = _judge(comparison, self.times, self.memory_mb)
        style = "object-based" if self.data.startswith("objects") else "name-based"
        work = f"`list`, {self.variables:,} variables, {style}"
        return Result(work, comparison, target, f"{comparison.times:.1f}×", tuple(misses))


@dataclass(frozen=True, slots=True)
class Help:
    """Start-up: nothing but the help, against nothing but click."""

    name: str = "help"
    most: float = 1.5

    def measure(self, cache: Path, pairs: int) -> Result:
        del cache
        ours, theirs = [*CKPTTOOL, "--help"], [sys.executable, "-c", "import click"]
        comparison = compare(ours, theirs, 3 * pairs)  # each run is a few hundredths
        longer = 1 / comparison.times
        misses = [f"{longer:.2f}× is over {self.most}×"] if longer > self.most else []
        work = "`--help`, against `python -c 'import click'`"
        return Result(work, comparison, f"≤ {self.most}×", f"{longer:.2f}×", tuple(misses))


@dataclass(frozen=True, slots=True)
class LoadRows:
    """Ten rows of a 512 MB embedding into a .npy file."""

    name: str = "load"
    rows: int = 10
    times: float = 35
    memory_mb: float = 30

    def measure(self, cache: Path, pairs: int) -> Result:
        prefix = prepare(cache, "gigabyte")
        ours, theirs = str(cache / "ours.npy"), str(cache / "theirs.npy")
        what = f"{EMBEDDING}[0:{self.rows}]"

        def check(*outputs: str) -> None:
            del outputs
            if Path(ours).read_bytes() != Path(theirs).read_bytes():
                raise Failed(f"{ours} and {theirs} differ")

        comparison = compare(
            [*CKPTTOOL, "load", prefix, what, "-o", ours, "--overwrite"],
            _theirs("load_rows.py", prefix, EMBEDDING, str(self.rows), theirs),
            pairs,
            check,
        )
        target, misses = _judge(comparison, self.times, self.memory_mb)
        work = f"`load` rows 0..{self.rows} of a 512 MB embedding to .npy"
        return Result(work, comparison, target, f"{comparison.times:.1f}×", tuple(misses))


@dataclass(frozen=True, slots=True)
class Verify:
    """Every checksum of a gigabyte in the page cache."""

    name: str = "verify"
    times: float = 12
    memory_mb: float = 60
    gigabytes_per_second: float = 4

    def measure(self, cache: Path, pairs: int) -> Result:
        prefix, tiny = prepare(cache, "gigabyte"), prepare(cache, "names-10")
        nbytes = sum(path.stat().st_size for path in Path(prefix).parent.iterdir())
        comparison = compare([*CKPTTOOL, "verify", prefix], _theirs("read_all.py", prefix), pairs)
        start_up = min(run([*CKPTTOOL, "verify", tiny]).cpu for _ in range(pairs))
        rate = nbytes / (comparison.cpu - start_up) / 1e9
        target, misses = _judge(comparison, self.times, self.memory_mb)
        if rate < self.gigabytes_per_second:
            misses.append(f"{rate:.1f} GB/s is below {self.gigabytes_per_second:g} GB/s")
        work = f"`verify`, {nbytes / 1e9:.3f} GB in {GIGABYTE_TENSORS} variables, warm"
        target += f", ≥ {self.gigabytes_per_second:g} GB/s past start-up"
        reached = f"{comparison.times:.1f}×, {rate:.1f} GB/s"
        return Result(work, comparison, target, reached, tuple(misses))


def _expect_figures(ours: str, theirs: str) -> None:
    """Both sides say the same of every variable, to five digits."""
    rows = []
    for path in (ours, theirs):
        with open(path, encoding="utf-8") as lines:
            cells = (line.rstrip("\n").split("\t") for line in lines)
            rows.append(sorted((one[2:8] if path == ours else one[:6]) for one in cells))
    if len(rows[0]) != len(rows[1]) or not rows[0]:
        raise Failed(f"{len(rows[0])} and {len(rows[1])} variables differ")
    for mine, other in zip(*rows, strict=True):
        for one, two in zip(mine[1:], other[1:], strict=False):
            if abs(float(one) - float(two)) > 1e-5 * abs(float(two)):
                raise Failed(f"{mine} is not {other}")


def _expect_rows(ours: str, theirs: str) -> None:
    """Both sides say the same extremes, mean, deviation and norm of every variable."""
    found: list[dict[str, list[float]]] = []
    for path, first in ((ours, 4), (theirs, 1)):
        with open(path, encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        found.append({row[0]: list(map(float, row[first : first + 8])) for row in rows})
    mine, others = found
    if mine.keys() != others.keys() or not mine:
        raise Failed(f"figures of {len(mine)} and {len(others)} variables")
    for name, figures in mine.items():
        for one, other in zip(figures, others[name], strict=True):
            if abs(one - other) > 1e-6 * max(1.0, abs(other)):
                raise Failed(f"{name}: {figures} is not {others[name]}")


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures and a histogram of every variable of a gigabyte in the page cache."""

    name: str = "stats"
    times: float = 3
    memory_mb: float = 150

    def measure(self, cache: Path, pairs: int) -> Result:
        prefix = prepare(cache, "gigabyte")
        comparison = compare(
            [*CKPTTOOL, "stats", prefix], _theirs("stats.py", prefix), pairs, _expect_rows
        )
        target, misses = _judge(comparison, self.times, self.memory_mb)
        work = f"`stats` of 1.008 GB in {GIGABYTE_TENSORS} variables, warm"
        return Result(work, comparison, target, f"{comparison.times:.1f}×", tuple(misses))


@dataclass(frozen=True, slots=True)
class Diff:
    """Every value of two gigabytes in the page cache: all of them differ, or none does."""

    name: str
    other: str
    times: float = 3
    memory_mb: float = 150

    def measure(self, cache: Path, pairs: int) -> Result:
        a, b = prepare(cache, "moved-1"), prepare(cache, self.other)
        same = a == b
        comparison = compare(
            [*CKPTTOOL, "diff", a, b],
            _theirs("diff.py", a, b),
            pairs,
            None if same else _expect_figures,
            ends=0 if same else 1,
        )
        target, misses = _judge(comparison, self.times, self.memory_mb)
        work = f"`diff` of the values of 2 × 1 GB, {'none differs' if same else 'all differ'}"
        return Result(work, comparison, target, f"{comparison.times:.1f}×", tuple(misses))


@dataclass(frozen=True, slots=True)
class InspectGraph:
    """What is in a large MetaGraph: ops, placeholders, likely inputs and outputs."""

    name: str = "graph"
    nodes: int = 300_000
    times: float = 5

    def measure(self, cache: Path, pairs: int) -> Result:
        path = prepare(cache, f"graph-{self.nodes}")

        def check(ours: str, theirs: str) -> None:
            """Both counted the same ops (one line each in both listings)."""
            counts = [
                {tuple(line.split("\t")[-2:]) for line in Path(output).read_text().splitlines()}
                for output in (ours, theirs)
            ]
            missing = {one for one in counts[1] if len(one) == 2} - counts[0]
            if missing:
                raise Failed(f"ckpttool did not count {sorted(missing)[:3]}")

        comparison = compare(
            [*CKPTTOOL, "inspect", path, "--graph"], _theirs("import_graph.py", path), pairs, check
        )
        target, misses = _judge(comparison, self.times, None)
        size = Path(path).stat().st_size / MB
        work = f"`inspect --graph`, {self.nodes:,} nodes, {size:.0f} MB"
        return Result(work, comparison, target, f"{comparison.times:.1f}×", tuple(misses))


WORKS: tuple[Work, ...] = (
    Help(),
    List("list-10", "names-10", 10, times=40),
    List("list-1k", "names-1000", 1_000, times=40),
    List("list-100k", "names-100000", 100_000, times=25, memory_mb=50),
    List("list-100k-objects", "objects-100000", 100_000, times=7),
    List("list-1m", "names-1000000", 1_000_000, times=12, memory_mb=110),
    LoadRows(),
    Verify(),
    InspectGraph(),
    Stats(),
    Diff("diff", "moved-2"),
    Diff("diff-same", "moved-1"),
)
