"""What a killed process, or somebody else, left among the snapshots of a run directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ckpttool.ps.runtime.snapshot import Snapshot, SnapshotStore

RECORD = Snapshot(
    number=4,
    prefix="snap-4",
    step_before=1,
    step=1,
    step_after=1,
    consistent=True,
    time=1.0,
    seconds=1.0,
    pause_seconds=0.0,
    bytes=1,
    variables=1,
)


def put(folder: Path, called: int, **change: object) -> Path:
    path = folder / f"snap-{called}.json"
    path.write_text(json.dumps(RECORD.as_dict() | {"number": called} | change))
    return path


def test_a_record_whose_snapshot_is_gone_goes_too(tmp_path: Path, fixtures_dir: Path) -> None:
    """`kill -9` while an old snapshot is removed."""
    gone, kept = put(tmp_path, 9), put(tmp_path, 3)
    for part in (fixtures_dir / "partitioned").glob("wide.ckpt-1.*"):
        shutil.copy(part, tmp_path / part.name.replace("wide.ckpt-1", "snap-3"))
    foreign = tmp_path / "snap-5.json"
    foreign.write_text("{}")
    store = SnapshotStore(str(tmp_path), keep=3)
    assert [one.number for one in store.all] == [3]
    assert not gone.exists()
    assert kept.exists()
    assert foreign.exists()


@pytest.mark.parametrize("change", [{"number": "4"}, {"step": "x"}, {"time": None}, {"bytes": []}])
def test_a_record_of_another_kind_is_none(tmp_path: Path, change: dict[str, object]) -> None:
    path = put(tmp_path, 4, **change)
    assert SnapshotStore(str(tmp_path), keep=3).newest is None
    assert path.exists()
