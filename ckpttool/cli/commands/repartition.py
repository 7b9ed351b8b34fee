"""``ckpttool repartition``."""

from __future__ import annotations

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.parameters import SIZE
from ckpttool.cli.rewriting import Rewriting, link_option, rewriting
from ckpttool.ops.repartition import By, Repartition, repartition

__all__ = ["command"]


@options.command(
    "repartition",
    examples=[
        "ckpttool repartition run/ out/model --shards 4",
        "ckpttool repartition run/ out/model --slice 'emb*=axis0:8' --shards 8 --by range",
        "ckpttool repartition a/part-00000-of-00002 b/part-00001-of-00002 out/model",
    ],
)
@options.sources
@options.destination
@click.option("--shards", type=click.IntRange(1, 99_999), metavar="N", help="Write N data files.")
@click.option("--max-shard-size", type=SIZE, metavar="SIZE", help="Fill data files up to this: 2G.")
@click.option(
    "--by",
    type=click.Choice(["size", "hash", "range", "fixed", "device"]),
    help="How a data file is chosen: balanced bytes, a hash of the name, row ranges, --rule, or "
    "the device that the .meta file names.  [default: size]",
)
@click.option(
    "--rule", "rules", multiple=True, metavar="GLOB=K", help="With --by fixed. Repeatable."
)
@click.option(
    "--slice",
    "slices",
    multiple=True,
    metavar="GLOB=axisN:HOW",
    help="Cut variables: 8 (even slices), 10,20,5 (rows), max=8,min=256K or size=64M as "
    "TensorFlow's partitioners. Repeatable.",
)
@click.option(
    "--merge-slices",
    multiple=True,
    metavar="GLOB",
    help="Put the slices of these variables together. Repeatable.",
)
@click.option("--as-parts", is_flag=True, help="--slice makes variables X/part_0, X/part_1, ….")
@click.option(
    "--join-parts",
    multiple=True,
    metavar="GLOB",
    help="Make one variable X of X/part_0, X/part_1, …. Repeatable.",
)
@click.option(
    "--allow-unrestorable",
    is_flag=True,
    help="Allow slices of dtypes that TensorFlow cannot put together.",
)
@link_option
@rewriting
@options.output(notes=True)
def command(
    out: Output,
    sources: tuple[str, ...],
    destination: str,
    shards: int | None,
    max_shard_size: int | None,
    by: By | None,
    rules: tuple[str, ...],
    slices: tuple[str, ...],
    merge_slices: tuple[str, ...],
    as_parts: bool,
    join_parts: tuple[str, ...],
    allow_unrestorable: bool,
    how: Rewriting,
) -> int:
    """Write the same variables in other data files or other slices.

    DST is a prefix, a directory, or a SavedModel whose variables are replaced. Bytes that
    do not change are copied with their checksums. Several SRC are the pieces of one save.
    """
    asked = Repartition(
        shards=shards,
        max_shard_size=max_shard_size,
        by=by,
        rules=rules,
        slices=slices,
        merge_slices=merge_slices,
        form="parts" if as_parts else "slices",
        join_parts=join_parts,
        unrestorable=allow_unrestorable,
    )
    return how.run(
        out,
        "repartition",
        lambda given: repartition(sources, destination, asked, given),
    )
