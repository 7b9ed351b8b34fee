"""``ckpttool serve-ps up``."""

from __future__ import annotations

from typing import Any

import click

from ckpttool.cli import options
from ckpttool.cli.commands.ps import shared
from ckpttool.cli.output import Output
from ckpttool.ops.serve_ps.request import plan_up
from ckpttool.ops.serve_ps.up import OPEN_PORTS

__all__ = ["command"]


@options.command(
    "up",
    examples=[
        "ckpttool serve-ps up --ps 2 --workers 2 --train train.py:train",
        "ckpttool serve-ps up --train train.py:train --export savedmodel --export-every 10m",
        "ckpttool serve-ps up --ps 2 --workers 2 --no-gateway",
    ],
    epilog="Exit codes: 0 also on SIGINT and SIGTERM; 30 a cluster runs in DIR already; 61 the "
    "training failed, or a process ends again and again.",
)
@click.option(
    "--ps",
    type=click.IntRange(min=1, max=1000),
    default=1,
    show_default=True,
    metavar="N",
    help="So many parameter servers.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0, max=1000),
    default=1,
    show_default=True,
    metavar="N",
    help="So many workers.",
)
@shared.lifetime
@shared.training_options
@shared.gateway_options
@options.output(ndjson=True)
def command(out: Output, /, run_dir: str, **given: Any) -> int:  # noqa: ANN401
    """Start a cluster on this machine and keep it until Ctrl-C.

    A process that ends is started again. A parameter server takes its variables with it: then
    the training function is called anew, and goes on from the last snapshot. Without --train
    the cluster waits for a coordinator of your own. When this command ends, however it does,
    no process of the cluster stays.
    """
    plan = plan_up(
        ps=given["ps"],
        workers=given["workers"],
        training=shared.training(run_dir, given),
        gateway=shared.gateway_setup(run_dir, given),
        exit_after=given["exit_after"],
    )
    out.warn(OPEN_PORTS)
    return shared.keep(out, plan, run_dir)
