"""`python -m benchmarks.prune`: how long a plan takes, by the number of checkpoints.

There is nothing of TensorFlow's to measure against: it plans while it saves. So start-up is
held against click's, and a plan against the limits that the project sets itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import compare, run
from benchmarks.works import CKPTTOOL, MB
from tests.support.runs import make_run

__all__ = ["main"]

#: Checkpoints → most seconds of CPU and most megabytes; None: only shown.
SIZES: dict[int, tuple[float, float] | None] = {
    1_000: None,
    10_000: (1.5, 60),
    50_000: None,
}
START_UP = 2.0


def main() -> int:
    """Measure, print a table, and end with 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prune", description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="runs of each row [9]")
    runs = parser.parse_args().runs
    missed = False
    print("| work | target | CPU | memory |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        small = make_run(Path(folder) / "small", {f"ckpt-{n}": 9 - n for n in range(5)})
        against = [sys.executable, "-c", "import click"]
        both = compare([*CKPTTOOL, *_plan(small)], against, 3 * runs)
        longer = 1 / both.times
        missed |= longer > START_UP
        cpu = f"{both.cpu:.3f} s ({longer:.2f}×)"
        print(
            f"| `prune` of 5 checkpoints, against `import click` ({both.their_cpu:.3f} s) "
            f"| ≤ {START_UP:g}× | {cpu} | {both.rss / MB:.0f} MB |"
        )
        for count, most in SIZES.items():
            ages = {f"ckpt-{n}": (count - n) / 60 + 1 for n in range(count)}
            directory = make_run(Path(folder) / str(count), ages, now=time.time())
            taken = sorted((run([*CKPTTOOL, *_plan(directory)]) for _ in range(runs)), key=_cpu)
            middle = taken[len(taken) // 2]
            target = ""
            if most is not None:
                target = f"≤ {most[0]:g} s, ≤ {most[1]:g} MB"
                missed |= middle.cpu > most[0] or middle.rss > most[1] * MB
            print(
                f"| plan over {count:,} checkpoints ({2 * count:,} files) | {target} "
                f"| {middle.cpu:.2f} s | {middle.rss / MB:.0f} MB |",
                flush=True,
            )
    return 1 if missed else 0


def _plan(directory: Path) -> list[str]:
    return ["prune", str(directory), "--max-to-keep", "5", "--keep-every-n-hours", "10", "-n"]


def _cpu(taken: object) -> float:
    return float(getattr(taken, "cpu"))  # noqa: B009


if __name__ == "__main__":
    sys.exit(main())
