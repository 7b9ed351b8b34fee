"""What a training function of ``serve-ps up --train`` is given, and the same for others.

``TrainContext`` makes strategy and coordinator of a cluster that serve-ps started.
``TrainingHost`` is all the rest, and takes the coordinator of a script that has its own
(``ckpttool.ps.hosting``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import tensorflow as tf

from ckpttool.errors import UsageError
from ckpttool.ps.partition import Partition, parse_partition
from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.compression import Link
from ckpttool.ps.runtime.gate import Gate
from ckpttool.ps.runtime.hosted import HostedSource
from ckpttool.ps.runtime.live import Loaded
from ckpttool.ps.runtime.live_host import LiveHost
from ckpttool.ps.runtime.placement import Table, partitioner_of, place_variables
from ckpttool.ps.setup import SnapshotSetup, TrainSetup

__all__ = ["TrainContext", "TrainingHost", "host_of"]


class TrainingHost:
    """Serves what a coordinator trains, from ``__enter__`` to ``__exit__``.

    Attributes:
        strategy: the ``ParameterServerStrategy``.
        coordinator: its ``ClusterCoordinator``; its ``schedule`` waits while a snapshot of
            one moment is made, and while two steps a worker are under way.

    Args:
        coordinator: whose steps are held for snapshots.
        run: the run directory, which is made where it is not there.
        setup: snapshots and exports.
    """

    def __init__(self, coordinator: Any, run: RunDirectory, setup: TrainSetup) -> None:
        self.strategy = coordinator.strategy
        self.coordinator = coordinator
        self._setup = setup
        self._gate = Gate(coordinator, _workers(coordinator.strategy))
        self._tracked: dict[str, Any] = {}
        self._optimizer: Any = None
        self._step: tf.Variable | None = None
        self._root = tf.train.Checkpoint()
        run.prepare()
        self._source = HostedSource(self._root, self._gate, self._counter)
        self._host = LiveHost(self._source, run, setup.snapshots, setup.exports, setup.keep_exports)

    def __enter__(self) -> Self:
        self._host.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self._host.__exit__(kind, value, traceback)

    def track(
        self,
        model: Any,
        *,
        optimizer: Any = None,
        step: tf.Variable | None = None,
        serving: str | None = None,
        **more: Any,
    ) -> None:
        """Say what is trained: what snapshots hold and everybody can read.

        A snapshot is the checkpoint that ``tf.train.Checkpoint(model=model,
        optimizer=optimizer, step=step, **more)`` would write, and restores.

        Args:
            model: a Keras model or a ``tf.Module``.
            optimizer: its slots are saved too; a compiled Keras model brings its own.
            step: the variable that counts steps; by default the optimizer's. (That of Keras
                3 is read, and then written: when workers do so at once, it counts one step.)
            serving: ``FILE.py:FUNCTION`` or ``MODULE:FUNCTION`` that builds the plain model,
                as of ``convert --model``: what exports are made with.
            more: other objects of a checkpoint.

        Raises:
            UnsupportedError: id ``keras3-partitioned``.
        """
        self._optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self._step = step
        given = {"model": model, "optimizer": optimizer, "step": step, **more}
        for name, value in given.items():
            if value is not None:
                setattr(self._root, name, value)
                self._tracked[name] = value
        self._source.variables()  # what cannot be saved is told here, not at the first snapshot
        if serving is not None:
            self._host.export_options = ("--model", serving)

    def table(
        self, name: str, shape: tuple[int, ...], initializer: Any, dtype: Any = tf.float32
    ) -> Table:
        """An embedding that is cut as ``--partition`` says, uneven ranges too (``Table``)."""
        servers = self.strategy.extended._num_ps
        partition = parse_partition(self._setup.partition, servers)
        partition = partition or Partition("fixed", servers, shards=servers)
        parts = partition.parts(shape, tf.as_dtype(dtype).size)
        return Table(name, shape, parts, servers, initializer, dtype)

    def tell_failure(self, tell: Callable[[str], None]) -> None:
        """Have this called, once, with why a snapshot or an export failed."""
        self._host.on_failure = tell

    def schedule(self, fn: Any, args: Any = None, kwargs: Any = None) -> Any:
        """As ``ClusterCoordinator.schedule``, which is the same: both go through the gate."""
        return self.coordinator.schedule(fn, args=args, kwargs=kwargs)

    def join(self) -> None:
        """As ``ClusterCoordinator.join``."""
        self.coordinator.join()

    @property
    def steps(self) -> int:
        """Steps that this process has scheduled."""
        return self._gate.passed

    def restore(self) -> Loaded | None:
        """Go on from the newest snapshot of the run directory; None where there is none.

        The optimizer's slots are made first. Values are read here and written in pieces, so
        the servers need not see this disk, and parts may be cut otherwise than they were.

        Raises:
            UsageError: id ``nothing-tracked``.
            RefusedError: ids ``restore-incomplete``, ``restore-shape``.
        """
        newest = self._host.newest
        if newest is None:
            return None
        if not self._tracked:
            raise UsageError(
                "nothing is tracked that could be restored",
                why="restore() was called before track()",
                hint="ctx.track(model, optimizer=optimizer), then ctx.restore()",
                id="nothing-tracked",
            )
        self._build_optimizer()
        return self._host.write(newest.prefix)

    def report(self, **losses: float) -> None:
        """Figures for the live page and ``/metrics``: ``ctx.report(loss=0.3)``."""
        self._host.report(losses)

    @property
    def should_stop(self) -> bool:
        """Whether the training is asked to end (the request ``stop`` of ``live.sock``)."""
        return self._host.stopping.is_set()

    def snapshot(self) -> str:
        """Make a snapshot now; gives its prefix."""
        return self._host.snapshot().prefix

    def finish(self) -> None:
        """Wait for the steps under way, and make the last snapshot."""
        self.coordinator.join()
        if self._tracked:
            self._host.snapshot()

    def _counter(self) -> tf.Variable | None:
        """The variable that counts steps."""
        counter = self._step if self._step is not None else _iterations(self._optimizer)
        return getattr(counter, "_value", counter)  # Keras 3 wraps one of TensorFlow

    def _build_optimizer(self) -> None:
        """Have the slots of an optimizer of Keras made: it makes them at the first step."""
        build = getattr(self._optimizer, "build", None)
        model = self._tracked.get("model")
        variables = getattr(model, "trainable_variables", None)
        if build is None:  # tf_keras.optimizers.legacy, which does nothing where they exist
            build = getattr(self._optimizer, "_create_all_weights", None)
        if build is not None and variables and not getattr(self._optimizer, "built", False):
            with self.strategy.scope():
                build(variables)


class TrainContext(TrainingHost):
    """The argument of a training function.

    Args:
        setup: what ``serve-ps up`` was asked for.
        attempt: 0, and one more after every restart: a training function that is called
            again goes on from the last snapshot with ``restore()``.
    """

    def __init__(self, setup: TrainSetup, attempt: int = 0) -> None:
        self.attempt = attempt
        jobs = {job: list(addresses) for job, addresses in setup.jobs}
        servers = len(jobs["ps"])
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(jobs), rpc_layer="grpc"
        )
        strategy = tf.distribute.ParameterServerStrategy(
            resolver, variable_partitioner=partitioner_of(setup.partition, servers)
        )
        place_variables(strategy, setup.partition, servers)
        #: How gradients and parameters travel, as ``--push`` and ``--pull`` ask.
        self.link = Link.of(setup.compression, strategy)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        super().__init__(coordinator, RunDirectory(setup.run_dir), setup)

    def optimizer(self, optimizer: Any) -> Any:
        """The same optimizer, whose gradients travel as ``--push`` asks (``Link.optimizer``)."""
        return self.link.optimizer(optimizer)

    @property
    def unused_compression(self) -> tuple[str, ...]:
        """Of ``--push`` and ``--pull``, which were asked for and did nothing so far."""
        asked = self._setup.compression
        given = {"push": asked.push, "pull": asked.pull}
        return tuple(
            f"--{way} {how}" for way, how in given.items() if how and way not in self.link.used
        )

    @property
    def run_dir(self) -> str:
        """The run directory."""
        return self._setup.run_dir


def host_of(
    coordinator: Any,
    run_dir: str | os.PathLike[str],
    snapshots: SnapshotSetup,
    keep_exports: int,
) -> TrainingHost:
    """A host for a coordinator of one's own; see ``ckpttool.ps.hosting``."""
    run = RunDirectory(os.fspath(run_dir))
    setup = TrainSetup(
        run_dir=run.path,
        jobs=(),
        train="",
        cwd=os.getcwd(),
        snapshots=snapshots,
        keep_exports=keep_exports,
    )
    return TrainingHost(coordinator, run, setup)


def _iterations(optimizer: Any) -> Any:
    return getattr(optimizer, "iterations", None)


def _workers(strategy: Any) -> int:
    """How many workers a strategy has (no public word for it)."""
    return int(strategy._extended._num_workers)
