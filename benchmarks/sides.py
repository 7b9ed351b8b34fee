"""Works that write, measured against TensorFlow and against cp: a row a work.

All sides in turn, whole processes, CPU time: making bytes durable (fsync, which neither
TensorFlow nor cp does) is measured apart, in a run of its own, and not counted. The table
says what it costs.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measure import ROOT, Failed, Sample, alternate, run, show
from benchmarks.works import CKPTTOOL, MB

__all__ = ["CP", "Rows", "Sides", "durability", "fresh", "options", "report", "tensorflow"]

CP = ["/bin/cp", "-r"]
_HEAD = ("work", "target", "reached", "", "ckpttool", "fsync: CPU (waiting)", "TensorFlow", "cp")


@dataclass(frozen=True, slots=True)
class Sides:
    """One work: how we, TensorFlow and cp are told to do it, with ``OUT`` for the result."""

    name: str
    work: str
    ours: list[str]
    theirs: list[str] | None
    copied: str | None
    times: float | None = None
    most_of_cp: float | None = None
    memory_mb: float | None = None


#: The rows by name; the data of each is made when its row is due.
Rows = Mapping[str, Callable[[], Sides]]


def tensorflow(script: str, *args: str) -> list[str]:
    """The command line of one of TensorFlow's sides."""
    return [sys.executable, str(ROOT / "benchmarks" / "tensorflow_side" / script), *args]


def options(prog: str, description: str | None) -> argparse.ArgumentParser:
    """What every such benchmark can be told."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("works", nargs="*", metavar="WORK", help="names of rows [all]")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each side [9]")
    parser.add_argument("--cache", type=Path, default=ROOT / "benchmarks" / ".cache")
    return parser


def report(
    chosen: argparse.Namespace,
    folder: str,
    rows_of: Callable[[Path, Path], Rows],
    then: Callable[[Path, Path], None] | None = None,
) -> int:
    """Measure, print the table, and give the exit code: 1 where a target is missed.

    Args:
        chosen: what ``options`` was told.
        folder: where results go, below the cache; removed in the end.
        rows_of: the rows, of the cache and that folder.
        then: called with both when the table is done.
    """
    compileall.compile_dir(ROOT / "ckpttool", quiet=1)
    cache: Path = chosen.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    out = cache / folder
    misses: list[str] = []
    try:
        show(_HEAD)
        show(("---",) * len(_HEAD))
        for name, row in rows_of(cache, out).items():
            if not chosen.works or name in chosen.works:
                cells, missed = _measure(row(), cache, out, chosen.rounds)
                show(cells)
                misses += missed
        if then is not None:
            then(cache, out)
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(out, ignore_errors=True)
    for line in misses:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(misses))


def fresh(cache: Path, out: Path, name: str = "") -> None:
    """An empty place for the result; for a merge with pieces that may be renamed."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if name == "merge":
        for number in range(4):
            folder = out / f"piece-{number}"
            folder.mkdir()
            for path in (cache / f"piece-{number}").iterdir():
                os.link(path, folder / path.name)


def durability(arguments: Sequence[str], out: Path, before: Callable[[], None]) -> Sample:
    """What fsync costs in one more run: CPU seconds, and seconds that pass."""
    before()
    figures = out.with_name("durability")
    run([sys.executable, "-m", "benchmarks.durability", str(figures), *arguments])
    cpu, wall = map(float, figures.read_text().split())
    return Sample(cpu, wall, 0)


def _measure(
    sides: Sides, cache: Path, out: Path, rounds: int
) -> tuple[tuple[str, ...], list[str]]:
    """The cells of a row, and what of its target was missed."""
    before = partial(fresh, cache, out, sides.name)
    commands = [[*CKPTTOOL, *sides.ours]]
    commands += [sides.theirs] if sides.theirs else []
    commands += [[*CP, sides.copied, str(out / "copy")]] if sides.copied else []
    taken = alternate(commands, rounds, before)
    durable = [durability(sides.ours, out, before) for _ in range(min(rounds, 3))]
    fsync = median(sample.cpu for sample in durable)
    waited = median(sample.wall for sample in durable)
    ours, *others = taken
    cpu = median(sample.cpu for sample in ours) - fsync
    rss = max(sample.rss for sample in ours)
    target, reached, misses = [], [], []
    theirs, copy = "", ""
    if sides.theirs:
        samples = others.pop(0)
        times = median(b.cpu / (a.cpu - fsync) for a, b in zip(ours, samples, strict=True))
        reached.append(f"{times:.1f}×")
        theirs = (
            f"{median(s.cpu for s in samples):.2f} s, {max(s.rss for s in samples) / MB:.0f} MB"
        )
        if sides.times is not None:
            target.append(f"≥ {sides.times:g}×")
            if times < sides.times:
                misses.append(f"{times:.1f}× is below {sides.times:g}×")
    if sides.copied:
        samples = others.pop(0)
        longer = median((a.cpu - fsync) / b.cpu for a, b in zip(ours, samples, strict=True))
        copy = f"{median(s.cpu for s in samples):.2f} s"
        reached.append(f"{longer:.2f}× cp")
        if sides.most_of_cp is not None:
            target.append(f"≤ {sides.most_of_cp:g}× cp")
            if longer > sides.most_of_cp:
                misses.append(f"{longer:.2f}× cp is over {sides.most_of_cp:g}×")
    if sides.memory_mb is not None:
        target.append(f"≤ {sides.memory_mb:g} MB")
        if rss > sides.memory_mb * MB:
            misses.append(f"{rss / MB:.0f} MB is over {sides.memory_mb:g} MB")
    cells = (
        sides.work,
        ", ".join(target),
        ", ".join(reached),
        "missed" if misses else "ok",
        f"{cpu:.2f} s, {rss / MB:.0f} MB",
        f"{fsync:.2f} s ({waited:.2f} s)",
        theirs,
        copy,
    )
    return cells, [f"{sides.name}: {miss}" for miss in misses]
