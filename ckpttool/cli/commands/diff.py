"""``ckpttool diff``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.diff import DiffView
from ckpttool.limits import default_limits
from ckpttool.ops.diff.facts import LEVELS, Level
from ckpttool.ops.diff.model_code import model_code
from ckpttool.ops.diff.run import diff

if TYPE_CHECKING:
    from ckpttool.model import Kind
    from ckpttool.sources.base import NameStyle

__all__ = ["command"]


@options.command(
    "diff",
    examples=[
        "ckpttool diff run/@1000 run/@2000 --kind model",
        "ckpttool diff old.ckpt new.ckpt --level meta",
        "ckpttool diff run/ weights.h5 --rtol 1e-6",
        "ckpttool diff run/ --graph model.meta",
        "ckpttool diff run/ --model train.py:build --model-arg units=64",
    ],
    epilog="Exit codes: 0 the same (or it restores), 1 different, 3 not all could be compared. "
    "Elements differ where |a - b| > atol + rtol * max(|a|, |b|); with both 0 where a bit does. "
    "NaN equals NaN.",
)
@click.argument("a", metavar="A", shell_complete=options.complete_addresses)
@click.argument("b", metavar="[B]", required=False, shell_complete=options.complete_addresses)
@click.option(
    "--graph",
    type=click.Path(),
    metavar="FILE",
    help="In the place of B: a .meta, .pb, .pbtxt or SavedModel; says whether A restores into it.",
)
@options.model_code
@options.model_root
@options.inputs
@click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="Which variables there are; their dtypes and shapes too; their values too.  "
    "[default: values; of a graph or model: meta]",
)
@click.option(
    "--rtol",
    type=float,
    default=0.0,
    metavar="R",
    help="How far apart values may be, as a part of the larger one.  [default: 0]",
)
@click.option(
    "--atol", type=float, default=0.0, metavar="X", help="And how far in numbers.  [default: 0]"
)
@options.naming
@options.filters
@options.child
@options.progress
@options.output(ndjson=True, notes=True)
def command(
    out: Output,
    a: str,
    b: str | None,
    graph: str | None,
    model: str | None,
    model_arg: tuple[str, ...],
    root: str | None,
    input: tuple[str, ...],
    level: Level | None,
    rtol: float,
    atol: float,
    naming: NameStyle,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    regex: str | None,
    kinds: tuple[Kind, ...],
    timeout: float | None,
    memory: int | None,
    log: str | None,
) -> int:
    """Compare two sources: every difference at once.

    Variables that only one side has, dtypes, shapes, and how far values are apart, by what
    the variables are for; what may have been renamed. A and B may be of different kinds.
    With --graph: all that the graph asks for and A has not, or has otherwise; what A has
    beyond that does no harm. --model asks the same of the model that code builds, in the
    place of B; TensorFlow runs in a process of its own.
    """
    code = model_code(
        model,
        arguments=model_arg,
        root=root,
        inputs=input,
        seconds=timeout,
        memory=memory,
        log=log,
        said=out.note,
    )
    with out.progress("diff") as progress:
        result = diff(
            a,
            b,
            graph=graph,
            model=code,
            level=level,
            names=naming,
            rtol=rtol,
            atol=atol,
            include=include,
            exclude=exclude,
            regex=regex,
            kinds=kinds,
            limits=default_limits(),
            progress=progress,
        )
    for note in result.notes:
        out.note(note)
    return out.show(DiffView(result))
