"""Keras' files as sources: names, kinds and values; and what they must not do."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, IncompleteError, UnsafeError, UnsupportedError
from ckpttool.model import Variable
from ckpttool.sources.base import Source
from ckpttool.sources.keras_config import groups_of_layers, parse_object
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection

h5py = pytest.importorskip("h5py")

FILES = [
    "keras2.h5",
    "keras2.keras",
    "keras2-only.h5",
    "keras2.weights.h5",
    "keras3.h5",
    "keras3.keras",
    "keras3.weights.h5",
    "bfloat16.weights.h5",
]
CORPUS = {
    "h5-tfjs-fsrcnn/trained_model/SRCNN.h5": ("keras-h5", 6),
    "h5-tfjs-fsrcnn/trained_model/FSRCNN/FSRCNN.h5": ("keras-h5", 23),
    "keras3-mnist-weights-sm-tflite/mnist.weights.h5": ("keras-weights", 14),
    "keras3-mnist-keras/mnist.keras": ("keras-v3", 26),
}


@pytest.fixture
def files(fixtures_dir: Path) -> Path:
    return fixtures_dir / "keras-files"


def value(source: Source, variable: Variable) -> np.ndarray:
    assert variable.shape is not None
    return source.read(variable, Selection.whole(variable.shape))


def require_equal(path: Path) -> int:
    """Compare every dataset of a file with what h5py reads; how many there are."""
    inside: Any = path
    if path.suffix == ".keras":
        inside = io.BytesIO(zipfile.ZipFile(path).read("model.weights.h5"))
    with open_source(str(path)) as source, h5py.File(inside) as file:
        theirs: dict[str, Any] = {}
        file.visititems(
            lambda name, found: (
                theirs.update({name: found}) if isinstance(found, h5py.Dataset) else None
            )
        )
        ours = {variable.key: variable for variable in source.variables()}
        assert set(ours) == set(theirs)
        for key, dataset in theirs.items():
            array = value(source, ours[key])
            assert array.shape == dataset.shape
            assert array.tobytes() == dataset[()].tobytes()
            assert ours[key].nbytes == array.nbytes
        return len(ours)


@pytest.mark.parametrize("name", FILES)
def test_values_are_h5pys(name, files) -> None:
    assert require_equal(files / name) > 1


@pytest.mark.parametrize("name", CORPUS)
def test_values_of_the_corpus_are_h5pys(name, corpus) -> None:
    kind, count = CORPUS[name]
    assert require_equal(corpus / name) == count
    with open_source(str(corpus / name)) as source:
        assert source.kind == kind


def labelled(path: Path) -> dict[str, str]:
    with open_source(str(path)) as source:
        return {variable.name: variable.kind for variable in source.variables()}


MODEL = {
    "batch_normalization/beta",
    "batch_normalization/gamma",
    "batch_normalization/moving_mean",
    "batch_normalization/moving_variance",
    "embedding/embeddings",
    "hidden/bias",
    "hidden/kernel",
    "reader/lstm_cell/bias",
    "reader/lstm_cell/kernel",
    "reader/lstm_cell/recurrent_kernel",
    "scores/bias",
    "scores/kernel",
}


@pytest.mark.parametrize(
    "name", ["keras2.h5", "keras2-only.h5", "keras3.h5", "keras3.keras", "keras3.weights.h5"]
)
def test_names_of_a_models_variables_are_keras_own(name, files) -> None:
    kinds = labelled(files / name)
    assert {name for name, kind in kinds.items() if kind == "model"} == MODEL


def test_layers_without_a_name_of_their_own_go_by_their_class(files) -> None:
    kinds = labelled(files / "keras2.weights.h5")
    assert {"dense/kernel", "dense_1/bias", "lstm/cell/recurrent_kernel"} <= set(kinds)
    assert kinds["metrics/mean/0"] == "other"


@pytest.mark.parametrize(
    ("name", "step", "optimizer", "ema"),
    [
        ("keras2.h5", "iteration", "RMSprop/momentum/hidden/kernel", None),
        ("keras3.h5", "adam/iteration", "adam/hidden_kernel_velocity", "adam/hidden_bias_average"),
        ("keras3.weights.h5", "optimizer/iteration", "optimizer/7", None),
        ("keras2.keras", "optimizer/iteration", "optimizer/7", None),
    ],
)
def test_an_optimizer_is_told_from_the_model(name, step, optimizer, ema, files) -> None:
    """D20: the optimizer's part of a file, which is what makes it three times as large."""
    kinds = labelled(files / name)
    assert kinds[step] == "step"
    assert kinds[optimizer] == "optimizer"
    assert ema is None or kinds[ema] == "ema"
    with open_source(str(files / name)) as source:
        assert source.step == 3


def test_keras_reads_the_values_that_these_names_have(files) -> None:
    """D38: reading weights does not depend on Keras, and gives what Keras gives."""
    keras = pytest.importorskip("keras")
    model = keras.saving.load_model(files / "keras3.keras", compile=False)
    with open_source(str(files / "keras3.weights.h5")) as source:
        for variable in model.variables:
            found = source.lookup(variable.path)
            if found is None:  # the state of a dropout's generator, which is not saved
                assert "seed_generator" in variable.path
                continue
            assert value(source, found).tolist() == variable.numpy().tolist()


def test_what_the_configuration_says(files) -> None:
    summary = (
        "Functional model of 7 layers (2 Dense, 1 InputLayer, 1 Embedding, 1 LSTM, "
        "1 BatchNormalization, 1 Dropout)"
    )
    for name, version in (("keras2.h5", "2.21.0"), ("keras3.keras", "3.15.1")):
        with open_source(str(files / name)) as source:
            assert source.notes[-1] == f"{name}: {summary}, written by Keras {version}"
            assert source.findings() == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_configuration_in_any_encoding_that_keras_reads(encoding) -> None:
    assert parse_object('{"name": "é"}'.encode(encoding), "config.json") == {"name": "é"}


def test_any_other_hdf5_file_is_its_datasets(tmp_path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["run/loss"] = np.arange(6.0)
    with open_source(str(tmp_path / "data.h5")) as source:
        assert source.kind == "keras-h5"
        assert [variable.name for variable in source.variables()] == ["run/loss"]
        assert "did not write" in source.notes[-1]


def test_a_few_rows_of_a_large_dataset_cost_a_few_reads(tmp_path) -> None:
    """Eight gigabytes that take no room on the disk, and ten rows of them."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("plain", (2**21, 1024), "f4", fill_time="never")[:10] = 1
        chunked = file.create_dataset("chunked", (2**21, 1024), "f4", chunks=(64, 1024))
        chunked[64:128] = 2
    with open_source(str(path)) as source:
        for name, rows, expected in (("plain", slice(0, 10), 1.0), ("chunked", slice(60, 70), 2.0)):
            variable = source.find(name)
            assert variable.nbytes == 2**33
            assert variable.shape is not None
            selection = Selection.of(variable.shape, (rows,))
            array = source.read(variable, selection)
            assert array.shape == (10, 1024)
            assert array.max() == expected
            reads = list(source.reads(variable, selection)) if name == "plain" else []
            assert sum(read.nbytes for read in reads) <= array.nbytes


# Hostile ----------------------------------------------------------------------------------


def repacked(
    files: Path, target: Path, *, archive: str = "keras3.keras", **changed: bytes | None
) -> str:
    """A `.keras` with other members: ``config`` for ``config.json`` and so on."""
    names = {"config": "config.json", "metadata": "metadata.json", "weights": "model.weights.h5"}
    with zipfile.ZipFile(files / archive) as old, zipfile.ZipFile(target, "w") as new:
        for short, name in names.items():
            data = changed.get(short, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return str(target)


LAMBDA = {
    "class_name": "Functional",
    "config": {
        "layers": [
            {
                "class_name": "Lambda",
                "config": {
                    "name": "payload",
                    "function": {"class_name": "__lambda__", "config": {"code": "4wEAAAA="}},
                },
            }
        ]
    },
}


def test_code_in_a_configuration_is_told_and_never_run(files, tmp_path, run_cli) -> None:
    """FAULTS 20; CVE-2025-1550: a Lambda layer."""
    address = repacked(files, tmp_path / "m.keras", config=json.dumps(LAMBDA).encode())
    with open_source(address) as source:
        [finding] = source.findings()
        assert (finding.id, finding.severity) == ("keras-lambda", "warning")
        assert finding.message.startswith("payload: ")
        assert value(source, source.find("hidden/kernel")).shape == (4, 3)
    data = json.loads(run_cli(["inspect", address, "--json"]).stdout)["data"]
    assert [problem["id"] for problem in data["problems"]] == ["keras-lambda"]


def test_code_in_an_h5_is_told(tmp_path) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["model_weights/a/a/kernel:0"] = np.zeros(2)
        # As Keras 2 writes it.
        layer = {"class_name": "Lambda", "config": {"name": "f", "function": ["4wEAAA=="]}}
        file.attrs["model_config"] = json.dumps(
            {"class_name": "Sequential", "config": {"name": "s", "layers": [layer]}}
        )
    with open_source(str(tmp_path / "m.h5")) as source:
        assert [finding.id for finding in source.findings()] == ["keras-lambda"]


@pytest.mark.parametrize(
    "config",
    [
        b"{",
        b"[" * 100_000,
        b'{"class_name": ' * 5000,
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"config": {"name": "\\ud800", "layers": []}}',  # half a character
        b'{"class_name": 3, "config": {"layers": [3, null, {"class_name": []}]}}',
        b'{"class_name": "M", "config": {"layers": ' + b"[" * 900 + b"]" * 900 + b"}}",
    ],
    ids=range(9),
)
def test_a_configuration_that_makes_no_sense(config, files, tmp_path) -> None:
    with open_source(repacked(files, tmp_path / "m.keras", config=config)) as source:
        assert all(finding.id == "keras-config" for finding in source.findings())
        assert value(source, source.find("scores/bias")).shape == (2,)


def test_a_configuration_that_is_missing(files, tmp_path) -> None:
    address = repacked(files, tmp_path / "m.keras", config=None, metadata=None)
    with open_source(address) as source:
        assert [finding.object for finding in source.findings()] == ["metadata.json", "config.json"]


def test_an_archive_without_weights(tmp_path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.weights.h5.json", b"{}")
        file.writestr("config.json", b"{}")
    with pytest.raises(IncompleteError) as caught:
        open_source(str(path))
    assert caught.value.id == "keras-weights-missing"


def test_weights_that_are_compressed_are_named(files, tmp_path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("model.weights.h5", (files / "keras3.weights.h5").read_bytes())
    with pytest.raises(UnsupportedError) as caught:
        open_source(str(path))
    assert caught.value.id == "zip-method"
    assert "unzip" in caught.value.hint


def test_an_archive_that_leads_out_is_refused(files, tmp_path, run_cli) -> None:
    """FAULTS 20: `../` in a `.keras`."""
    address = repacked(files, tmp_path / "m.keras")
    with zipfile.ZipFile(address, "a") as file:
        file.writestr("../../evil", b"x")
    with pytest.raises(UnsafeError):
        open_source(address)
    result = run_cli(["list", address])
    assert result.returncode == 22
    assert "[zip-unsafe]" in result.stderr


def test_values_in_other_files_are_findings(tmp_path, run_cli) -> None:
    """FAULTS 20; CVE-2026-1669: the file that it names is a pipe, which would wait for ever."""
    os.mkfifo(tmp_path / "secret")
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file["model_weights/a/a/bias:0"] = np.ones(2, "f4")
        file.create_dataset(
            "model_weights/a/a/kernel:0", (4,), "f4", external=[(str(tmp_path / "secret"), 0, 16)]
        )
        file["model_weights/b"] = h5py.ExternalLink(str(tmp_path / "secret"), "/x")
    with open_source(str(path)) as source:
        found = {finding.id: finding.severity for finding in source.findings()}
        assert found == {"hdf5-elsewhere": "error", "hdf5-link": "warning"}
        with pytest.raises(UnsafeError):
            value(source, source.find("a/kernel"))
        assert value(source, source.find("a/bias")).tolist() == [1, 1]
    assert run_cli(["load", str(path), "a/kernel"]).returncode == 22


def test_a_flipped_bit_is_an_error_of_ours_or_other_values(files, tmp_path) -> None:
    """FAULTS 14, on the structure of a file (HDF5 has no checksums there by default)."""
    data = (files / "bfloat16.weights.h5").read_bytes()
    path = tmp_path / "m.weights.h5"
    for at in range(5, len(data), 293):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            with open_source(str(path)) as source:
                for variable in source.variables():
                    value(source, variable)
        except CkpttoolError as error:
            assert error.exit_code in {11, 12, 20, 21}  # noqa: PT017 - any of several classes


def test_half_a_character_in_a_configuration_is_in_no_name(files, tmp_path, run_cli) -> None:
    """Keras before 3.3: only the configuration has the names of layers."""
    config = zipfile.ZipFile(files / "keras2.keras").read("config.json")
    assert b'"name": "scores"' in config
    config = config.replace(b'"name": "scores"', b'"name": "\\ud800"')
    address = repacked(files, tmp_path / "m.keras", archive="keras2.keras", config=config)
    done = run_cli(["convert", address, str(tmp_path / "m.h5"), "--to", "h5", "-y"])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["\u00b2", "1" * 5000, "\u0661"])
def test_a_number_that_is_none_is_a_name(tmp_path, name) -> None:
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        for number in ("0", "1", name):
            file[f"layers/dense/vars/{number}"] = np.zeros((2, 2), np.float32)
    with open_source(str(path)) as source:
        names = {variable.name for variable in source.variables()}
    assert f"layers/dense/vars/{name}" in names


def test_the_groups_of_layers_count_those_of_a_class() -> None:
    def layer(class_name: str, name: str, *inner: dict[str, Any]) -> dict[str, Any]:
        config = {"name": name, "layers": list(inner)} if inner else {"name": name}
        return {"class_name": class_name, "config": config}

    encoder = layer("Functional", "encoder", layer("Conv2D", "stem"), layer("Dense", "out"))
    model = layer(
        "Sequential",
        "model",
        layer("Dense", "first"),
        encoder,
        layer("my_package>PReLU", "bend"),
        layer("Dense", "last"),
    )
    assert groups_of_layers(model) == {
        "layers/dense": "first",
        "layers/dense_1": "last",
        "layers/functional": "encoder",
        "layers/functional/layers/conv2d": "stem",
        "layers/functional/layers/dense": "out",
        "layers/p_re_lu": "bend",
    }
    assert groups_of_layers({"config": {"layers": [3, {"class_name": None}]}}) == {}
    assert groups_of_layers({"config": []}) == {}
