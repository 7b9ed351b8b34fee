"""``ckpttool average``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.parameters import WEIGHTS
from ckpttool.cli.rewriting import Rewriting, destination_option, rewriting
from ckpttool.ops.average import average
from ckpttool.storage.system import allow_open_files

__all__ = ["command"]


@options.command(
    "average",
    examples=[
        "ckpttool average run/@8000 run/@9000 run/@10000 -o out/mean",
        "ckpttool average 'run/@*' -o out/mean",
        "ckpttool average a b -o c --weights 0.9,0.1",
    ],
)
@options.sources
@destination_option
@click.option(
    "--weights",
    type=WEIGHTS,
    metavar="W,W,…",
    help="One for each SRC; divided by their sum.  [default: equal]",
)
@rewriting
@options.output(notes=True)
def command(
    out: Output,
    sources: tuple[str, ...],
    destination: str,
    weights: tuple[float, ...] | None,
    how: Rewriting,
) -> int:
    """Write the mean of several checkpoints of one model.

    Floats are averaged in float64; integers, steps, strings, the object graph and the .meta are
    those of the last SRC. All sources have to hold the same variables. 'RUN/@*' stands for
    every whole checkpoint of a run.
    """
    allow_open_files()  # all sources are read at once, and a run may have hundreds
    return how.run(out, "average", lambda given: average(sources, destination, weights, given))
