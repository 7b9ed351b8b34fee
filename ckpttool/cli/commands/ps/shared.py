"""The options that the subcommands of ``serve-ps`` share, and what they are turned into."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from ckpttool.cli.output import Output
from ckpttool.cli.parameters import DURATION, SIZE
from ckpttool.cli.views.serve_ps import StatusView, event_lines, event_record
from ckpttool.errors import UsageError
from ckpttool.ops.serve_ps.request import Training
from ckpttool.ps.events import Event
from ckpttool.ps.plan import ClusterPlan
from ckpttool.ps.setup import (
    DRAIN_RATE,
    KEPT_EXPORTS,
    CompressionSetup,
    ExportSetup,
    GatewaySetup,
    SnapshotSetup,
    TrainSetup,
)

__all__ = [
    "gateway_options",
    "gateway_setup",
    "keep",
    "lifetime",
    "live_options",
    "live_setup",
    "tell",
    "training",
    "training_options",
]

_F = TypeVar("_F", bound=Callable[..., Any])
#: The options that say how the training goes.
_OF_TRAINING = (
    *("exit_when_done", "partition", "exports", "push", "pull", "error_feedback"),
    *("snapshot_every", "snapshot_every_steps", "keep_snapshots", "drain_rate"),
    *("export_every", "export_every_steps", "keep_exports"),
)


def _all(*added: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Several options as one decorator, shown in this order."""

    def decorate(function: _F) -> _F:
        for option in reversed(added):
            function = option(function)
        return function

    return decorate


def lifetime(function: _F) -> _F:
    """``--run-dir`` and ``--exit-after``."""
    return _all(
        click.option(
            "--run-dir",
            default="ps-run",
            show_default=True,
            type=click.Path(),
            metavar="DIR",
            help="Where the state of the cluster, its logs, snapshots and exports lie.",
        ),
        click.option(
            "--exit-after", type=DURATION, metavar="TIME", help="End the cluster after this: 2h."
        ),
    )(function)


def training_options(function: _F) -> _F:
    """The training function, its snapshots and exports, how it communicates."""
    return _all(
        click.option(
            "--train",
            metavar="FILE.py:FUNCTION",
            help="The function that trains, as FILE.py:FUNCTION or MODULE:FUNCTION; it gets the "
            "cluster as its argument.",
        ),
        click.option(
            "--exit-when-done",
            is_flag=True,
            help="End the cluster when the function returns; otherwise what it trained stays "
            "readable.",
        ),
        click.option(
            "--partition",
            metavar="RULE",
            help="How variables are cut and placed: fixed, min-max, hash, size or range:3,1; see "
            "docs/live.md."
            "  [default: as the function does]",
        ),
        live_options,
        click.option(
            "--push",
            type=click.Choice(["int8"]),
            help="Gradients travel as int8 with a scale a block.  [default: as they are]",
        ),
        click.option(
            "--pull",
            type=click.Choice(["bf16", "int8"]),
            help="Parameters travel like this.  [default: as they are]",
        ),
        click.option(
            "--error-feedback",
            is_flag=True,
            help="With --push: add what rounding took to the next gradient.",
        ),
    )(function)


def live_options(function: _F) -> _F:
    """Snapshots and exports of whatever has live parameters."""
    return _all(
        click.option(
            "--snapshot-every",
            type=DURATION,
            default=60.0,
            metavar="TIME",
            help="How often a snapshot is made; 0: not by time.  [default: 60s]",
        ),
        click.option(
            "--snapshot-every-steps",
            type=click.IntRange(min=1),
            metavar="N",
            help="A snapshot each N steps, too.",
        ),
        click.option(
            "--keep-snapshots",
            type=click.IntRange(min=1),
            default=3,
            show_default=True,
            metavar="N",
            help="The newest N snapshots stay.",
        ),
        click.option(
            "--drain-rate",
            type=SIZE,
            default=DRAIN_RATE,
            metavar="SIZE",
            help="So many bytes a second of a snapshot are fetched while steps are made: fewer "
            "slow the training less; 0: as many as can be.  [default: 180MB]",
        ),
        click.option(
            "--export",
            "exports",
            multiple=True,
            metavar="[NAME=]TARGET",
            help="Convert snapshots to this (savedmodel, tflite, onnx, tfjs, …) into "
            "exports/NAME/VERSION. Repeatable.",
        ),
        click.option("--export-every", type=DURATION, metavar="TIME", help="How often: 10m, 1h."),
        click.option(
            "--export-every-steps",
            type=click.IntRange(min=1),
            metavar="N",
            help="Each N steps.",
        ),
        click.option(
            "--keep-exports",
            type=click.IntRange(min=0),
            default=KEPT_EXPORTS,
            show_default=True,
            metavar="N",
            help="The newest N versions of each export stay; 0: all.",
        ),
    )(function)


def gateway_options(function: _F) -> _F:
    """Where the gateway listens, and whom it answers."""
    return _all(
        click.option(
            "--gateway",
            "gateway",
            default="127.0.0.1:0",
            show_default=True,
            metavar="HOST:PORT",
            help="Where the gateway listens (REST, metrics, the live page); port 0: any.",
        ),
        click.option(
            "--grpc",
            metavar="HOST:PORT",
            help="Where it answers gRPC too, with the standard health service; port 0: any."
            "  [default: nowhere]",
        ),
        click.option("--no-gateway", is_flag=True, help="Start none."),
        click.option(
            "--max-age",
            type=DURATION,
            default=5.0,
            metavar="TIME",
            help="How old a snapshot may be that is served.  [default: 5s]",
        ),
        click.option(
            "--token-file",
            type=click.Path(),
            metavar="FILE",
            help="The token that clients have to show.  [default: one made in the run directory]",
        ),
        click.option(
            "--tls-cert",
            type=click.Path(),
            metavar="FILE",
            help="Certificate of the gateway (PEM): it then speaks TLS.",
        ),
        click.option("--tls-key", type=click.Path(), metavar="FILE", help="Its private key (PEM)."),
        click.option(
            "--client-ca",
            type=click.Path(),
            metavar="FILE",
            help="Only clients with a certificate of this authority (PEM): mutual TLS.",
        ),
    )(function)


def gateway_setup(run_dir: str, given: dict[str, Any]) -> GatewaySetup | None:
    """The gateway that the options ask for; None: none.

    Raises:
        UsageError: ``--grpc`` without one.
    """
    if given["no_gateway"]:
        if given["grpc"]:
            raise UsageError(
                "--grpc means nothing with --no-gateway",
                why="it is the gateway that answers gRPC",
                hint="leave one of the two out",
            )
        return None
    return GatewaySetup(
        run_dir=os.path.abspath(run_dir),
        bind=given["gateway"],
        grpc=given["grpc"],
        token_file=_absolute(given["token_file"]),
        tls_certificate=_absolute(given["tls_cert"]),
        tls_key=_absolute(given["tls_key"]),
        client_ca=_absolute(given["client_ca"]),
        max_age=given["max_age"],
    )


def live_setup(given: dict[str, Any]) -> tuple[SnapshotSetup, tuple[ExportSetup, ...]]:
    """The snapshots and exports that ``live_options`` ask for.

    Raises:
        UsageError: an option that means something only with another one.
    """
    if not given["exports"]:
        _refuse_without("--export", given, "export_every", "export_every_steps")
    snapshots = SnapshotSetup(
        given["snapshot_every"] or None,
        given["snapshot_every_steps"],
        given["keep_snapshots"],
        given["drain_rate"],
    )
    exports = tuple(
        _export(one, given["export_every"], given["export_every_steps"]) for one in given["exports"]
    )
    return snapshots, exports


def training(run_dir: str, given: dict[str, Any]) -> Training | None:
    """The training that the options ask for; None: there is no ``--train``.

    Raises:
        UsageError: an option that means something only with another one.
    """
    if given["train"] is None:
        _refuse_without("--train", given, *_OF_TRAINING)
        return None
    snapshots, exports = live_setup(given)
    if not given["push"]:
        _refuse_without("--push", given, "error_feedback")
    setup = TrainSetup(
        run_dir=os.path.abspath(run_dir),
        jobs=(),
        train=given["train"],
        cwd=os.getcwd(),
        partition=given["partition"],
        snapshots=snapshots,
        exports=exports,
        keep_exports=given["keep_exports"],
        compression=CompressionSetup(given["push"], given["pull"], given["error_feedback"]),
    )
    return Training(setup, given["exit_when_done"])


def keep(out: Output, plan: ClusterPlan, run_dir: str) -> int:
    """Keep a cluster, say what happens, and at the end how it ended."""
    from ckpttool.cli.signals import finishing
    from ckpttool.ops.serve_ps.status import StatusResult
    from ckpttool.ops.serve_ps.up import supervise

    with finishing() as stop:
        final = supervise(plan, run_dir, stop, lambda event: tell(out, event, run_dir))
    if out.mode in {"json", "ndjson"}:
        return out.show(StatusView(StatusResult(os.path.abspath(run_dir), final, "ended"), True))
    return 0


def tell(out: Output, event: Event, run_dir: str) -> None:
    """Say at once what has happened; what a person should do something about, on stderr."""
    from ckpttool.cli.jsontext import dumps

    if out.mode == "ndjson":
        out.write(dumps(event_record(event)) + "\n")
    elif event.warns:
        out.warn(event.text)
    elif out.mode != "json":
        out.write("".join(event_lines(event, run_dir)))
    out.flush()


def _export(text: str, seconds: float | None, steps: int | None) -> ExportSetup:
    name, equals, target = text.rpartition("=")
    return ExportSetup(name if equals else target, target, seconds, steps)


def _refuse_without(needed: str, given: dict[str, Any], *names: str) -> None:
    for name in names:
        if given[name] and _is_given(name):
            option = "--" + name.replace("_", "-").removesuffix("s" if name == "exports" else "")
            raise UsageError(
                f"{option} means nothing without {needed}",
                why=f"it says how {needed} is done",
                hint=f"add {needed}, or leave {option} out",
            )


def _is_given(name: str) -> bool:
    """Whether an option was given, rather than left at its default."""
    source = click.get_current_context().get_parameter_source(name)
    return source not in {None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP}


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)
