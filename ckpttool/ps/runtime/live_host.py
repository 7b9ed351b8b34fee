"""What is done with live parameters: snapshots and exports, on request and in time; figures.

Knows neither TensorFlow nor sockets: it has a ``LiveSource`` below it and gives
``LiveServer`` its handlers.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ckpttool.conversion.targets import TARGETS
from ckpttool.errors import CkpttoolError, RefusedError, UnreachableError, UsageError
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.limits import default_limits
from ckpttool.model import numel
from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.durations import Durations
from ckpttool.ps.runtime.exports import Export, Exporter, said_of
from ckpttool.ps.runtime.live import LiveSource, Loaded, per_ps
from ckpttool.ps.runtime.live_server import Handler, LiveServer
from ckpttool.ps.runtime.pace import Pace
from ckpttool.ps.runtime.snapshot import Snapshot, SnapshotStore
from ckpttool.ps.setup import KEPT_EXPORTS, ExportSetup, SnapshotSetup
from ckpttool.sources.registry import open_source

__all__ = ["LiveHost"]

_TICK = 0.5
#: Seconds over which the rate is taken.
_RATE_OVER = 5.0
#: Characters of what is told of a failure.
_TOLD = 500
_ITEM_BYTES = {dtype.name: dtype.size for dtype in BY_NAME.values()}


class LiveHost:
    """The live end of a run directory, from ``__enter__`` to ``__exit__``.

    Args:
        source: the live parameters.
        run: the directory; its ``snapshots`` and ``exports`` exist.
        snapshots: when they are made, and how many stay.
        exports: what is exported again and again.
        keep_exports: the newest so many versions of each export stay; 0: all.
    """

    def __init__(
        self,
        source: LiveSource,
        run: RunDirectory,
        snapshots: SnapshotSetup,
        exports: Sequence[ExportSetup] = (),
        keep_exports: int = KEPT_EXPORTS,
    ) -> None:
        self._source = source
        self._timing = snapshots
        self._regular = [_Regular(export) for export in exports]
        self._store = SnapshotStore(run.snapshots, snapshots.keep)
        self._exporter = Exporter(run, self.snapshot, keep_exports, self._fails)
        self._one_at_a_time = threading.Lock()
        self._ended = threading.Event()
        #: Set when somebody waits for the end: a snapshot under way is not held then.
        self._hurry = threading.Event()
        self._server = LiveServer(run.path, self._handlers())
        self._ticker = threading.Thread(target=self._tick, name="ckpttool-ticker", daemon=True)
        self._losses: dict[str, float] = {}
        self._steps: list[tuple[float, int]] = []
        self._synced = {"ok": 0, "failed": 0}
        self._durations = Durations()
        #: Set when the training is asked to end.
        self.stopping = threading.Event()
        #: Options of every export: where the graph is.
        self.export_options: tuple[str, ...] = ()
        #: Called once, with what went wrong, when a snapshot or an export fails first.
        self.on_failure: Callable[[str], None] | None = None

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot of the directory."""
        return self._store.newest

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._hurry.set()
        self._exporter.close()
        self._server.__exit__(kind, value, traceback)
        self._ticker.join(10 * _TICK)

    def report(self, losses: Mapping[str, float]) -> None:
        """Figures to show: the last value of each stays."""
        self._losses.update({name: float(value) for name, value in losses.items()})

    def snapshot(self, max_age: float | None = None, consistent: bool | None = None) -> Snapshot:
        """A snapshot that is no older, made if need be; callers that come together get one.

        Before the first step the newest of an earlier training is the better answer: what is
        live has not been restored yet, and must never become the newest.

        Raises:
            UnreachableError: id ``live-unreachable``: there is nothing live yet.
            RefusedError: id ``snapshot-not-whole``.
            ClusterError, NoSpaceError, …: it could not be made.
        """
        wanted = time.time() - (max_age or 0.0)
        with self._one_at_a_time:
            newest = self._store.newest
            fresh = newest is not None and wanted <= newest.time <= time.time()
            if (
                newest is not None
                and (fresh or not self._source.begun)
                and (newest.consistent or not consistent)
            ):
                return newest
            if not self._source.variables():
                raise UnreachableError(
                    "there are no live parameters yet",
                    why="the training function has tracked nothing so far",
                    hint="ask again later; in the function: ctx.track(model)",
                    id="live-unreachable",
                )
            started = time.monotonic()
            try:
                with self._source.freeze(consistent=consistent) as frozen:
                    pace = Pace(self._timing.drain_rate, lambda: self._source.busy, self._hurry)
                    made = self._store.take(frozen, started, pace, self._exporter.in_use)
            except Exception as error:
                self._synced["failed"] += 1
                if not isinstance(error, RefusedError):  # or more was asked for than can be
                    self._fails(f"a snapshot failed: {said_of(error)}")
                raise
            self._synced["ok"] += 1
            self._durations.add(made.seconds)
            return made

    def export(self, setup: ExportSetup, *, wait: bool = False) -> Export:
        """Export once, as ``setup`` says."""
        known = any(word.startswith(("--model", "--graph", "--like")) for word in setup.options)
        needs_graph = setup.to not in TARGETS or TARGETS[setup.to].graph
        options = setup.options
        if needs_graph and not known:
            options = (*self.export_options, *options)
        return self._exporter.export(setup.to, setup.name, options, wait=wait)

    def write(self, address: str, names: Sequence[str] | None = None) -> Loaded:
        """Put the values of a checkpoint into live variables."""
        with open_source(address, default_limits()) as source:
            return self._source.write(source, names)

    def status(self) -> dict[str, object]:
        """What ``status`` of ``live.sock`` answers."""
        variables = self._source.variables()
        return {
            "mode": self._source.mode,
            "step": self._steps[-1][1] if self._steps else self._source.step(),
            "rate": self._rate(),
            "losses": dict(self._losses),
            "consistent": self._source.consistent,
            "variables": len(variables),
            "bytes": sum(numel(one.shape) * _ITEM_BYTES[one.dtype] for one in variables),
            "per_ps": per_ps(variables, _ITEM_BYTES),
            "snapshots": [snapshot.as_dict() for snapshot in self._store.all],
            "exports": [export.as_dict() for export in self._exporter.all],
            "syncs": dict(self._synced),
            "durations": {
                "snapshot": self._durations.as_dict(),
                "export": self._exporter.durations.as_dict(),
            },
        }

    def _handlers(self) -> dict[str, Handler]:
        return {
            "status": lambda _: self.status(),
            "list": lambda _: {"variables": self._list()},
            "snapshot": lambda message: self.snapshot(
                _number(message, "max_age"), _flag(message, "consistent")
            ).as_dict(),
            "export": self._on_export,
            "write": self._on_write,
            "stop": self._on_stop,
        }

    def _list(self) -> list[dict[str, object]]:
        return [
            {
                "name": one.name,
                "dtype": one.dtype,
                "shape": list(one.shape),
                "bytes": numel(one.shape) * _ITEM_BYTES[one.dtype],
                "kind": one.kind,
                "parts": [part._asdict() for part in one.parts],
            }
            for one in self._source.variables()
        ]

    def _on_export(self, message: Mapping[str, Any]) -> dict[str, object]:
        setup = ExportSetup(
            name=_text(message, "name"),
            to=_text(message, "to"),
            options=tuple(_texts(message, "options") or ()),
        )
        return self.export(setup, wait=_flag(message, "wait") or False).as_dict()

    def _on_stop(self, _: Mapping[str, Any]) -> dict[str, object]:
        self.stopping.set()
        self._hurry.set()
        return {"stopping": True}

    def _on_write(self, message: Mapping[str, Any]) -> dict[str, object]:
        done = self.write(_text(message, "source"), _texts(message, "names"))
        return {"variables": done.variables, "bytes": done.nbytes}

    def _fails(self, what: str) -> None:
        """Tell of the first failure; those that follow are in the log and in the figures."""
        tell, self.on_failure = self.on_failure, None
        if tell is not None and not self._ended.is_set():
            tell(" ".join(what.split())[:_TOLD])

    def _rate(self) -> float | None:
        """Steps a second, over the last seconds; None before there are two looks."""
        if len(self._steps) < 2:
            return None
        (first, before), (last, now) = self._steps[0], self._steps[-1]
        return max(0.0, (now - before) / max(last - first, 1e-9))

    def _tick(self) -> None:
        """Look at the step, and make what is due."""
        due = _Due(self._timing.every_seconds, self._timing.every_steps)
        while not self._ended.wait(_TICK):
            try:
                step = self._source.step()
                if step is not None:
                    self._steps.append((time.monotonic(), step))
                    while self._steps[-1][0] - self._steps[0][0] > _RATE_OVER:
                        del self._steps[0]
                if not self._source.begun:
                    continue
                if due.now(step):
                    self.snapshot()
                for regular in self._regular:
                    # One that takes longer than its time is not asked for a second time.
                    busy = self._exporter.is_busy(regular.setup.name)
                    if not busy and regular.due.now(step):
                        self.export(regular.setup)
            except CkpttoolError as error:
                if self._ended.is_set():
                    return
                sys.stderr.write(f"{error.what}: {error.why}\n")
            except Exception:  # noqa: BLE001 - the next one may go well; the log has it
                traceback.print_exc()


class _Due:
    """Whether something is due, by seconds or by steps since it was last."""

    def __init__(self, seconds: float | None, steps: int | None) -> None:
        self._seconds = seconds
        self._steps = steps
        self._time = time.monotonic()
        self._step: int | None = None

    def now(self, step: int | None) -> bool:
        """Whether it is; then it counts from here."""
        if self._step is None:
            self._step = step
        late = self._seconds is not None and time.monotonic() - self._time >= self._seconds
        far = (
            self._steps is not None
            and step is not None
            and self._step is not None
            and step - self._step >= self._steps
        )
        if late or far:
            self._time, self._step = time.monotonic(), step
        return late or far


class _Regular:
    """An export that is made again and again."""

    def __init__(self, setup: ExportSetup) -> None:
        self.setup = setup
        self.due = _Due(setup.every_seconds, setup.every_steps)


def _number(message: Mapping[str, Any], name: str) -> float | None:
    value = message.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise _wrong(name, "a number of seconds, or null")
    return float(value)


def _flag(message: Mapping[str, Any], name: str) -> bool | None:
    value = message.get(name)
    if not isinstance(value, bool | None):
        raise _wrong(name, "true, false or null")
    return value


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    if not isinstance(value, str) or not value:
        raise _wrong(name, "a text that is not empty")
    return value


def _texts(message: Mapping[str, Any], name: str) -> list[str] | None:
    value = message.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(name, "a list of texts, or null")
    return value


def _wrong(name: str, what: str) -> UsageError:
    return UsageError(
        f"{name} of a request to live.sock makes no sense",
        why=f"it has to be {what}",
        id="live-request",
    )
