"""``ckpttool serve-ps task``."""

from __future__ import annotations

import os
from typing import Any

import click

from ckpttool.cli import options
from ckpttool.cli.commands.ps import shared
from ckpttool.cli.output import Output
from ckpttool.ops.serve_ps.request import plan_task, read_task
from ckpttool.ops.serve_ps.up import warnings_of
from ckpttool.ps.cluster import JOBS

__all__ = ["command"]


@options.command(
    "task",
    examples=[
        "ckpttool serve-ps task --cluster cluster.json --job ps --index 0 --insecure-cluster",
        "TF_CONFIG=... ckpttool serve-ps task --insecure-cluster --train train.py:train",
    ],
    epilog="Without --cluster the environment variable TF_CONFIG says all. docs/serve-ps.md has "
    "examples for Slurm and Kubernetes.",
)
@click.option(
    "--cluster",
    type=click.Path(),
    metavar="FILE",
    help='The addresses of all tasks: {"chief": […], "ps": ["host:port", …], "worker": […]}.',
)
@click.option("--job", type=click.Choice(JOBS), help="What this task is.")
@click.option("--index", type=click.IntRange(min=0), metavar="I", help="Which one of them, from 0.")
@click.option(
    "--insecure-cluster",
    is_flag=True,
    help="The cluster may span machines, though TensorFlow's ports have neither password nor "
    "encryption: only on a network of your own.",
)
@shared.lifetime
@shared.training_options
@shared.gateway_options
@options.output(ndjson=True)
def command(out: Output, /, run_dir: str, **given: Any) -> int:  # noqa: ANN401
    """Run one task of a cluster of many machines.

    Start it once on each, with the same cluster and another task. The chief runs the
    training function and has the gateway; snapshots and exports lie in its run directory.
    """
    task = read_task(given["cluster"], given["job"], given["index"], os.environ)
    plan = plan_task(
        task,
        training=shared.training(run_dir, given),
        gateway=shared.gateway_setup(run_dir, given),
        insecure_cluster=given["insecure_cluster"],
        exit_after=given["exit_after"],
    )
    for warning in warnings_of(task):
        out.warn(warning)
    return shared.keep(out, plan, run_dir)
