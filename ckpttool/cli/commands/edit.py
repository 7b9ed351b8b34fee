"""``ckpttool edit``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.rewriting import Rewriting, link_option, rewriting
from ckpttool.ops.edit.run import Edit, edit

__all__ = ["command"]


@options.command(
    "edit",
    examples=[
        "ckpttool edit run/ out/model --strip-optimizer",
        "ckpttool edit run/ out/model --rename 's/weights$/kernel/' --cast bfloat16",
        "ckpttool edit tf1/model.ckpt out/model --like keras3/ckpt-1 --map names.csv",
    ],
    epilog="Steps are taken in the order of this list.",
)
@options.source
@options.destination
@click.option(
    "--keep",
    multiple=True,
    metavar="GLOB",
    help="Keep only these variables. Repeatable.",
    shell_complete=options.complete_variables,
)
@click.option(
    "--drop",
    multiple=True,
    metavar="GLOB",
    help="Leave these variables out. Repeatable.",
    shell_complete=options.complete_variables,
)
@click.option(
    "--strip-optimizer", is_flag=True, help="Leave out what is the optimizer's own; steps stay."
)
@click.option(
    "--promote-ema", is_flag=True, help="Moving averages take the place of their variables."
)
@click.option(
    "--map",
    "maps",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Rename by a JSON or CSV file of old and new names; with --like: which is which.",
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="RULE",
    help="s/OLD/NEW/ (an expression; flags g and i) or OLD=NEW. Repeatable, in this order.",
)
@click.option(
    "--cast",
    type=click.Choice(["float32", "bfloat16", "float16", "float64"]),
    help="The type that floating-point variables get; the rest stays.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="GLOB",
    help="Cast only these. Repeatable.",
    shell_complete=options.complete_variables,
)
@click.option(
    "--like",
    metavar="CKPT",
    shell_complete=options.complete_addresses,
    help="Put the values under the keys, and into the object graph, of another checkpoint.",
)
@click.option(
    "--allow-unmatched", is_flag=True, help="Names and patterns may fit no variable at all."
)
@link_option
@rewriting
@options.output(notes=True)
def command(
    out: Output,
    source: str,
    destination: str,
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    strip_optimizer: bool,
    promote_ema: bool,
    maps: tuple[str, ...],
    renames: tuple[str, ...],
    cast: str | None,
    only: tuple[str, ...],
    like: str | None,
    allow_unmatched: bool,
    how: Rewriting,
) -> int:
    """Rename, drop, cast or re-key variables, into a new checkpoint.

    Slots and averages follow their variable, and the object graph is edited with it. DST is
    a prefix or a directory; the source is only replaced with --overwrite.
    """
    asked = Edit(
        keep=keep,
        drop=drop,
        strip_optimizer=strip_optimizer,
        promote_ema=promote_ema,
        maps=maps,
        renames=renames,
        cast=cast,
        only=only,
        like=like,
        allow_unmatched=allow_unmatched,
    )
    return how.run(out, "edit", lambda given: edit(source, destination, asked, given))
