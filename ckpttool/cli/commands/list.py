"""``ckpttool list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.list import ListView
from ckpttool.errors import UsageError
from ckpttool.ops.list import SORTS, SortKey, list_variables
from ckpttool.policy.words import plural

if TYPE_CHECKING:
    from ckpttool.model import Kind
    from ckpttool.sources.base import NameStyle

__all__ = ["command"]


@options.command(
    "list",
    examples=[
        "ckpttool list run/ --sort bytes",
        "ckpttool list run/ --kind model --exclude '*/bias'",
        "ckpttool list run/@1000 -q --regex '^layer_1/'",
        "ckpttool list run/ --kind model --map names.json",
    ],
)
@options.source
@options.filters
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    help="An order other than that of the keys; by a number: the largest first.",
)
@options.naming
@click.option(
    "--map",
    "map_path",
    type=click.Path(),
    metavar="FILE",
    help="Write all names of each variable, side by side, for edit --map: .json or .csv; - is "
    "standard output, in the place of the list.",
)
@options.overwrite
@options.output(ndjson=True, quiet=True)
def command(
    out: Output,
    source: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    regex: str | None,
    kinds: tuple[Kind, ...],
    sort: SortKey | None,
    naming: NameStyle,
    map_path: str | None,
    overwrite: bool,
) -> int:
    """List the variables: name, dtype, shape, bytes, shard, kind.

    In a pipe: tab-separated lines of just these, sizes in bytes. A partitioned variable is
    one line, with all its shards. Only the index is read: data files may be missing.
    """
    if map_path is not None:
        from ckpttool.ops.name_map import map_format, map_text, save_map

        map_format(map_path)  # an ending that means nothing is told before anything is read
        if map_path == "-" and out.mode in {"json", "ndjson"}:
            raise UsageError(
                f"--map - does not go with --{out.mode}",
                why="standard output would hold the map, which is another document than this",
                hint="give the map a file, or leave the other out: --map - is JSON too",
                id="options-contradict",
            )
    listing = list_variables(
        source,
        include=include,
        exclude=exclude,
        regex=regex,
        kinds=kinds,
        sort=sort,
        names=naming,
    )
    with listing:
        for note in listing.notes:
            out.note(note)
        if map_path == "-":
            for piece in map_text(listing.names(), "json"):
                out.write_bytes(piece)
            return 0
        if map_path is not None:
            count = save_map(listing.names(), map_path, overwrite=overwrite)
            out.note(f"{map_path} has the names of {count} {plural(count, 'variable')}")
        return out.show(ListView(listing))
