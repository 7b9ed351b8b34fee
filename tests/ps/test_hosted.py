"""TensorFlow 2 trainings of every sort, restored under other partitions."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from tests.support.trained import counters, trained, training, values

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")

ROWS, WIDTH = 1001, 8


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imported in children only."""
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")


@pytest.mark.slow
def test_a_snapshot_is_restored_under_other_parts_and_another_number_of_servers(
    tmp_path: Path,
) -> None:
    """The second run begins with what the first one ended with."""
    first = trained(tmp_path / "one", "still", "--partition", "fixed:3")
    expected = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    assert counters(str(first)) == (20, 20)
    assert np.array_equal(values(first)["emb"], expected)
    for number, words in enumerate(
        (("--partition", "min-max:4K", "--ps", "3"), ("--partition", "hash", "--ps", "1"))
    ):
        folder = tmp_path / f"again{number}"
        (folder / "run").mkdir(parents=True, mode=0o700)
        shutil.copytree(first.parent, folder / "run" / "snapshots")
        last = trained(folder, "still", *words)
        assert last.name == "snap-2"
        assert counters(str(last)) == (40, 40)
        assert np.array_equal(values(last)["emb"], expected)


def test_a_table_in_uneven_ranges_loses_no_row(tmp_path: Path) -> None:
    last = trained(tmp_path / "one", "table", "--partition", "range:3,1")
    rows = values(last)["emb"]
    assert rows.shape == (50, 3)
    assert float(rows.sum()) == 30 * 64 * 3
    folder = tmp_path / "two"
    (folder / "run").mkdir(parents=True, mode=0o700)
    shutil.copytree(last.parent, folder / "run" / "snapshots")
    again = trained(folder, "table", "--partition", "range:1,1,2", "--ps", "3")
    assert np.array_equal(values(again)["emb"], rows)


def test_tf_keras_fit_with_a_partitioned_embedding(tmp_path: Path) -> None:
    """Slots are in the snapshot, and it is exported to what serves it."""
    pytest.importorskip("tf_keras")
    last = trained(
        tmp_path / "fit", "fit", "--partition", "fixed", env={"TF_USE_LEGACY_KERAS": "1"}
    )
    with ckpttool.open(str(last)) as source:
        shapes = {source[name].shape for name in source if "ccumulator" in name}
        assert (1001, 8) in shapes
        record = json.loads(last.with_suffix(".json").read_bytes())
        assert record["step"] == 40


def test_keras_3_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    last = trained(tmp_path / "keras", "keras3")
    record = json.loads(last.with_suffix(".json").read_bytes())
    assert 0 < record["step"] <= 20  # its counter is no atomic one
    with ckpttool.open(str(last)) as source:
        assert any(source[name].shape == (4, 2) for name in source)


def test_keras_3_in_parts_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    with training(folder, "keras3", "--partition", "fixed") as running:
        assert running.process.wait(180) != 0
        assert "Keras 3" in running.said()


def test_a_step_that_fails_ends_the_training_with_its_own_error(tmp_path: Path) -> None:
    with training(tmp_path, "fails", "--exit-when-done") as running:
        assert running.process.wait(180) == 61
        assert "as it was asked to" in running.said()
