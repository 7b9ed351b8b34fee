"""``ckpttool serve-ps attach``."""

from __future__ import annotations

import os
from typing import Any

import click

from ckpttool.cli import options
from ckpttool.cli.commands.ps import shared
from ckpttool.cli.output import Output
from ckpttool.ops.serve_ps.request import plan_attach
from ckpttool.ps.setup import AttachSetup

__all__ = ["command"]


@options.command(
    "attach",
    examples=[
        "ckpttool serve-ps attach --ps 127.0.0.1:2222 --names run/",
        "ckpttool serve-ps attach --ps ps0:2222 --names model.ckpt-1000.meta --export savedmodel",
    ],
    epilog="Names are tried, since such a cluster lists none; what is not there is left out. "
    "Workers write while variables are copied: a snapshot is of one moment only where every "
    "trainer has a ckpttool.ps.PauseHook, and says so.",
)
@click.option(
    "--ps",
    "target",
    required=True,
    metavar="HOST:PORT",
    help="A parameter server of the cluster; it knows the others.",
)
@click.option(
    "--names",
    required=True,
    type=click.Path(),
    metavar="CKPT|META|MANIFEST",
    help="What says which variables there are: a checkpoint, its .meta, or a .json of names, "
    "dtypes and shapes.",
)
@shared.lifetime
@shared.live_options
@shared.gateway_options
@options.output(ndjson=True)
def command(out: Output, /, run_dir: str, **given: Any) -> int:  # noqa: ANN401
    """Attach to a TensorFlow 1 cluster that trains already.

    Its parameters become readable, are saved and exported as those of ``serve-ps up`` are;
    the training is neither asked nor held.
    """
    snapshots, exports = shared.live_setup(given)
    plan = plan_attach(
        AttachSetup(
            run_dir=os.path.abspath(run_dir),
            target=given["target"],
            names=os.path.abspath(given["names"]),
            snapshots=snapshots,
            exports=exports,
            keep_exports=given["keep_exports"],
        ),
        gateway=shared.gateway_setup(run_dir, given),
        exit_after=given["exit_after"],
    )
    return shared.keep(out, plan, run_dir)
