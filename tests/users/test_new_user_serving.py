"""What a new user of ``serve-ps`` ran into."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import ckpttool
from tests.support.trained import trained

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are counted in /proc")


def _slots(prefix: Path) -> dict[str, np.ndarray]:
    with ckpttool.open(str(prefix)) as source:
        return {
            variable.key: source.read(variable)
            for variable in source.values()
            if "/.OPTIMIZER_SLOT/" in variable.key
        }


@pytest.mark.parametrize("partition", ["hash", "fixed"])
def test_slots_of_a_legacy_optimizer_are_saved_and_restored(tmp_path: Path, partition: str) -> None:
    """No object has them as a child, so they were no variables, and no snapshot was made."""
    if find_spec("tensorflow") is None or find_spec("tf_keras") is None:
        pytest.skip("TensorFlow and tf_keras are not installed")
    first = trained(tmp_path / "one", "legacy", "--partition", partition)
    saved = _slots(first)
    assert len(saved) == 6  # m and v of the embedding, the kernel and the bias
    assert (1001, 8) in {array.shape for array in saved.values()}
    assert all(array.any() for array in saved.values())
    folder = tmp_path / "two"
    (folder / "run").mkdir(parents=True, mode=0o700)
    shutil.copytree(first.parent, folder / "run" / "snapshots")
    again = _slots(trained(folder, "legacy", "--partition", "hash"))
    assert again.keys() == saved.keys()
    assert all(np.array_equal(again[key], saved[key]) for key in saved)
