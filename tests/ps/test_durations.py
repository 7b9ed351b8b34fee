"""How long snapshots and exports take, as counts for a histogram."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.durations import Durations
from ckpttool.ps.runtime.exports import Exporter
from ckpttool.ps.runtime.snapshot import Snapshot


@given(st.lists(st.floats(0, 5000)))
def test_each_duration_is_counted_below_its_bound(times: list[float]) -> None:
    durations = Durations()
    for seconds in times:
        durations.add(seconds)
    told: dict[str, Any] = durations.as_dict()
    so_far = 0
    for bound, count in zip(told["bounds"], told["counts"], strict=False):
        so_far += count
        assert so_far == sum(seconds <= bound for seconds in times)
    assert sum(told["counts"]) == len(times)
    assert told["sum"] == pytest.approx(sum(times))


def test_exports_that_were_made_are_counted(tmp_path: Path, fixtures_dir: Path) -> None:
    run = RunDirectory(str(tmp_path / "run"))
    run.prepare()
    snapshot = Snapshot(
        number=1,
        prefix=str(fixtures_dir / "partitioned" / "wide.ckpt-1"),
        step_before=1,
        step=1,
        step_after=1,
        consistent=True,
        time=0.0,
        seconds=0.1,
        pause_seconds=0.0,
        bytes=0,
        variables=3,
    )
    exporter = Exporter(run, lambda: snapshot, 0)
    made = exporter.export("npz", "arrays", (), wait=True)
    assert made.state == "done", made.why
    assert exporter.export("onnx", "fails", (), wait=True).state == "failed"  # it has no graph
    told: dict[str, Any] = exporter.durations.as_dict()
    assert sum(told["counts"]) == 1
    assert told["sum"] == pytest.approx(made.seconds)
