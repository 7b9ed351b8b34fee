"""``ckpttool merge``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.rewriting import Rewriting, destination_option, link_option, rewriting
from ckpttool.ops.merge import OnConflict, merge

__all__ = ["command"]


@options.command(
    "merge",
    examples=[
        "ckpttool merge backbone head -o out/model --take 'B:head/*'",
        "ckpttool merge a b -o c --on-conflict last",
    ],
)
@options.sources
@destination_option
@click.option(
    "--on-conflict",
    type=click.Choice(["error", "first", "last", "prefix"]),
    default="error",
    show_default=True,
    help="For what several SRC have: refuse, take the first's or the last's, or keep all "
    "under CHECKPOINT/NAME.",
)
@click.option(
    "--take",
    multiple=True,
    metavar="LETTER:GLOB",
    help="Of one SRC (A is the first) only what matches, and that from no other. Repeatable.",
)
@link_option
@rewriting
@options.output(notes=True)
def command(
    out: Output,
    sources: tuple[str, ...],
    destination: str,
    on_conflict: OnConflict,
    take: tuple[str, ...],
    how: Rewriting,
) -> int:
    """Write the variables of several checkpoints as one.

    Every variable is copied as it is. The SRC are named A, B, C, … in their order.
    """
    return how.run(
        out,
        "merge",
        lambda given: merge(sources, destination, on_conflict, take, given),
    )
