"""What a hostile client of a training sends, and what must come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpttool.errors import UsageError
from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.exports import Exporter
from ckpttool.ps.runtime.snapshot import Snapshot


def _no_snapshot() -> Snapshot:
    raise AssertionError("no snapshot is to be made")


@pytest.mark.parametrize("name", ["", ".x", "..", "a/b", "a\0b", "\ud800", "a" * 201, "é" * 101])
def test_a_name_that_no_export_can_have_is_refused_by_name(name: str, tmp_path: Path) -> None:
    exporter = Exporter(RunDirectory(str(tmp_path / "run")), _no_snapshot, keep=0)
    with pytest.raises(UsageError) as caught:
        exporter.export("npz", name, [], wait=True)
    assert (caught.value.exit_code, caught.value.id) == (2, "export-name")
    assert exporter.all == ()


def test_what_waits_when_the_training_ends_takes_no_snapshot_of_it(tmp_path: Path) -> None:
    exporter = Exporter(RunDirectory(str(tmp_path / "run")), _no_snapshot, keep=0)
    exporter.close()
    export = exporter.export("npz", "late", [], wait=True)
    assert (export.state, export.snapshot) == ("failed", None)
    assert "the training ended meanwhile" in export.why
