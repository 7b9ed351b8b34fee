"""`python -m benchmarks`: the table of the README, measured here and now.

Ends with 1 when a target is missed and with 2 when a command fails, so that a change
that makes something slow can be found by a script.
"""

from __future__ import annotations

import argparse
import compileall
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import ROOT, Failed, show
from benchmarks.works import MB, WORKS, Result

HEAD = ("work", "target", "reached", "", "ckpttool", "TensorFlow")


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def row(result: Result) -> tuple[str, ...]:
    """The cells of a row: CPU seconds and peak memory of both sides."""
    both = result.comparison
    return (
        result.work,
        result.target,
        result.reached,
        "missed" if result.misses else "ok",
        f"{both.cpu:.3f} s, {both.rss / MB:.0f} MB",
        f"{both.their_cpu:.3f} s, {both.their_rss / MB:.0f} MB",
    )


def main() -> int:
    """Measure what is asked for and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure ckpttool against TensorFlow: whole processes, CPU time "
        "(user + system), the two sides in turn, the median over the pairs.",
    )
    names = [work.name for work in WORKS]
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"all, or of: {', '.join(names)}")
    parser.add_argument("--pairs", type=int, default=9, help="runs of each side [9]")
    parser.add_argument("--quick", action="store_true", help="3 pairs: for a first look")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "benchmarks" / ".cache", help="where data is kept"
    )
    options = parser.parse_args()
    unknown = set(options.works) - set(names)
    if unknown:
        parser.error(f"no such work: {', '.join(sorted(unknown))}")
    pairs = 3 if options.quick else options.pairs
    compileall.compile_dir(ROOT / "ckpttool", quiet=1)

    print(
        f"{processor()}; Python {platform.python_version()}, TensorFlow {version('tensorflow')}; "
        f"CPU seconds of whole processes, median of {pairs} pairs; peak memory.\n",
        flush=True,
    )
    show(HEAD)
    show(("---",) * len(HEAD))
    missed, failed = [], []
    for work in WORKS:
        if options.works and work.name not in options.works:
            continue
        try:
            result = work.measure(options.cache.resolve(), pairs)
        except Failed as error:
            failed.append(f"{work.name}: {error}")
            show((f"`{work.name}`", "", "", "FAILED", "", ""))
            continue
        show(row(result))
        missed += [f"{work.name}: {miss}" for miss in result.misses]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return 2 if failed else int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
