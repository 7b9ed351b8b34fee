"""Every value of V1 checkpoints, as TensorFlow's RestoreV2 reads them.

Its CheckpointReader reads neither slices nor half floats of a V1 checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.model import Variable
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection

CORPUS = {
    "mixed-v1-v2-tdgammon/checkpoint-447880": 16,
    "v1-acrobot-adam/model.ckpt": 34,
    "v1-badhalfplustwo-abspath/export": 2,
    "v1-deepq-dotdot-path/karpathy_game.ckpt": 24,
    "v1-halfplustwo-sharded/export": 2,
}
FIXTURES = {"v1": 5, "v1-sharded": 3, "v1-dtypes/all": 23}


def restored(tf: Any, location: str, variable: Variable, spec: str = "") -> np.ndarray:
    (value,) = tf.raw_ops.RestoreV2(
        prefix=location,
        tensor_names=[variable.key],
        shape_and_slices=[spec],
        dtypes=[tf.as_dtype(variable.dtype)],
    )
    found = value.numpy()
    return np.asarray(found, object) if variable.dtype == "string" else np.asarray(found)


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    if ours.dtype == object:
        return bool((ours == theirs).all()) and ours.shape == theirs.shape
    return (ours.shape, ours.tobytes()) == (theirs.shape, theirs.tobytes())


def compare(tf: Any, path: Path) -> int:
    """Compare all values; how many variables there are."""
    count = 0
    with open_source(str(path)) as source:
        for variable in source.variables():
            count += 1
            assert variable.shape is not None
            ours = source.read(variable, Selection.whole(variable.shape))
            if variable.slices is None or variable.dtype != "string":
                assert same(ours, restored(tf, source.location, variable)), variable
                continue
            rows, columns = variable.shape
            for part in variable.slices:  # TensorFlow puts no strings together
                first, length = part.start[0], part.extent[0]
                spec = f"{rows} {columns} {first},{length}:-"
                theirs = restored(tf, source.location, variable, spec)
                assert same(ours[first : first + length], theirs), variable
    return count


def test_the_fixtures(fixtures_dir: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for address, count in FIXTURES.items():
        assert compare(tf, fixtures_dir / address) == count


def test_the_corpus(corpus: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for address, count in CORPUS.items():
        assert compare(tf, corpus / address) == count


def test_names_shapes_and_dtypes(corpus: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    for address in CORPUS:
        with open_source(str(corpus / address)) as source:
            reader = tf.train.load_checkpoint(source.location)
            assert reader.get_variable_to_shape_map() == {
                variable.key: list(variable.shape or ()) for variable in source.variables()
            }
            assert {
                key: dtype.name for key, dtype in reader.get_variable_to_dtype_map().items()
            } == {variable.key: variable.dtype for variable in source.variables()}
