"""`python -m benchmarks.writing`: the commands that write, against TensorFlow and against cp.

``--full`` also measures checkpoints of 4 and 8 GB. How it is measured: `benchmarks.sides`.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.data import prepare
from benchmarks.measure import alternate, show
from benchmarks.sides import CP, Rows, Sides, durability, fresh, options, report, tensorflow
from benchmarks.works import CKPTTOOL, MB

__all__ = ["main"]


def works(cache: Path, out: Path) -> Rows:
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

    return {
        "shards": shards(),
        "shards-checked": shards("--verify-source"),
        "partition": partition,
        "merge": merge,
        "strip": edit("strip", "1 GB with Adam's slots, stripped of them", 10, "--strip-optimizer"),
        "rename": edit("rename", "1 GB, every variable renamed", None, "--rename", "s,^,new/,"),
        "cast": edit("cast", "1 GB, float32 → bfloat16", None, "--cast", "bfloat16"),
        "average": average,
    }


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


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print both tables, and end with 1 where a target is missed."""
    parser = options("python -m benchmarks.writing", __doc__)
    parser.add_argument("--full", action="store_true", help="4 and 8 GB too, in scaling")
    chosen = parser.parse_args(argv)

    def scaled(cache: Path, out: Path) -> None:
        if not chosen.works or "scaling" in chosen.works:
            print()
            scaling(cache, out, max(1, chosen.rounds // 3), full=chosen.full)

    return report(chosen, "written", works, scaled)


if __name__ == "__main__":
    sys.exit(main())
