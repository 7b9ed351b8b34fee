"""`python -m benchmarks.writing`: the commands that write, against TensorFlow and against cp.

All sides in turn, whole processes, CPU time: making bytes durable (fsync, which neither
TensorFlow nor cp does) is measured apart, in a run of its own, and not counted. The table
says what it costs. ``--full`` also measures checkpoints of 4 and 8 GB.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.data import prepare
from benchmarks.measure import ROOT, Failed, Sample, alternate, run
from benchmarks.works import CKPTTOOL, MB

__all__ = ["main"]

CP = ["/bin/cp", "-r"]


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


def tensorflow(script: str, *args: str) -> list[str]:
    """The command line of one of TensorFlow's sides."""
    return [sys.executable, str(ROOT / "benchmarks" / "tensorflow_side" / script), *args]


def works(cache: Path, out: Path) -> list[Callable[[], Sides]]:
    """The rows; the data of each is made when its row is due."""
    to = str(out / "m")

    def shards(*extra: str) -> Callable[[], Sides]:
        def row() -> Sides:
            source = prepare(cache, "gigabyte")
            checked = "--verify-source" in extra
            return Sides(
                "shards-checked" if checked else "shards",
                f"1 GB, 1 → 4 data files{', every checksum verified' if checked else ''}",
                ["repartition", source, to, "--shards", "4", *extra],
                tensorflow("repartition.py", source, to, "4", "1"),
                os.path.dirname(source),
                8 if checked else 10,
                1.5 if checked else 1.2,
                50,
            )

        return row

    def partition() -> Sides:
        source = prepare(cache, "gigabyte")
        cuts = ["--slice", "embedding/*=axis0:4", "--slice", "block_*=axis0:4"]
        return Sides(
            "partition",
            "1 GB, 15 variables × 4 slices",
            ["repartition", source, to, *cuts],
            tensorflow("repartition.py", source, to, "1", "4"),
            os.path.dirname(source),
            times=8,
        )

    def merge() -> Sides:
        for number in range(4):
            prepare(cache, f"piece-{number}")
        linked = [str(out / f"piece-{number}" / "model.ckpt-1") for number in range(4)]
        return Sides(
            "merge",
            "4 × 250 MB merged, files renamed (`--link`)",
            ["merge", *linked, "-o", to, "--link"],
            tensorflow("merge.py", to, *linked),
            None,
            times=30,
        )

    def edit(name: str, work: str, times: float | None, *how: str) -> Callable[[], Sides]:
        def row() -> Sides:
            source = prepare(cache, "adam")
            return Sides(
                name,
                work,
                ["edit", source, to, *how],
                tensorflow("edit.py", source, to, name),
                None,
                times=times,
            )

        return row

    def average() -> Sides:
        sources = [prepare(cache, f"mean-{number}") for number in range(5)]
        return Sides(
            "average",
            "5 × 200 MB averaged",
            ["average", *sources, "-o", to],
            tensorflow("average.py", to, *sources),
            None,
            times=5,
            memory_mb=200,
        )

    return [
        shards(),
        shards("--verify-source"),
        partition,
        merge,
        edit("strip", "1 GB with Adam's slots, stripped of them", 10, "--strip-optimizer"),
        edit("rename", "1 GB, every variable renamed", None, "--rename", "s,^,new/,"),
        edit("cast", "1 GB, float32 → bfloat16", None, "--cast", "bfloat16"),
        average,
    ]


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


def measure(sides: Sides, cache: Path, out: Path, rounds: int) -> tuple[tuple[str, ...], list[str]]:
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


def scaling(cache: Path, out: Path, rounds: int, *, full: bool) -> None:
    """How cost grows with bytes and with the number of variables."""
    kinds = [("1 GB", "size-1"), ("2 GB", "size-2")]
    kinds += [("4 GB", "size-4"), ("8 GB", "size-8")] if full else []
    kinds += [(f"{10**n:,} variables", f"names-{10**n}") for n in (2, 4, 6)]
    show(("checkpoint", "1 → 4 data files", "fsync: CPU (waiting)", "renamed", "cp"))
    show(("---", "---:", "---:", "---:", "---:"))
    for words, kind in kinds:
        source, to = prepare(cache, kind), str(out / "m")
        shards = ["repartition", source, to, "--shards", "4"]
        renamed = ["edit", source, to, "--rename", "s,^,new/,"]
        copy = [*CP, os.path.dirname(source), str(out / "copy")]

        before = partial(fresh, cache, out)
        commands = [[*CKPTTOOL, *shards], [*CKPTTOOL, *renamed], copy]
        *ours, cp = alternate(commands, rounds, before)
        fsync = [durability(arguments, out, before) for arguments in (shards, renamed)]
        cells = [
            f"{median(s.cpu for s in samples) - durable.cpu:.2f} s, "
            f"{max(s.rss for s in samples) / MB:.0f} MB"
            for samples, durable in zip(ours, fsync, strict=True)
        ]
        waiting = f"{fsync[0].cpu:.2f} s ({fsync[0].wall:.2f} s)"
        show((words, cells[0], waiting, cells[1], f"{median(s.cpu for s in cp):.2f} s"))
        before()
        if kind in {"size-4", "size-8"}:
            shutil.rmtree(cache / kind)


def show(cells: tuple[str, ...]) -> None:
    """One line of a Markdown table, at once: a run takes minutes."""
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> int:
    """Measure, print both tables, and end with 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.writing", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help="names of rows, or scaling [all]")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each side [9]")
    parser.add_argument("--full", action="store_true", help="4 and 8 GB too")
    parser.add_argument("--cache", type=Path, default=ROOT / "benchmarks" / ".cache")
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "ckpttool", quiet=1)
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    out = cache / "written"
    head = ("work", "target", "reached", "", "ckpttool", "fsync: CPU (waiting)", "TensorFlow", "cp")
    misses: list[str] = []
    chosen = set(options.works)
    try:
        show(head)
        show(("---",) * len(head))
        for row in works(cache, out):
            sides = row()
            if chosen and sides.name not in chosen:
                continue
            cells, missed = measure(sides, cache, out, options.rounds)
            show(cells)
            misses += missed
        if not chosen or "scaling" in chosen:
            print()
            scaling(cache, out, max(1, options.rounds // 3), full=options.full)
    except Failed as error:
        print(f"failed: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(out, ignore_errors=True)
    for line in misses:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(misses))


if __name__ == "__main__":
    sys.exit(main())
