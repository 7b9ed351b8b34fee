"""What a person asked of a cluster, as data that goes to its processes as JSON.

Frozen dataclasses for ``convert.wire``; knows neither options nor processes.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DRAIN_RATE",
    "KEPT_EXPORTS",
    "AttachSetup",
    "CompressionSetup",
    "ExportSetup",
    "GatewaySetup",
    "SnapshotSetup",
    "TrainSetup",
]

#: Versions of an export that stay unless told otherwise.
KEPT_EXPORTS = 5


#: At this rate a training on the same two cores keeps three steps in four.
DRAIN_RATE = 180 * 2**20


@dataclass(frozen=True, slots=True)
class SnapshotSetup:
    """When snapshots are made, and how many stay.

    Attributes:
        every_seconds: one each so many seconds; None: not by time.
        every_steps: one each so many steps; None: not by step.
        keep: the newest so many stay.
        drain_rate: bytes a second at which they are fetched while steps are made; 0: as
            quickly as can be.
    """

    every_seconds: float | None = 60.0
    every_steps: int | None = None
    keep: int = 3
    drain_rate: int = DRAIN_RATE


@dataclass(frozen=True, slots=True)
class ExportSetup:
    """An export that is made again and again.

    Attributes:
        name: the directory below ``exports/``.
        to: the target of ``convert``: ``savedmodel``, ``tflite``, ``onnx``, ``tfjs``, …
        every_seconds, every_steps: when; both None: only on request.
        options: more words for ``convert``.
    """

    name: str
    to: str
    every_seconds: float | None = None
    every_steps: int | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompressionSetup:
    """How gradients and parameters travel: nothing is compressed unless asked for.

    Attributes:
        push: None or ``int8``.
        pull: None, ``bf16`` or ``int8``.
        error_feedback: what rounding took from a gradient is added to the next one.
    """

    push: str | None = None
    pull: str | None = None
    error_feedback: bool = False


@dataclass(frozen=True, slots=True)
class TrainSetup:
    """All that the process of the training function is told.

    Attributes:
        run_dir: absolute path of the run directory.
        jobs: the cluster: addresses by job (``ClusterSpec.jobs`` as pairs).
        train: ``module:function`` or ``file.py:function``.
        cwd: the working directory of whoever asked, first on the path of imports.
        partition: how variables are cut and placed (``policy.partition``); None: whole.
        keep_exports: the newest so many versions of each export stay; 0: all.
    """

    run_dir: str
    jobs: tuple[tuple[str, tuple[str, ...]], ...]
    train: str
    cwd: str
    partition: str | None = None
    snapshots: SnapshotSetup = SnapshotSetup()
    exports: tuple[ExportSetup, ...] = ()
    keep_exports: int = KEPT_EXPORTS
    compression: CompressionSetup = CompressionSetup()


@dataclass(frozen=True, slots=True)
class GatewaySetup:
    """All that the gateway is told.

    Attributes:
        run_dir: absolute path of the run directory.
        bind: ``host:port`` of REST; port 0: any.
        grpc: ``host:port`` of gRPC; None: it is not served.
        token_file: absolute path; None: no token is asked for.
        tls_certificate, tls_key: PEM files; both or none.
        client_ca: PEM file of who signs client certificates (mutual TLS).
        max_age: seconds that a snapshot may be old when it is served.
    """

    run_dir: str
    bind: str = "127.0.0.1:0"
    grpc: str | None = None
    token_file: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    client_ca: str | None = None
    max_age: float = 5.0


@dataclass(frozen=True, slots=True)
class AttachSetup:
    """All that the process is told which attaches to a TensorFlow 1 cluster.

    Attributes:
        run_dir: absolute path of the run directory.
        target: the address of one parameter server; it knows the others.
        names: absolute path of what says which variables there are: a checkpoint, a
            ``.meta``, or a manifest.
        snapshots, exports, keep_exports: as of ``TrainSetup``.
    """

    run_dir: str
    target: str
    names: str
    snapshots: SnapshotSetup = SnapshotSetup()
    exports: tuple[ExportSetup, ...] = ()
    keep_exports: int = KEPT_EXPORTS
