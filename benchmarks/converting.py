"""`python -m benchmarks.converting`: refreshed exports, conversions, files of weights.

How it is measured: `benchmarks.sides`. Every row has its check: what was written is read
back and compared byte by byte.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.data import prepare
from benchmarks.measure import ROOT
from benchmarks.sides import Rows, Sides, options, report, tensorflow

__all__ = ["main"]


def works(cache: Path, out: Path) -> Rows:
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

    def small(name: str, script: str) -> Callable[[], Sides]:
        def row() -> Sides:
            source = str(ROOT / "fixtures" / "mlp-v1" / "model.ckpt-1000")
            to = str(out / f"m.{name}")
            return Sides(
                name,
                f"small checkpoint as .{name} (`--no-check`)",
                ["convert", source, to, "--no-check"],
                tensorflow(script, source, to, "images:0", "logits/add:0"),
                None,
                times=0.8,
            )

        return row

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
        "tflite": small("tflite", "tflite.py"),
        "onnx": small("onnx", "to_onnx.py"),
        "onnx-100mb": onnx_of("onnx-100mb", 4, 1380),
        "onnx-2400mb": onnx_of("onnx-2400mb", 96, 3600),
        "safetensors": weights("safetensors", 100, 1.4),
        "npz": weights("npz", 150, None),
        "h5": weights("h5", 150, None),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and end with 1 where a target is missed."""
    chosen = options("python -m benchmarks.converting", __doc__).parse_args(argv)
    return report(chosen, "converted", works)


if __name__ == "__main__":
    sys.exit(main())
