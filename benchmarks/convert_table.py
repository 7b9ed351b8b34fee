"""`python -m benchmarks.convert_table`: every model to every target, and how far it is off.

Models as people train them are written by TensorFlow, converted, and the result run in its
own runtime against the restored original. A cell has the largest error and the NRMSE, or
the id of the error with which the conversion was refused. Every row has a process of its
own, in which TensorFlow is imported once. Ends with 1 where a result differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ckpttool.conversion.child import Bounds
from ckpttool.conversion.wire import encode
from ckpttool.errors import CkpttoolError, ConversionError

__all__ = ["ROWS", "TARGETS", "Cell", "cells_of", "in_this_process", "make_models", "table"]

ROOT = Path(__file__).parent.parent
TARGETS = ("savedmodel", "tflite", "onnx", "tfjs")
ENDINGS = {"tflite": ".tflite", "onnx": ".onnx"}


@dataclass(frozen=True, slots=True)
class Row:
    """A model: its source in the folder of models, and how the conversion is asked for."""

    source: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one conversion.

    Attributes:
        row: the model.
        target: the kind of result.
        state: as the check says, or ``refused``.
        max_abs: the largest error of any output.
        nrmse: the largest NRMSE of any output.
        why: the id of an error, or why there was no check.
        said: the error in words.
    """

    row: str
    target: str
    state: str
    max_abs: float | None = None
    nrmse: float | None = None
    why: str = ""
    said: str = ""

    @property
    def text(self) -> str:
        """The cell of the table."""
        if self.state == "refused":
            return f"refused: `{self.why}`"
        if self.state == "not_run":
            return "not checked"
        if self.max_abs is None:
            return f"{self.state}, equal"
        said = f"{self.max_abs:.1e}, {self.nrmse:.1e}"
        return said if self.state == "passed" else f"**{self.state}**: {said}"


#: Errors that are no refusal: something went wrong, or the result differs.
_UNNAMED = {"conversion", "converter-died", "internal", "result-differs"}
_TWO = {"model": "build.py:Embedding"}
_FIXED = ("is_training=False", "keep_prob=1.0")
#: Title → the model. The code of the models is in tests/support.
ROWS = {
    "MLP, TensorFlow 1 (784×200)": Row("mlp-ref", {}),
    "MLP, resource variables": Row("mlp-resource", {}),
    "CNN, batch normalisation": Row("cnn/ckpt", {"model": "table.py:cnn"}),
    "partitioned variables": Row("partitioned", {"outputs": ["y"]}),
    "control flow, TensorFlow 1": Row("loop", {"outputs": ["result"]}),
    "condition, frozen input": Row("conditional", {"freeze": _FIXED}),
    "control flow, TensorFlow 2": Row("controlflow/ckpt", {"model": "table.py:ControlFlow"}),
    "Keras 3 subclass, GELU": Row(
        "subclass/ckpt", {"model": "build.py:subclass", "inputs": ["x:float32[?,12]"]}
    ),
    "LSTM and GRU": Row("recurrent/ckpt", {"model": "build.py:recurrent"}),
    "LSTM and GRU, `--batch 2`": Row("recurrent/ckpt", {"model": "build.py:recurrent", "batch": 2}),
    "LSTM and GRU, unrolled": Row("unrolled/ckpt", {"model": "table.py:unrolled"}),
    "two signatures, int64 ids": Row("embedding/ckpt", _TWO),
    "int64 ids into an embedding": Row(
        "embedding/ckpt", {**_TWO, "signatures": ("serving_default",)}
    ),
    "string table": Row("words/ckpt", {"model": "build.py:Words"}),
    "bfloat16": Row("brain/ckpt", {"model": "table.py:Brain"}),
    "random numbers": Row("dice/ckpt", {"model": "table.py:Dice"}),
}


def make_models(folder: Path) -> None:
    """Write the models; imports TensorFlow into this process."""
    import warnings

    from tests.support.table_models import write_table_models
    from tests.support.tf_models import write_models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_models(folder)
        write_table_models(folder)


def in_this_process(
    task: str, job: Mapping[str, object], *, folder: str, log: str, bounds: Bounds
) -> dict[str, Any]:
    """A ``RunTask`` that starts no process: for many conversions in one that may die."""
    del folder, log, bounds
    try:
        found: dict[str, Any] = import_module(task).run(json.loads(encode(job)))
    except CkpttoolError:
        raise
    except Exception as error:
        raise ConversionError(
            "the conversion failed", why=f"{type(error).__name__}: {error}"
        ) from error
    return found


def cells_of(title: str, folder: Path, targets: Sequence[str] = TARGETS) -> Iterator[Cell]:
    """Convert a model to every target in this process; the working directory is ``folder``."""
    from ckpttool.conversion.request import Settings
    from ckpttool.ops.convert import convert
    from tests.support.converting import request

    row = ROWS[title]
    for number, target in enumerate(targets):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            options = dict(row.options)
            settings = Settings(batch=options.pop("batch", None))
            destination = os.path.join(place, f"{number}{ENDINGS.get(target, '')}")
            asked = request(
                row.source,
                target=target,
                destination=destination,
                settings=settings,
                **options,
            )
            try:
                result = convert(asked, run=in_this_process)
            except CkpttoolError as error:
                state = "failed" if error.id in _UNNAMED else "refused"
                yield Cell(title, target, state, why=error.id, said=str(error))
                continue
            figures = [
                one
                for outputs in result.check.metrics.values()
                for one in outputs.values()  # type: ignore[attr-defined]
            ]
            yield Cell(
                title,
                target,
                result.check.state,
                max(
                    (one["max_abs"] for one in figures if one["max_abs"] is not None), default=None
                ),
                max((one["nrmse"] for one in figures if one["nrmse"] is not None), default=None),
                said=result.check.why,
            )


def table(folder: Path, rows: Sequence[str], *, jobs: int = 2) -> Iterator[list[Cell]]:
    """The cells of each row, in order; each row in a process of its own.

    A row whose process dies has cells that say so.
    """
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", CUDA_VISIBLE_DEVICES="-1")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])

    def one(title: str) -> list[Cell]:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.convert_table", "--row", title, str(folder)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"row"')]
        found = [Cell(**json.loads(line)) for line in lines]
        said = done.stderr.strip().splitlines()[-1:]
        died = Cell(title, "", "failed", why=f"the process ended with {done.returncode}: {said}")
        missing = TARGETS[len(found) :]
        return [*found, *(Cell(title, target, "failed", why=died.why) for target in missing)]

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, rows)


def main() -> int:
    """Print the table, or (for a row's own process) the cells of a row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convert_table")
    parser.add_argument("folder", nargs="?", type=Path, help="keep the models there")
    parser.add_argument("--row", help="the cells of one row, as JSON")
    parser.add_argument("--only", nargs="*", default=list(ROWS), help="these rows")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time [2]")
    asked = parser.parse_args()
    if asked.row:
        for cell in cells_of(asked.row, asked.folder):
            print(json.dumps(asdict(cell)), flush=True)
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = (asked.folder or Path(made)).absolute()
        folder.mkdir(exist_ok=True)
        make_models(folder)
        print(f"| model | {' | '.join(TARGETS)} |\n|---|{'---|' * len(TARGETS)}", flush=True)
        failed = False
        reasons: dict[str, str] = {}
        for cells in table(folder, asked.only, jobs=asked.jobs):
            print(f"| {cells[0].row} | {' | '.join(one.text for one in cells)} |", flush=True)
            failed = failed or any(one.state == "failed" for one in cells)
            reasons |= {
                f"{one.row}, {one.target}": one.said or one.why
                for one in cells
                if one.said or one.why
            }
        print(
            "\nLargest error, NRMSE.", *(f"- {at}: {why}" for at, why in reasons.items()), sep="\n"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
