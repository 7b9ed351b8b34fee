"""What a graph asks a checkpoint for; what it says of shapes is text that anybody may write."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckpttool.formats.graph_file import read_graph_file
from ckpttool.limits import Limits
from ckpttool.sources.graph_expects import Expects, expected_of
from ckpttool.storage import open_directory

_CONST = (
    'node {{ name: "{}" op: "Const" attr {{ key: "value" value {{ tensor {{ dtype: DT_STRING '
    'tensor_shape {{ dim {{ size: 1 }} }} string_val: "{}" }} }} }} }}\n'
)
_RESTORE = (
    'node { name: "r" op: "RestoreV2" input: "prefix" input: "keys" input: "slices" '
    'attr { key: "dtypes" value { list { type: DT_FLOAT } } } }\n'
)


def expects(folder: Path, key: str, spec: str) -> Expects:
    text = _CONST.format("keys", key) + _CONST.format("slices", spec) + _RESTORE
    (folder / "graph.pbtxt").write_text(text)
    with open_directory(str(folder)) as directory:
        file = directory.open("graph.pbtxt")
        found = expected_of(read_graph_file(file, Limits()), Limits())
        file.close()
    return found


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("784 16 0,392:0,16", (784, 16)),
        ("7 0,3", (7,)),
        ("", None),
        ("-", None),
        ("-1 0,3", None),
        ("² 0,3", None),
        ("9" * 5000 + " 0,3", None),
    ],
)
def test_a_slice_says_the_shape_that_it_is_of(
    tmp_path: Path, spec: str, shape: tuple[int, ...] | None
) -> None:
    found = expects(tmp_path, "w", spec)
    assert found.by_saver
    assert found.variables["w"].shape == shape
    assert found.variables["w"].dtype == "float32"
