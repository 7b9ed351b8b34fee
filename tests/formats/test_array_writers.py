"""The writers of arrays, read back by numpy, safetensors and h5py."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, CorruptError, UnsafeError, UnsupportedError, UsageError
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.formats.hdf5_writer import hdf5_paths, write_hdf5
from ckpttool.formats.named_array import NamedArray
from ckpttool.formats.npz_writer import write_npz
from ckpttool.formats.safetensors_dtypes import BY_TENSORFLOW
from ckpttool.formats.safetensors_writer import write_safetensors
from tests.support.arrays import named, named_strings

PLAIN = ("float16", "float32", "float64", "int8", "uint16", "int64", "uint64", "bool", "complex64")


def plain_arrays() -> list[NamedArray]:
    """One of each type that every format has, and odd shapes."""
    rng = np.random.default_rng(7)
    arrays = [
        named(f"layer/{dtype}", rng.integers(0, 2, (3, 5)).astype(dtype), pieces=4)
        for dtype in PLAIN
    ]
    arrays.append(named("scalar", np.array(2.5, np.float32)))
    arrays.append(named("nothing", np.zeros((0, 4), np.int32)))
    arrays.append(named("größe/ß", np.arange(6, dtype=np.int16).reshape(1, 2, 3)))
    return arrays


def values(array: NamedArray) -> np.ndarray:
    data = b"".join(array.chunks())
    return np.frombuffer(data, numpy_dtype(array.dtype)).reshape(array.shape)


def test_an_archive_is_what_numpy_reads() -> None:
    file = io.BytesIO()
    write_npz([*plain_arrays(), named_strings("words", [b"a", b"", b"longer"])], file.write)
    with np.load(io.BytesIO(file.getvalue()), allow_pickle=False) as found:
        assert found["words"].tolist() == [b"a", b"", b"longer"]
        for array in plain_arrays():
            expected = values(array)
            assert found[array.name].dtype == expected.dtype
            assert found[array.name].tolist() == expected.tolist()
            assert found[array.name].shape == array.shape


def test_safetensors_is_what_its_library_reads(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    file = io.BytesIO()
    arrays = [a for a in plain_arrays() if a.dtype in BY_TENSORFLOW]
    write_safetensors(arrays, file.write, {"from": "a test"})
    (tmp_path / "x.safetensors").write_bytes(file.getvalue())
    found = safetensors.load_file(tmp_path / "x.safetensors")
    assert sorted(found) == sorted(array.name for array in arrays)
    for array in arrays:
        assert found[array.name].dtype == values(array).dtype
        assert found[array.name].tolist() == values(array).tolist()
    with pytest.importorskip("safetensors").safe_open(
        tmp_path / "x.safetensors", "numpy"
    ) as opened:
        assert opened.metadata() == {"from": "a test"}


def test_safetensors_is_written_as_its_library_writes(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = plain_arrays()
    file = io.BytesIO()
    write_safetensors(arrays, file.write)
    expected = safetensors.save({array.name: values(array) for array in arrays})
    assert file.getvalue() == expected


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn"]
)
def test_safetensors_keeps_the_types_that_numpy_lacks(dtype: str, tmp_path: Path) -> None:
    stored = bytes(range(16)) * 2
    shape = (len(stored) // BY_NAME[dtype].size,)
    array = NamedArray("x", dtype, shape, lambda: [stored[:6], stored[6:]], list)
    file = io.BytesIO()
    write_safetensors([array], file.write)
    size = int.from_bytes(file.getvalue()[:8], "little")
    header = json.loads(file.getvalue()[8 : 8 + size])
    payload = file.getvalue()[8 + size :]
    assert header["x"]["dtype"] == BY_TENSORFLOW[dtype].word
    assert header["x"]["shape"] == list(shape)
    if dtype == "float4_e2m1fn":
        assert payload == bytes(a | b << 4 for a, b in zip(stored[::2], stored[1::2], strict=True))
    else:
        assert payload == stored
    (tmp_path / "x").write_bytes(file.getvalue())
    with pytest.importorskip("safetensors").safe_open(tmp_path / "x", "numpy") as opened:
        assert opened.get_slice("x").get_dtype() == BY_TENSORFLOW[dtype].word


@given(st.lists(st.integers(1, 7), max_size=9))
def test_half_bytes_are_packed_across_pieces(lengths: list[int]) -> None:
    data = bytes(i * 7 % 16 for i in range(sum(lengths) // 2 * 2))
    pieces, at = [], 0
    for length in lengths:
        pieces.append(data[at : at + length])
        at += length
    file = io.BytesIO()
    array = NamedArray("x", "float4_e2m1fn", (len(data),), lambda: pieces, list)
    write_safetensors([array], file.write)
    packed = bytes(a | b << 4 for a, b in zip(data[::2], data[1::2], strict=True))
    header = int.from_bytes(file.getvalue()[:8], "little")
    assert file.getvalue()[8 + header :] == packed


def test_hdf5_is_what_h5py_reads() -> None:
    h5py = pytest.importorskip("h5py")
    file = io.BytesIO()
    write_hdf5([*plain_arrays(), named_strings("words", [b"a", b"", "ü".encode()])], file)
    with h5py.File(io.BytesIO(file.getvalue()), "r") as found:
        assert found["words"][()].tolist() == [b"a", b"", "ü".encode()]
        for array in plain_arrays():
            expected = values(array)
            assert found[array.name].dtype == expected.dtype
            assert found[array.name][()].tolist() == expected.tolist()
            assert found[array.name].shape == array.shape


def test_hdf5_holds_slots_beside_the_variable_they_belong_to() -> None:
    """TensorFlow 1 calls Adam's slots ``weights/Adam``, and HDF5 has no such dataset."""
    h5py = pytest.importorskip("h5py")
    file = io.BytesIO()
    names = ["dense/weights", "dense/weights/Adam", "dense/weights/Adam_1", "dense/bias"]
    write_hdf5([named(name, np.full(3, i, np.int32)) for i, name in enumerate(names)], file)
    with h5py.File(io.BytesIO(file.getvalue()), "r") as found:
        assert list(found["dense"]) == ["bias", "weights", "weights:Adam", "weights:Adam_1"]
        assert found["dense/weights:Adam"].attrs["name"] == "dense/weights/Adam"
        assert found["dense/weights:Adam_1"][()].tolist() == [2, 2, 2]
        assert "name" not in found["dense/weights"].attrs


def test_the_same_values_are_the_same_file() -> None:
    for writer in (write_npz, write_safetensors):
        first, second = io.BytesIO(), io.BytesIO()
        for file in (first, second):
            writer(plain_arrays(), file.write)
        assert first.getvalue() == second.getvalue()
    pytest.importorskip("h5py")
    first, second = io.BytesIO(), io.BytesIO()
    write_hdf5(plain_arrays(), first)
    write_hdf5(plain_arrays(), second)
    assert first.getvalue() == second.getvalue()


def refusal(format: str, *arrays: NamedArray) -> CkpttoolError:
    """The error of a writer, which has written nothing."""
    file = io.BytesIO()
    with pytest.raises(CkpttoolError) as caught:
        if format == "h5":
            write_hdf5(arrays, file)
        else:
            (write_npz if format == "npz" else write_safetensors)(arrays, file.write)
    assert not file.getvalue()
    return caught.value


@pytest.mark.parametrize(
    ("format", "dtypes"),
    [
        ("npz", ["bfloat16", "float8_e5m2", "int4", "uint2", "float4_e2m1fn"]),
        ("h5", ["bfloat16", "float8_e5m2", "int4", "uint2", "float4_e2m1fn"]),
        ("safetensors", ["int4", "uint2", "float8_e4m3b11fnuz"]),
    ],
)
def test_what_a_cast_helps_is_refused_with_its_name(format: str, dtypes: list[str]) -> None:
    pytest.importorskip("h5py")
    for dtype in dtypes:
        error = refusal(format, NamedArray("x", dtype, (2,), list, list))
        assert isinstance(error, UnsupportedError)
        assert error.id == "dtype-not-representable"
        assert f"x ({dtype})" in error.why
        assert "--cast auto" in error.hint


def test_what_no_cast_helps_is_refused_without() -> None:
    for dtype in ("string", "complex128"):
        error = refusal("safetensors", NamedArray("x", dtype, (2,), list, list))
        assert error.hint == "save as .npz or .json"
    error = refusal("npz", NamedArray("x", "resource", (), list, list))
    assert "opaque" in error.hint
    odd = refusal("safetensors", NamedArray("x", "float4_e2m1fn", (3,), list, list))
    assert "half a byte" in odd.why


def test_names_that_a_format_cannot_hold() -> None:
    one = np.zeros(1, np.int8)
    for name in ("__metadata__", "a\udcff"):
        assert refusal("safetensors", named(name, one)).id == "name-not-representable"
    for name in ("a//b", "/a", ".", "a/./b", "", "a\0b"):
        assert refusal("h5", named(name, one)).id == "name-not-representable"
    clash = [named(name, one) for name in ("w", "w/Adam", "w:Adam")]
    assert refusal("h5", *clash).id == "name-not-representable"
    for name in ("../x", "/x", "a\nb", "a\\b"):
        assert isinstance(refusal("npz", named(name, one)), UnsafeError)
    for kind in ("npz", "h5", "safetensors"):
        error = refusal(kind, named("x", one), named("x", one))
        assert isinstance(error, UsageError)
        assert error.id == "output-twice"


def test_more_or_fewer_elements_than_a_shape_has_make_no_file() -> None:
    pytest.importorskip("h5py")
    for data in (b"1234", b"123456"):
        wrong = NamedArray("x", "int8", (5,), lambda data=data: [data], list)  # type: ignore[misc]
        for write in (
            lambda: write_safetensors([wrong], io.BytesIO().write),  # noqa: B023
            lambda: write_hdf5([wrong], io.BytesIO()),  # noqa: B023
        ):
            with pytest.raises(CorruptError, match="do not fit its shape"):
                write()


def test_a_string_that_hdf5_would_cut_is_refused() -> None:
    pytest.importorskip("h5py")
    with pytest.raises(UnsupportedError, match="cannot be saved"):
        write_hdf5([named_strings("x", [b"a\0b"])], io.BytesIO())


@given(st.lists(st.text("ab/:", min_size=1, max_size=6), unique=True, max_size=6))
def test_paths_in_hdf5_are_distinct_and_no_dataset_is_a_group(names: list[str]) -> None:
    try:
        paths = hdf5_paths(names)
    except UnsupportedError:
        return
    assert len(set(paths)) == len(paths)
    for path in paths:
        above = path.split("/")
        groups = {"/".join(above[:n]) for n in range(1, len(above))}
        assert not groups & set(paths)


def test_sizes_of_types_are_those_of_tensorflow() -> None:
    for dtype, known in BY_TENSORFLOW.items():
        if dtype in BY_NAME:
            assert BY_NAME[dtype].size == max(1, known.bits // 8)
