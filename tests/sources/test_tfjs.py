"""TensorFlow.js models as a source: values, quantisation, files that are missing or lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, ForeignFormatError, IncompleteError
from ckpttool.limits import Limits
from ckpttool.ops.inspect import inspect
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Index, Selection
from ckpttool.sources.tfjs import TfjsSource
from tests.support.tfjs_model import Quantised, manifest, write_tfjs

RNG = np.random.default_rng(3)
WEIGHTS: dict[str, Any] = {
    "dense/kernel": RNG.normal(size=(5, 6)).astype(np.float32),
    "words": [b"one", b"", "zwölf".encode()],
    "mask": np.array([True, False, True]),
    "wave": (RNG.normal(size=3) + 2j).astype(np.complex64),
    "empty": np.zeros((0, 3), np.int32),
    "step": np.array(7, np.int32),
    "small": Quantised(RNG.integers(0, 256, (4, 3)).astype(np.uint8), "float32", -1.5, 0.02),
    "whole": Quantised(RNG.integers(0, 256, 9).astype(np.uint8), "int32", -100.0, 0.7),
    "fine": Quantised(RNG.integers(0, 2**16, (2, 5)).astype(np.uint16), "float32", 3.0, 1e-4),
    "half": Quantised(RNG.normal(size=(3, 3)).astype(np.float16)),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tfjs(tmp_path / "model", WEIGHTS, shard=50)[0]


def meant(value: Any) -> Any:
    return value.meant if isinstance(value, Quantised) else value


def whole(source: Any, name: str) -> np.ndarray:
    variable = source.find(name)
    found: np.ndarray = source.read(variable, Selection.whole(variable.shape))
    return found


@pytest.mark.parametrize("shard", [1001, 16_384, 10**7])
def test_many_texts_are_found_across_files_and_what_is_read_at_once(
    tmp_path: Path, shard: int
) -> None:
    texts = [b"%d" % number * (number % 7) for number in range(20_000)]
    texts[5000] = b"long" * 9000
    weights = {"words": texts, "after": np.array([7], np.int32)}
    directory = write_tfjs(tmp_path / "model", weights, shard=shard)[0]
    with open_source(str(directory)) as source:
        assert whole(source, "words").tolist() == texts
        assert whole(source, "after").tolist() == [7]


@pytest.mark.parametrize("shard", [7, 50, 10_000])
def test_weights_are_the_numbers_that_they_stand_for(tmp_path: Path, shard: int) -> None:
    directory, paths = write_tfjs(tmp_path / "model", WEIGHTS, shard=shard)
    for address in (directory, directory / "model.json"):
        with open_source(str(address)) as source:
            assert source.kind == "tfjs"
            assert {variable.name for variable in source.variables()} == set(WEIGHTS)
            for name, value in WEIGHTS.items():
                if isinstance(value, list):
                    assert whole(source, name).tolist() == value
                else:
                    ours = whole(source, name)
                    assert ours.dtype == meant(value).dtype
                    assert ours.tolist() == meant(value).tolist()
            assert not source.findings()
            assert [shard.present for shard in source.shards()] == [True] * len(paths)
            assert all(s.nbytes == s.expected for s in source.shards())


def test_selections_of_what_is_quantised_and_cut(model: Path) -> None:
    indices: list[Index] = [(1,), (slice(None, None, -1), 2), (..., slice(1, 3)), (slice(3, 3),)]
    with open_source(str(model)) as source:
        for name in ("dense/kernel", "small", "half"):
            value = meant(WEIGHTS[name])
            for index in indices:
                selection = Selection.of(value.shape, index)
                found = source.read(source.find(name), selection)
                assert found.tolist() == value[index].tolist()
                reads = list(source.reads(source.find(name), selection))
                assert all(0 < r.offset + r.nbytes <= os.path.getsize(r.path) for r in reads)
        assert source.strings(source.find("words"), Selection.of((3,), (slice(2, None, -2),))) == [
            "zwölf".encode(),
            b"one",
        ]


def test_says_what_the_model_is(model: Path) -> None:
    with open_source(str(model)) as source:
        assert isinstance(source, TfjsSource)
        summary = source.summary
        assert summary is not None
        assert (summary.form, summary.writer) == ("graph-model", "2.21.0, a test")
        assert summary.ops == {"Const": len(WEIGHTS) + 1, "MatMul": 1, "Placeholder": 1}
        assert summary.quantised == 4
        (signature,) = summary.signatures
        assert [(t.name, t.tensor, t.dtype, t.shape) for t in signature.inputs] == [
            ("x", "x:0", "float32", (-1, 4))
        ]
        assert source.step == 7


def test_corpus_values_are_those_of_the_keras_file(corpus: Path) -> None:
    """The weights of the two models of h5-tfjs-fsrcnn, by h5py from the .h5 they came from."""
    h5py = pytest.importorskip("h5py")
    base = corpus / "h5-tfjs-fsrcnn"
    for directory, file in (("tfjs_model", "SRCNN.h5"), ("tfjs_model/FSRCNN", "FSRCNN/FSRCNN.h5")):
        expected: dict[str, np.ndarray] = {}
        with h5py.File(base / "trained_model" / file, "r") as weights:

            def take(
                name: str, item: Any, expected: dict[str, np.ndarray] = expected, h: Any = h5py
            ) -> None:
                if isinstance(item, h.Dataset):
                    expected[name.split("/", 1)[1].removesuffix(":0")] = item[()]

            weights["model_weights"].visititems(take)
        with open_source(str(base / directory)) as source:
            names = [variable.name for variable in source.variables()]
            assert sorted(names) == sorted(expected)
            for name in names:
                assert whole(source, name).tolist() == expected[name].tolist()


def test_a_missing_file_takes_only_what_lies_in_it(tmp_path: Path) -> None:
    weights = {f"w{i}": np.full(10, i, np.float32) for i in range(6)}
    directory, paths = write_tfjs(tmp_path / "m", weights, shard=80)
    (directory / paths[1]).unlink()
    with open_source(str(directory)) as source:
        assert [(f.id, f.severity) for f in source.findings()] == [("weights-missing", "error")]
        assert [shard.present for shard in source.shards()] == [True, False, True]
        assert [shard.expected for shard in source.shards()] == [80, 80, 80]
        for name in ("w0", "w1", "w4", "w5"):
            assert whole(source, name).tolist() == weights[name].tolist()
        for name in ("w2", "w3"):
            with pytest.raises(IncompleteError) as caught:
                whole(source, name)
            assert caught.value.id == "weights-missing"
            assert paths[1] in caught.value.why
    (directory / paths[0]).unlink()
    with open_source(str(directory)) as source:
        assert len(source.findings()) == 2
        for name in weights:
            with pytest.raises(IncompleteError):
                whole(source, name)


def test_short_and_long_files(tmp_path: Path) -> None:
    weights = {f"w{i}": np.full(10, i, np.float32) for i in range(4)}
    directory, paths = write_tfjs(tmp_path / "m", weights, shard=1000)
    data = (directory / paths[0]).read_bytes()
    (directory / paths[0]).write_bytes(data[:-1])
    with open_source(str(directory)) as source:
        assert [finding.id for finding in source.findings()] == ["weights-short"]
        assert whole(source, "w2").tolist() == [2] * 10
        with pytest.raises(IncompleteError, match="not all there"):
            whole(source, "w3")
        with pytest.raises(IncompleteError):
            list(source.reads(source.find("w3"), Selection.whole((10,))))
    (directory / paths[0]).write_bytes(data + b"x")
    with open_source(str(directory)) as source:
        assert [finding.id for finding in source.findings()] == ["weights-spare"]
        assert whole(source, "w3").tolist() == [3] * 10


@pytest.mark.parametrize(
    ("minimum", "scale", "meant"),
    [
        (2.0**31 - 2, 1.0, [2**31 - 2, 2**31 - 1, -(2**31)]),
        (-0.5, 0.25, [0, 0, 0]),
        (0.0, 1.5e308, [0, 0, 0]),  # a multiple of it, and infinity
    ],
)
def test_what_an_integer_cannot_hold_is_what_javascript_makes_of_it(
    tmp_path: Path, minimum: float, scale: float, meant: list[int]
) -> None:
    """ECMA-262, ToInt32: modulo 2**32, and 0 of what is not finite."""
    codes = Quantised(np.array([0, 1, 2], np.uint8), "int32", minimum, scale)
    directory, _ = write_tfjs(tmp_path / "m", {"x": codes})
    with open_source(str(directory)) as source:
        found = whole(source, "x").tolist()
    assert found == meant


def test_more_files_than_are_kept_open(tmp_path: Path) -> None:
    array = np.arange(300, dtype=np.float32)
    directory, paths = write_tfjs(tmp_path / "m", {"x": array}, shard=8)
    assert len(paths) > 100
    before = len(os.listdir("/proc/self/fd"))
    with open_source(str(directory)) as source:
        for _ in range(2):
            assert whole(source, "x").tolist() == array.tolist()
        assert len(os.listdir("/proc/self/fd")) < before + 50
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_model_whose_files_are_all_missing(tmp_path: Path) -> None:
    directory, paths = write_tfjs(tmp_path / "m", {"x": np.zeros(700, np.int32)}, shard=8)
    for path in paths:
        (directory / path).unlink()
    with open_source(str(directory)) as source:
        assert len(source.shards()) == 100
        assert len(source.findings()) == 101
    assert inspect(str(directory)).checkpoint is not None


def test_the_form_before_1_0_is_named_and_its_weights_are_read(tmp_path: Path) -> None:
    entries, data = manifest({"x": np.arange(3, dtype=np.float32)})
    (tmp_path / "group1").write_bytes(data)
    (tmp_path / "tensorflowjs_model.pb").write_bytes(b"\x0a\x05\x0a\x01x")
    (tmp_path / "weights_manifest.json").write_text(
        json.dumps([{"paths": ["group1"], "weights": entries}])
    )
    with pytest.raises(ForeignFormatError, match=r"before 1\.0"):
        open_source(str(tmp_path))
    with open_source(str(tmp_path / "weights_manifest.json")) as source:
        assert whole(source, "x").tolist() == [0, 1, 2]


def opened(directory: Path, limits: Limits | None = None, **changes: Any) -> CkpttoolError:
    """The error of opening a model of one weight whose JSON is changed."""
    write_tfjs(directory, {"x": np.arange(3, dtype=np.float32)}, **changes)
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(directory), limits).close()
    return caught.value


def weight(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [3], "dtype": "float32"} | changes


@pytest.mark.parametrize(
    "path",
    ["../secret", "/etc/passwd", "a/../../x", "", ".", "a//b", "..", "C:\\x", "a\0b"],
)
def test_paths_that_lead_outside_are_refused(tmp_path: Path, path: str) -> None:
    groups = [{"paths": [path], "weights": [weight()]}]
    assert opened(tmp_path, weightsManifest=groups).exit_code == 22


def test_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(12))
    (tmp_path / "m" / "inside").mkdir(parents=True)
    (tmp_path / "m" / "link.bin").symlink_to(tmp_path / "secret")
    (tmp_path / "m" / "folder").symlink_to(tmp_path)
    for path in ("link.bin", "folder/secret", "inside"):
        groups = [{"paths": [path], "weights": [weight()]}]
        assert opened(tmp_path / "m", weightsManifest=groups).exit_code == 22


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ({}, "weightsManifest"),
        ([1], "no object"),
        ([{"paths": "x", "weights": []}], "no texts"),
        ([{"paths": [1], "weights": []}], "no texts"),
        ([{"paths": []}], "no weights"),
        ([{"paths": [], "weights": [1]}], "no object"),
        ([{"paths": [], "weights": [weight(name=1)]}], "no name"),
        ([{"paths": [], "weights": [weight(), weight()]}], "twice"),
        ([{"paths": [], "weights": [weight(shape=[1.5])]}], "not of numbers"),
        ([{"paths": [], "weights": [weight(shape=None)]}], "not of numbers"),
        ([{"paths": [], "weights": [weight(quantization=1)]}], "no known type"),
        ([{"paths": [], "weights": [weight(quantization={"dtype": []})]}], "no known type"),
        ([{"paths": [], "weights": [weight(quantization={"dtype": "uint8"})]}], "no min"),
        (
            [
                {
                    "paths": [],
                    "weights": [
                        weight(quantization={"dtype": "uint8", "min": 0, "scale": 10**400})
                    ],
                }
            ],
            "past all bounds",
        ),
        (
            [
                {
                    "paths": [],
                    "weights": [weight(dtype="bool", quantization={"dtype": "float16"})],
                }
            ],
            "not quantised",
        ),
    ],
)
def test_manifests_that_lie(tmp_path: Path, groups: Any, why: str) -> None:
    error = opened(tmp_path, weightsManifest=groups)
    assert (error.exit_code, error.id) == (20, "json-malformed")
    assert why in error.why


def test_claims_are_held_against_limits(tmp_path: Path) -> None:
    assert opened(tmp_path, Limits(tfjs_model_bytes=10)).exit_code == 21
    groups = [{"paths": [], "weights": [weight(), weight(name="y")]}]
    assert opened(tmp_path, Limits(entries=1), weightsManifest=groups).exit_code == 21
    huge = [{"paths": [], "weights": [weight(shape=[2**62, 2])]}]
    assert opened(tmp_path, weightsManifest=huge).exit_code == 20
    unknown = [{"paths": [], "weights": [weight(dtype="float128")]}]
    assert opened(tmp_path, weightsManifest=unknown).exit_code == 12
    texts = [{"paths": ["group1-shard1of1.bin"], "weights": [weight(dtype="string")]}]
    assert opened(tmp_path, weightsManifest=texts).exit_code == 20
    many = [{"paths": [], "weights": [weight(dtype="string", shape=[10**9])]}]
    assert opened(tmp_path, weightsManifest=many).exit_code == 21


def test_cut_off_anywhere_the_json_is_an_error(tmp_path: Path) -> None:
    names = ("step", "small", "half")
    model, _ = write_tfjs(tmp_path, {name: WEIGHTS[name] for name in names}, modelTopology={})
    whole = (model / "model.json").read_bytes()
    for end in range(len(whole)):
        (model / "model.json").write_bytes(whole[:end])
        with pytest.raises(CkpttoolError) as caught:
            open_source(str(model / "model.json"))
        assert caught.value.exit_code in {11, 20}


@pytest.mark.parametrize(
    "topology",
    [
        None,
        1,
        [],
        {"node": 1},
        {"node": [1, {"op": 1}, {}]},
        {"library": {"function": 1}},
        {"library": {"function": [1, {"nodeDef": 1}]}},
        {"model_config": 1},
        {"model_config": {"config": {"layers": [1, {"class_name": 1}]}}},
    ],
)
def test_a_topology_of_any_form_leaves_the_weights_readable(tmp_path: Path, topology: Any) -> None:
    write_tfjs(tmp_path, {"x": np.arange(3, dtype=np.float32)}, modelTopology=topology, signature=1)
    with open_source(str(tmp_path)) as source:
        assert whole(source, "x").tolist() == [0, 1, 2]


def test_layers_are_counted_by_their_class(corpus: Path) -> None:
    with open_source(str(corpus / "h5-tfjs-fsrcnn" / "tfjs_model" / "FSRCNN")) as source:
        assert isinstance(source, TfjsSource)
        assert source.summary is not None
        assert source.summary.form == "layers-model"
        assert source.summary.ops["Conv2D"] == 7
        assert source.summary.ops["PReLU"] == 7
