"""``ckpttool verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ckpttool.cli import options
from ckpttool.cli.output import Output
from ckpttool.cli.views.verify import VerifyView
from ckpttool.limits import default_limits
from ckpttool.ops.verify import verify_all

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = ["command"]


@options.command(
    "verify",
    examples=["ckpttool verify run/", "ckpttool verify --quick run/@1000 run/@2000"],
    epilog="Exit codes: 0 healthy, 1 damaged, 3 not all could be checked.",
)
@options.sources
@click.option("--quick", is_flag=True, help="Structure only: do not read the variables' bytes.")
@options.jobs
@options.naming
@options.progress
@options.output(ndjson=True, notes=True)
def command(
    out: Output, sources: tuple[str, ...], quick: bool, jobs: int | None, naming: NameStyle
) -> int:
    """Check structure and every checksum.

    The index, the data files beside it, partitioned variables, the object graph, and (but
    with --quick) every byte of every variable against its checksum. Of other sources the
    structure and every byte. A format without checksums can only be read through: no damage
    found, and exit code 3, since a changed value would not show. Nothing is changed.
    """
    with out.progress("verify") as report:
        results = verify_all(
            sources,
            level="quick" if quick else "deep",
            jobs=jobs,
            limits=default_limits(),
            progress=report,
            names=naming,
        )
    for result in results:
        for note in result.notes:
            out.note(note)
    return out.show(VerifyView(results))
