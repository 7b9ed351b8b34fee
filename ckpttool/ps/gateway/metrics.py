"""Figures for Prometheus: what the gateway counts, and what the training says of itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

__all__ = ["Metrics"]

#: Seconds; reading a few rows takes two milliseconds, a large table seconds.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    """All figures; names begin with ``ckpttool_``."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._load = Histogram(
            "ckpttool_param_load_seconds",
            "Time until parameters, or their list, are read from a snapshot",
            ["operation"],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._rows = Counter("ckpttool_served_rows", "Rows served", registry=registry)
        self._bytes = Counter("ckpttool_served_bytes", "Bytes of values served", registry=registry)
        self._requests = Counter(
            "ckpttool_gateway_requests", "Answers", ["path", "status"], registry=registry
        )
        self._up = Gauge("ckpttool_training_up", "Whether the training answers", registry=registry)
        self._training = _Training()
        registry.register(self._training)

    @contextmanager
    def loading(self, operation: str) -> Iterator[None]:
        """Time a block that reads."""
        with self._load.labels(operation).time():
            yield

    def served(self, rows: int, nbytes: int) -> None:
        """Values are sent."""
        self._rows.inc(rows)
        self._bytes.inc(nbytes)

    def answered(self, path: str, status: int | str) -> None:
        """A request has its answer.

        Args:
            path: of a route, or of a gRPC method.
            status: of HTTP, or gRPC's word.
        """
        self._requests.labels(path, str(status)).inc()

    def exposition(self, status: dict[str, Any] | None) -> bytes:
        """All of it as text; ``status`` is that of the training, if it answers."""
        self._up.set(status is not None)
        self._training.status = status or {}
        return generate_latest(self._registry)


class _Training(Collector):
    """What the training last said, as metrics (docs/architecture.md, ``status``)."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}

    def collect(self) -> Iterator[Metric]:
        status = self.status
        for name, text in (
            ("step", "The training step"),
            ("rate", "Steps a second"),
            ("variables", "Variables"),
            ("bytes", "Bytes of all variables"),
        ):
            if status.get(name) is not None:
                yield GaugeMetricFamily(f"ckpttool_training_{name}", text, float(status[name]))
        losses = GaugeMetricFamily("ckpttool_training_loss", "A loss, by name", labels=["name"])
        for name, value in (status.get("losses") or {}).items():
            losses.add_metric([str(name)], float(value))
        yield losses
        syncs = CounterMetricFamily(
            "ckpttool_sync", "Copies of all parameters, by outcome", labels=["outcome"]
        )
        for outcome, count in (status.get("syncs") or {}).items():
            syncs.add_metric([str(outcome)], float(count))
        yield syncs
        durations = status.get("durations") or {}
        for what in ("snapshot", "export"):
            if what in durations:
                name = f"ckpttool_{what}_duration_seconds"
                yield _histogram(name, f"What each {what} took", durations[what])
        yield from self._by_ps()
        yield from self._snapshots()
        yield from self._exports()

    def _by_ps(self) -> Iterator[Metric]:
        nbytes = GaugeMetricFamily("ckpttool_ps_bytes", "Bytes on a server", labels=["ps"])
        variables = GaugeMetricFamily(
            "ckpttool_ps_variables", "Variables, or parts, on a server", labels=["ps"]
        )
        for one in self.status.get("per_ps") or ():
            nbytes.add_metric([str(one["ps"])], float(one["bytes"]))
            variables.add_metric([str(one["ps"])], float(one["variables"]))
        yield nbytes
        yield variables

    def _snapshots(self) -> Iterator[Metric]:
        snapshots = self.status.get("snapshots") or []
        if not snapshots:
            return
        last = max(snapshots, key=lambda one: int(one["number"]))
        yield CounterMetricFamily(
            "ckpttool_snapshots", "Snapshots made in this run directory", float(last["number"])
        )
        for name, text, value in (
            ("timestamp_seconds", "When the newest snapshot was made", last["time"]),
            ("age_seconds", "How old it is", max(0.0, time.time() - float(last["time"]))),
            ("seconds", "What it took", last["seconds"]),
            ("pause_seconds", "How long training was held for it", last["pause_seconds"]),
            ("bytes", "Its size", last["bytes"]),
            ("step", "Its step", last["step"]),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"ckpttool_snapshot_{name}", text, float(value))
        times = sorted(float(one["time"]) for one in snapshots)
        if len(times) > 1:
            yield GaugeMetricFamily(
                "ckpttool_snapshot_interval_seconds",
                "Mean time between the snapshots that are there",
                (times[-1] - times[0]) / (len(times) - 1),
            )

    def _exports(self) -> Iterator[Metric]:
        counts: dict[tuple[str, str], int] = {}
        seconds = GaugeMetricFamily(
            "ckpttool_export_seconds", "What the last export of a name took", labels=["name"]
        )
        last: dict[str, float] = {}
        for one in self.status.get("exports") or ():
            key = (str(one["name"]), str(one["state"]))
            counts[key] = counts.get(key, 0) + 1
            if one["state"] == "done":
                last[key[0]] = float(one["seconds"])
        exports = GaugeMetricFamily(
            "ckpttool_exports", "Exports that are remembered", labels=["name", "state"]
        )
        for labels, count in counts.items():
            exports.add_metric(labels, count)
        for name, value in last.items():
            seconds.add_metric([name], value)
        yield exports
        yield seconds


def _histogram(name: str, text: str, told: Mapping[str, Any]) -> Metric:
    """A histogram of counts that live.sock tells (``runtime/durations.py``)."""
    bounds = [*(str(float(bound)) for bound in told["bounds"]), "+Inf"]
    buckets = list(zip(bounds, accumulate(map(float, told["counts"])), strict=True))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=float(told["sum"]))
