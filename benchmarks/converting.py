"""`python -m benchmarks.converting`: refreshed exports, conversions, files of weights.

As ``benchmarks.writing``: all sides in turn, whole processes, CPU time, fsync apart. Every
row has its check: what was written is read back and compared byte by byte.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.data import prepare
from benchmarks.measure import ROOT, Failed
from benchmarks.writing import Sides, measure, show, tensorflow

__all__ = ["main"]


def works(cache: Path, out: Path) -> dict[str, Callable[[], Sides]]:
    """The rows by name; the data of each is made when its row is due."""

    def refresh() -> Sides:
        source, to = prepare(cache, "served"), str(out / "export")
        like = os.path.join(os.path.dirname(source), "export")
        return Sides(
            "refresh",
            "export of 100 MB refreshed (`--like`)",
            ["convert", source, to, "--to", "savedmodel", "--like", like],
            tensorflow("refresh.py", source, to),
            None,
            times=15,
            memory_mb=60,
        )

    def weights(name: str, memory_mb: float, most_of_cp: float | None) -> Callable[[], Sides]:
        def row() -> Sides:
            source = prepare(cache, "adam")
            return Sides(
                name,
                f"1 GB with Adam's slots as .{name}",
                ["convert", source, str(out / f"m.{name}")],
                None,
                os.path.dirname(source),
                most_of_cp=most_of_cp,
                memory_mb=memory_mb,
            )

        return row

    def tflite() -> Sides:
        source, to = str(ROOT / "fixtures" / "mlp-v1" / "model.ckpt-1000"), str(out / "m.tflite")
        return Sides(
            "tflite",
            "small checkpoint as .tflite (`--no-check`)",
            ["convert", source, to, "--no-check"],
            tensorflow("tflite.py", source, to, "images:0", "logits/add:0"),
            None,
            times=0.8,
        )

    def onnx() -> Sides:
        source, to = str(ROOT / "fixtures" / "mlp-v1" / "model.ckpt-1000"), str(out / "m.onnx")
        return Sides(
            "onnx",
            "small checkpoint as .onnx (`--no-check`)",
            ["convert", source, to, "--no-check"],
            tensorflow("to_onnx.py", source, to, "images:0", "logits/add:0"),
            None,
            times=0.8,
        )

    def onnx_of(name: str, products: int, memory_mb: float) -> Callable[[], Sides]:
        """2.4 GB have no other side: no graph of so many constants can be a message."""

        def row() -> Sides:
            source, to = prepare(cache, f"products-{products}"), str(out / "m.onnx")
            ends = ["--input", "input", "--output", "output"]
            small = products < 10
            return Sides(
                name,
                f"{products * 25 / 1000:g} GB as .onnx{' (`--no-check`)' if small else ''}",
                ["convert", source, to, *ends, *(["--no-check"] if small else [])],
                tensorflow("to_onnx.py", source, to, "input:0", "output:0") if small else None,
                None,
                times=4 if small else None,
                memory_mb=memory_mb,
            )

        return row

    return {
        "refresh": refresh,
        "tflite": tflite,
        "onnx": onnx,
        "onnx-100mb": onnx_of("onnx-100mb", 4, 1380),
        "onnx-2400mb": onnx_of("onnx-2400mb", 96, 3600),
        "safetensors": weights("safetensors", 100, 1.4),
        "npz": weights("npz", 150, None),
        "h5": weights("h5", 150, None),
    }


def main() -> int:
    """Measure, print the table, and end with 1 where a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.converting", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help="names of rows [all]")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each side [9]")
    parser.add_argument("--cache", type=Path, default=ROOT / "benchmarks" / ".cache")
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "ckpttool", quiet=1)
    cache = options.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    out = cache / "converted"
    misses: list[str] = []
    try:
        show(("work", "target", "reached", "", "ckpttool", "fsync: CPU", "TensorFlow", "cp"))
        show(("---",) * 8)
        for name, row in works(cache, out).items():
            if not options.works or name in options.works:
                cells, missed = measure(row(), cache, out, options.rounds)
                show(cells)
                misses += missed
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
