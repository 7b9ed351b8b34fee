"""Clusters that train a function of ``trainers.py``, and what their snapshots hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import ckpttool
from tests.support.clusters import Cluster, cluster
from tests.support.command import ROOT

TRAINERS = ROOT / "tests" / "support" / "trainers.py"


@contextmanager
def training(
    folder: Path, function: str, *words: str, env: dict[str, str] | None = None
) -> Iterator[Cluster]:
    """A cluster that trains a function of ``tests/support/trainers.py``."""
    size = () if "--ps" in words else ("--ps", "2")
    train = ("--train", f"{TRAINERS}:{function}", "--no-gateway", "--workers", "2")
    with cluster(folder, "up", *size, *train, *words, env=env) as running:
        yield running


def trained(folder: Path, function: str, *words: str, env: dict[str, str] | None = None) -> Path:
    """Train to the end; gives the prefix of the last snapshot."""
    folder.mkdir(exist_ok=True)
    with training(folder, function, *words, "--exit-when-done", env=env) as running:
        assert running.process.wait(180) == 0, running.said()
    snapshots = sorted((folder / "run" / "snapshots").glob("*.index"))
    return snapshots[-1].with_suffix("")


def values(prefix: str | Path) -> dict[str, np.ndarray]:
    """Everything in a snapshot, by the last part of its name."""
    with ckpttool.open(str(prefix)) as source:
        return {name.rpartition("/")[2]: source.read(name) for name in source}


def counters(prefix: str) -> tuple[int, int]:
    found = values(prefix)
    return int(found["a"]), int(found["c"])
