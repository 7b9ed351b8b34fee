"""The table of models and targets: every cell is proven or refused by name; none is silent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.convert_table import ROWS, TARGETS, make_models, table
from ckpttool.conversion.node_packages import find_package
from ckpttool.ops.explain import explain

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

pytestmark = pytest.mark.slow

#: Row, target → the id of the error with which it is refused.
REFUSED: Mapping[tuple[str, str], str] = {
    ("LSTM and GRU", "tflite"): "tflite-open-batch",
    ("two signatures, int64 ids", "onnx"): "onnx-signatures",
    ("two signatures, int64 ids", "tfjs"): "tfjs-signatures",
    ("string table", "tflite"): "stateful-graph",
    ("string table", "onnx"): "stateful-graph",
    ("string table", "tfjs"): "stateful-graph",
    ("bfloat16", "tflite"): "tflite-flex",
}
#: What nothing can be compared with, and why.
UNPROVEN = {"random numbers": "other values each time"}
#: bfloat16 has 8 bits: a sum in another order is off by a two-hundredth.
NRMSE = {"bfloat16": 0.03}


def test_no_cell_is_silent(tmp_path: Path) -> None:
    known = {entry.id for entry in explain().entries}
    has_node = find_package("@tensorflow/tfjs") is not None
    make_models(tmp_path)
    for title, cells in zip(ROWS, table(tmp_path, list(ROWS)), strict=True):
        assert [one.target for one in cells] == list(TARGETS), cells
        for cell in cells:
            refused = REFUSED.get((title, cell.target))
            if refused is not None:
                assert (cell.state, cell.why) == ("refused", refused), cell
                assert refused in known
            elif title in UNPROVEN:
                assert cell.state == "not_run", cell
                assert UNPROVEN[title] in cell.said
            elif cell.target == "tfjs" and not has_node:
                assert cell.state == "not_run", cell
                assert "@tensorflow/tfjs" in cell.said
            else:
                assert cell.state == "passed", cell
                assert (cell.nrmse or 0.0) <= NRMSE.get(title, 1e-5), cell
