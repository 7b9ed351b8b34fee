"""Keras files that ask for code are refused before Keras sees them (FAULTS 20)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.worker.keras_safety import require_contained, require_no_code
from ckpttool.errors import CkpttoolError, LimitError, UnsafeError
from ckpttool.limits import Limits
from ckpttool.sources.registry import open_source

DENSE = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2}}


def model(*layers: dict[str, Any]) -> str:
    return json.dumps({"class_name": "Sequential", "config": {"layers": list(layers)}})


def archive(path: Path, config: str) -> str:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", config)
    return str(path)


def hdf5(path: Path, config: str | None) -> str:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        if config is not None:
            file.attrs["model_config"] = config
    return str(path)


@pytest.mark.parametrize("write", [archive, hdf5])
@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"class_name": "Lambda", "config": {"function": ["4wEA", None, None]}}, "Lambda"),
        ({"class_name": "Dense", "config": {"activation": {"class_name": "__lambda__"}}}, "lambda"),
        ({"module": "os", "class_name": "function", "config": "system"}, "the module os"),
        ({"module": "kerasish.layers", "class_name": "Dense"}, "the module kerasish.layers"),
        ({"class_name": "TFOpLambda", "config": {"function": "io.gfile.remove"}}, "io.gfile"),
        ({"class_name": "TFOpLambda", "config": {"function": "load_op_library"}}, "load_op"),
        ({"class_name": "TFOpLambda", "config": {"function": "compat.v1.read_file"}}, "read_file"),
        ({"class_name": "TFOpLambda", "config": {"function": "raw_ops.WriteFile"}}, "WriteFile"),
        ({"class_name": "ClassMethod", "config": {"cls_ref": "io.gfile.GFile"}}, "GFile"),
        ({"class_name": "ClassMethod", "config": {"cls_ref": "compat.v1.Session"}}, "Session"),
        ({"class_name": "TFOpLambda", "config": {"function": "compat.v1.Session"}}, "Session"),
        ({"class_name": "TFOpLambda", "config": {"function": "Graph"}}, "Graph"),
        ({"class_name": "TFOpLambda", "config": {"function": "import_graph_def"}}, "import_graph"),
        (
            {
                "class_name": "TFOpLambda",
                "config": {"function": "compat.v1.disable_eager_execution"},
            },
            "disable_eager",
        ),
        ({"class_name": "TFOpLambda", "config": {}}, "the function None"),
    ],
)
def test_code_is_refused(write: Any, layer: dict[str, Any], named: str, tmp_path: Path) -> None:
    require_no_code(write(tmp_path / "good", model(DENSE)), Limits())
    with pytest.raises(UnsafeError) as caught:
        require_no_code(write(tmp_path / "bad", model(DENSE, {"config": [layer]})), Limits())
    assert (caught.value.exit_code, caught.value.id) == (22, "keras-code")
    assert named in caught.value.why
    assert "--model" in caught.value.hint


@pytest.mark.parametrize("write", [archive, hdf5])
def test_functions_that_only_compute_are_taken(write: Any, tmp_path: Path) -> None:
    names = ("math.multiply", "__operators__.getitem", "reshape", "compat.v1.nn.relu", "cast")
    layers = [{"class_name": "TFOpLambda", "config": {"function": name}} for name in names]
    layers.append({"class_name": "ClassMethod", "config": {"cls_ref": "RaggedTensor"}})
    require_no_code(write(tmp_path / "good", model(DENSE, *layers)), Limits())


@pytest.mark.parametrize("write", [archive, hdf5])
@pytest.mark.parametrize(
    "layer",
    [
        {"class_name": "StringLookup", "config": {"vocabulary": "/home/me/secret"}},
        {"class_name": "TFSMLayer", "config": {"filepath": "/home/me/secret"}},
    ],
)
def test_other_files_are_not_asked_for(write: Any, layer: dict[str, Any], tmp_path: Path) -> None:
    """What is in them would be in the result: of a vocabulary, as an asset."""
    words = {"class_name": "StringLookup", "config": {"vocabulary": ["a", "b"]}}
    require_no_code(write(tmp_path / "good", model(DENSE, words)), Limits())
    with pytest.raises(UnsafeError) as caught:
        require_no_code(write(tmp_path / "bad", model(DENSE, layer)), Limits())
    assert (caught.value.exit_code, caught.value.id) == (22, "keras-elsewhere")
    assert "/home/me/secret" in caught.value.why


def test_weights_alone_ask_for_nothing(tmp_path: Path) -> None:
    require_no_code(hdf5(tmp_path / "w.h5", None), Limits())


def test_a_configuration_that_is_none(tmp_path: Path) -> None:
    for config in ("[" * 100_000, "not json", "[]"):
        with pytest.raises(CkpttoolError) as caught:
            require_no_code(archive(tmp_path / "m.keras", config), Limits())
        assert caught.value.id == "keras-config"
    with pytest.raises(LimitError):
        require_no_code(archive(tmp_path / "m.keras", " " * 101), Limits(keras_config_bytes=100))


def test_weights_that_lie_in_other_files_are_refused(tmp_path: Path) -> None:
    """Keras would read whatever file of yours the link names into the weights."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = [1.0, 2.0]
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = [[1.0]]
        file["layers/dense/vars/1"] = h5py.ExternalLink("other.h5", "secret")
    with open_source(str(path), Limits()) as source, pytest.raises(UnsafeError) as caught:
        require_contained(source)
    assert (caught.value.exit_code, caught.value.id) == (22, "hdf5-elsewhere")
    with h5py.File(path, "a") as file:
        del file["layers/dense/vars/1"]
    with open_source(str(path), Limits()) as source:
        require_contained(source)
