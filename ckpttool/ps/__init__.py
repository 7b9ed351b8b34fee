"""A parameter-server cluster on TensorFlow's runtime, from Python: see docs/serve-ps.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from ckpttool.ps.runtime.compression import Link
    from ckpttool.ps.runtime.context import TrainingHost
    from ckpttool.ps.runtime.hook import PauseHook
    from ckpttool.ps.runtime.placement import partitioner_of, placement_of

__all__ = ["Link", "PauseHook", "hosting", "partitioner_of", "placement_of"]

#: What is imported when it is first asked for: TensorFlow comes with it.
_LAZY = {
    "Link": "compression",
    "PauseHook": "hook",
    "partitioner_of": "placement",
    "placement_of": "placement",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class or function, whichever
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ckpttool.ps.runtime.{_LAZY[name]}"), name)


def hosting(
    coordinator: Any,  # noqa: ANN401 - TensorFlow is not imported for its types
    run_dir: str | os.PathLike[str],
    *,
    snapshot_seconds: float | None = 60.0,
    keep: int = 3,
    keep_exports: int = 5,
    drain_rate: int | None = None,
) -> TrainingHost:
    """Let what your own coordinator trains be read, in one line of its script.

    ::

        with ckpttool.ps.hosting(coordinator, run_dir="run") as host:
            host.track(model, optimizer=optimizer)
            train(coordinator)

    Args:
        coordinator: a ``ClusterCoordinator``; its ``schedule`` is held while a snapshot is
            made.
        run_dir: where ``live.sock``, snapshots and exports are; made where it is not there.
        snapshot_seconds: a snapshot each so many seconds; None: only on request.
        keep: the newest so many snapshots stay.
        keep_exports: the newest so many versions of each export stay; 0: all.
        drain_rate: bytes a second of a snapshot that are fetched while steps are made; 0: as
            many as can be; None: what ``serve-ps`` does.
    """
    from ckpttool.ps.runtime.context import host_of
    from ckpttool.ps.setup import DRAIN_RATE, SnapshotSetup

    rate = DRAIN_RATE if drain_rate is None else drain_rate
    setup = SnapshotSetup(snapshot_seconds, every_steps=None, keep=keep, drain_rate=rate)
    return host_of(coordinator, run_dir, setup, keep_exports)
