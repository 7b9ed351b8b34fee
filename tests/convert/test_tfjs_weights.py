"""The weight files of TensorFlow.js: what is written is what our own source reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import ckpttool
from ckpttool.conversion.tfjs_weights import PlannedWeight, plan_numbers, plan_texts, write_files
from ckpttool.errors import UnsupportedError, UsageError
from ckpttool.formats.dtypes import numpy_dtype
from ckpttool.storage import open_directory


class Stored:
    """An array in pieces, as a checkpoint gives it."""

    def __init__(self, values: Any, dtype: str, piece: int = 7) -> None:
        self.dtype = dtype
        self._array = np.asarray(values).astype(numpy_dtype(dtype))
        self.shape = self._array.shape
        self._piece = piece

    def chunks(self) -> Iterator[bytes]:
        flat = self._array.ravel()
        for start in range(0, flat.size, self._piece):
            yield flat[start : start + self._piece].tobytes()


def written(folder: Path, weights: Sequence[PlannedWeight], shard: int | None = None) -> Any:
    """Write a model of these weights; returns its only group."""
    folder.mkdir()
    with open_directory(str(folder)) as directory:
        manifest = write_files(weights, directory, shard)
    model = {"format": "graph-model", "modelTopology": {"node": []}, "weightsManifest": manifest}
    (folder / "model.json").write_text(json.dumps(model))
    return manifest[0] if manifest else None


def read(folder: Path, name: str = "w") -> np.ndarray:
    with ckpttool.open(folder) as source:
        return np.asarray(source.read(name))


def test_every_dtype_becomes_the_one_that_stands_for_it(tmp_path: Path) -> None:
    cases = {
        "float32": ("float32", [0.5, -3.25]),
        "float64": ("float32", [0.1, 1e-300]),
        "float16": ("float32", [0.5, 65504]),
        "bfloat16": ("float32", [0.5, 3e38]),
        "int8": ("int32", [-128, 127]),
        "uint8": ("int32", [0, 255]),
        "int16": ("int32", [-(2**15), 2**15 - 1]),
        "uint32": ("int32", [0, 2**31 - 1]),
        "int64": ("int32", [-(2**31), 2**31 - 1]),
        "uint64": ("int32", [0, 2**31 - 1]),
        "bool": ("bool", [True, False]),
        "complex64": ("complex64", [1 + 2j, -3j]),
        "complex128": ("complex64", [1 + 2j, -3j]),
    }
    plans = [plan_numbers(name, Stored(values, name), None) for name, (_, values) in cases.items()]
    group = written(tmp_path / "m", plans)
    for entry, (name, (dtype, values)) in zip(group["weights"], cases.items(), strict=True):
        assert entry == {"name": name, "shape": [2], "dtype": dtype}
        expected = np.asarray(values).astype(numpy_dtype(name)).astype(numpy_dtype(dtype))
        found = read(tmp_path / "m", name)
        assert found.dtype == expected.dtype
        assert (found == expected).all()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", 2**31),
        ("int64", -(2**31) - 1),
        ("int64", 2**63 - 1),
        ("uint32", 2**31),
        ("uint64", 2**64 - 1),
        ("float64", 1e300),
        ("float64", -3.5e38),
        ("complex128", 1e300j),
    ],
)
def test_a_number_that_would_become_another_is_refused(
    tmp_path: Path, dtype: str, value: Any
) -> None:
    stored = Stored(np.array([1, value], numpy_dtype(dtype)), dtype)
    with pytest.raises(UnsupportedError, match="does not fit") as caught:
        written(tmp_path / "m", [plan_numbers("net/w", stored, None)])
    assert caught.value.id == "number-too-large"
    assert "net/w" in caught.value.what


def test_infinities_stay_what_they_are(tmp_path: Path) -> None:
    values = [np.inf, -np.inf, np.nan, 1.0]
    written(tmp_path / "m", [plan_numbers("w", Stored(values, "float64"), None)])
    np.testing.assert_array_equal(read(tmp_path / "m"), np.array(values, np.float32))


@pytest.mark.parametrize("dtype", ["float8_e5m2", "qint8", "variant"])
def test_a_dtype_that_nothing_stands_for_is_refused(dtype: str) -> None:
    class Opaque:
        shape = (1,)

        def __init__(self) -> None:
            self.dtype = dtype

        def chunks(self) -> Iterator[bytes]:
            raise AssertionError("it is refused before it is read")

    with pytest.raises(UnsupportedError, match=dtype) as caught:
        plan_numbers("w", Opaque(), None)
    assert caught.value.id == "dtype-not-representable"


def test_strings_of_any_bytes(tmp_path: Path) -> None:
    texts = [b"", b"\xff\x00z", "Grüße".encode(), b"x" * 300]
    written(tmp_path / "m", [plan_texts("w", (2, 2), texts)], shard=64)
    assert read(tmp_path / "m").ravel().tolist() == texts


@settings(max_examples=30, deadline=None)
@given(
    values=hnp.arrays(np.float32, st.integers(1024, 1100), elements=st.floats(-1e6, 1e6, width=32)),
    quantize=st.sampled_from(["uint8", "uint16"]),
)
def test_codes_are_as_near_as_codes_can_be(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, quantize: Any
) -> None:
    folder = tmp_path_factory.mktemp("codes") / "m"
    plan = plan_numbers("w", Stored(values, "float32", 100), quantize)
    written(folder, [plan])
    stored = plan.weight.quantisation
    assert stored is not None
    found = read(folder)
    # Half a step, and half of one more at the ends, where zero has moved the range.
    error = np.abs(found.astype(np.float64) - values)
    assert error.max() <= stored.scale * 1.0001 + np.abs(values).max() * 1e-6
    assert np.median(error) <= stored.scale * 0.5001 + np.abs(values).max() * 1e-6
    assert not found[values == 0].any()


def test_float16_weights(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(32, 40)).astype(np.float32)
    plan = plan_numbers("w", Stored(values, "float32"), "float16")
    group = written(tmp_path / "m", [plan])
    assert group["weights"][0]["quantization"] == {"dtype": "float16", "original_dtype": "float32"}
    assert plan.nbytes == values.size * 2
    assert (read(tmp_path / "m") == values.astype(np.float16)).all()


@pytest.mark.parametrize("quantize", ["float16", "uint8", "uint16"])
def test_what_codes_cannot_say_stays_as_it_is(tmp_path: Path, quantize: Any) -> None:
    """Few elements, integers, infinities; for float16 what it cannot hold."""
    large = np.zeros(2048, np.float32)
    infinite, huge = large.copy(), large.copy()
    infinite[5], huge[5] = np.inf, 1e6
    kept = {
        "few": Stored([1e-12] * 1023, "float32"),
        "integers": Stored(np.arange(2048), "int64"),
        "infinite": Stored(infinite, "float32"),
    }
    if quantize == "float16":
        kept["huge"] = Stored(huge, "float32")
    plans = [plan_numbers(name, stored, quantize) for name, stored in kept.items()]
    for entry in written(tmp_path / "m", plans)["weights"]:
        assert "quantization" not in entry
    assert read(tmp_path / "m", "few")[0] == np.float32(1e-12)


def test_one_value_everywhere_is_exact(tmp_path: Path) -> None:
    plan = plan_numbers("w", Stored([0.1] * 2000, "float32"), "uint8")
    written(tmp_path / "m", [plan])
    assert plan.nbytes == 2000
    assert (read(tmp_path / "m") == np.float32(0.1)).all()


@pytest.mark.parametrize(
    ("shard", "sizes"),
    [(None, [1040]), (1040, [1040]), (1000, [1000, 40]), (300, [300] * 3 + [140])],
)
def test_files_are_of_one_size(tmp_path: Path, shard: int | None, sizes: list[int]) -> None:
    arrays = {"a": np.arange(10.0, dtype=np.float32), "b": np.arange(250.0, dtype=np.float32)}
    plans = [plan_numbers(name, Stored(one, "float32"), None) for name, one in arrays.items()]
    group = written(tmp_path / "m", plans, shard)
    count = len(sizes)
    assert group["paths"] == [f"group1-shard{n + 1}of{count}.bin" for n in range(count)]
    assert [(tmp_path / "m" / path).stat().st_size for path in group["paths"]] == sizes
    for name, array in arrays.items():
        assert (read(tmp_path / "m", name) == array).all()


def test_a_slip_in_the_unit_of_files_is_found(tmp_path: Path) -> None:
    plan = plan_numbers("w", Stored(np.zeros(20_000), "float32"), None)
    with pytest.raises(UsageError, match="20000 files") as caught:
        written(tmp_path / "m", [plan], shard=4)
    assert caught.value.id == "shard-bytes"
    assert not list((tmp_path / "m").iterdir())


def test_no_weights_need_no_files(tmp_path: Path) -> None:
    assert written(tmp_path / "m", []) is None
    with ckpttool.open(tmp_path / "m") as source:
        assert list(source) == []
