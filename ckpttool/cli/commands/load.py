"""``ckpttool load``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.load_file import PlanView, SavedView
from ckpttool.formats.elements import CAST_TARGETS
from ckpttool.ops.load import load
from ckpttool.ops.save_values import FORMATS, SaveFormat, file_format, save, save_to

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = ["command"]


@options.command(
    "load",
    examples=[
        "ckpttool load run/ global_step",
        "ckpttool load run/ 'emb[0:10]' -o emb.npy",
        "ckpttool load run/@1000 'dense/*' -o dense.npz",
    ],
)
@options.source
@options.names
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(),
    metavar="FILE",
    help="Save as .npy, .npz, .csv, .json, .safetensors or .h5; - is standard output.",
)
@click.option("--format", type=click.Choice(FORMATS), help="The format of FILE, whatever its name.")
@click.option(
    "--cast",
    type=click.Choice(CAST_TARGETS),
    help="Widen all to this dtype, refused where that would not be exact; auto: only those that "
    "NumPy has no type for.",
)
@click.option("--full", is_flag=True, help="On a terminal too, print every value.")
@click.option("--no-check", is_flag=True, help="Do not compare checksums: take damaged values.")
@options.naming
@options.overwrite
@options.dry_run
@options.progress
@options.output(notes=True)
def command(
    out: Output,
    source: str,
    names: tuple[str, ...],
    path: str | None,
    format: SaveFormat | None,
    cast: str | None,
    full: bool,
    no_check: bool,
    naming: NameStyle,
    overwrite: bool,
    dry_run: bool,
) -> int:
    """Print or save the values of chosen variables.

    A NAME is a variable's name, key or object path, and may choose a part as NumPy does:
    'emb[0:10, :]' reads only those rows. One with * or ? is a pattern. Several variables
    go into .npz, .safetensors, .h5 or .json.

    On a terminal large arrays are abbreviated; in a pipe every value is printed, a row a
    line, tab-separated. A variable that is read whole is compared with its checksum; a
    part of one cannot be. Where some of several cannot be read, the others are printed,
    and the exit code is 3; a file or a JSON document is whole or not made.
    """
    saving = None if path is None else file_format(path, format, terminal=out.stdout_is_terminal)
    with (
        out.progress("reading") as progress,
        load(
            source, names, cast=cast, check=not no_check, progress=progress, naming=naming
        ) as loaded,
    ):
        for note in loaded.source.notes:
            out.note(note)
        for warning in loaded.warnings:
            out.warn(warning)
        if dry_run:
            return out.show(PlanView(loaded, loaded.plans()))
        if path is None or saving is None:
            from ckpttool.cli.views.load import ValuesView

            return out.show(ValuesView(loaded, full=full))
        if path == "-":
            save_to(loaded, out.write_bytes, saving)
            return 0
        return out.show(SavedView(loaded, save(loaded, path, saving, overwrite=overwrite)))
