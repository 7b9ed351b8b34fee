"""`ckpttool.open`: the mapping, `read` and its maps, closing, and the examples."""

from __future__ import annotations

import doctest
import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ckpttool
from ckpttool import api
from tests.support.command import ROOT
from tests.support.handmade import EntryFields, masked_crc, write_bundle

MATRIX = np.arange(600_000, dtype="<f4").reshape(600, 1000)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A variable of 2.4 MB behind one byte, a bfloat16 one, and a small one."""
    narrow = np.arange(1_000_000).astype(ml_dtypes.bfloat16)
    data = b"\0" + MATRIX.tobytes() + narrow.tobytes() + b"\7\0\0\0"
    entries: dict[bytes, EntryFields | bytes] = {
        b"matrix": {"shape": MATRIX.shape, "offset": 1, "size": MATRIX.nbytes},
        b"narrow": {
            "dtype": 14,
            "shape": narrow.shape,
            "offset": 1 + MATRIX.nbytes,
            "size": narrow.nbytes,
        },
        b"small": {"dtype": 3, "shape": (), "offset": len(data) - 4, "size": 4},
    }
    return str(write_bundle(tmp_path_factory.mktemp("large"), "m", entries, [data]))


def is_mapped(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return type(base.obj if isinstance(base, memoryview) else base).__name__ == "mmap"


def test_is_a_mapping_of_names_to_variables(fixtures_dir: Path) -> None:
    with ckpttool.open(str(fixtures_dir / "keras3")) as checkpoint:
        assert isinstance(checkpoint, Mapping)
        names = list(checkpoint)
        assert len(checkpoint) == len(names) == 25
        assert "regressor/hidden/kernel" in checkpoint
        kernel = checkpoint["regressor/hidden/kernel"]
        assert (kernel.shape, kernel.dtype, kernel.kind) == ((12, 16), "float32", "model")
        assert checkpoint[kernel.key] == kernel
        assert dict(checkpoint)[kernel.name] == kernel
        assert checkpoint.get("nothing") is None
        anything: object = 5
        assert anything not in checkpoint
        with pytest.raises(KeyError):
            checkpoint["nothing"]
        with pytest.raises(ckpttool.NotFoundError, match="regressor/hiden/kernel") as caught:
            checkpoint["regressor/hiden/kernel"]
        assert "regressor/hidden/kernel" in caught.value.hint
        assert caught.value.id == "variable-not-found"


def test_says_what_it_is(fixtures_dir: Path) -> None:
    address = str(fixtures_dir / "keras3")
    with ckpttool.open(address) as checkpoint:
        assert (checkpoint.address, checkpoint.location) == (address, f"{address}/ckpt-4")
        assert (checkpoint.kind, checkpoint.style) == ("tf-v2", "object")
        assert (checkpoint.step, checkpoint.number) == (16, 4)
        assert [shard.present for shard in checkpoint.shards] == [True]
        assert "latest" in checkpoint.notes[0]
        assert repr(checkpoint) == f"<ckpttool.Checkpoint tf-v2 '{address}/ckpt-4'>"
        assert checkpoint.source.location == checkpoint.location
        assert checkpoint.verify().healthy


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (..., MATRIX),
        (3, MATRIX[3]),
        (np.int64(-1), MATRIX[-1]),
        (slice(0, 2), MATRIX[:2]),
        ((slice(None, None, -50), 7), MATRIX[::-50, 7]),
        ((..., 5), MATRIX[..., 5]),
        ("0:2, ::100", MATRIX[:2, ::100]),
        ((0, 0), MATRIX[0, 0]),
        ((), MATRIX),
    ],
)
@pytest.mark.parametrize("copy", [False, True])
def test_reads_what_numpy_would_choose(
    large: str, index: Any, expected: np.ndarray, copy: bool
) -> None:
    with ckpttool.open(large) as checkpoint:
        array = checkpoint.read("matrix", index, copy=copy)
    assert array.shape == np.shape(expected)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, expected)
    assert array.flags.writeable == copy


def test_large_ones_are_mapped_and_outlive_the_checkpoint(large: str) -> None:
    with ckpttool.open(large) as checkpoint:
        matrix = checkpoint.read("matrix")
        narrow = checkpoint.read("narrow")
        flipped = checkpoint.read("matrix", (slice(None, None, -1),))
        rows = checkpoint.read("matrix[0:3]")
        copied = checkpoint.read("matrix", copy=True)
        assert [is_mapped(array) for array in (matrix, narrow, flipped, rows, copied)] == [
            True,
            True,
            True,
            False,
            False,
        ]
    gc.collect()
    np.testing.assert_array_equal(matrix, MATRIX)
    np.testing.assert_array_equal(flipped, MATRIX[::-1])
    assert narrow.dtype == ml_dtypes.bfloat16
    assert float(narrow[256]) == 256.0
    with pytest.raises(ValueError, match="read-only"):
        matrix[0, 0] = 1


def test_partitioned_and_byte_swapped_ones_are_not_mapped(tmp_path: Path) -> None:
    from tests.support.handmade import header, slice_key

    half = MATRIX[:300].tobytes()
    rest = MATRIX[300:].tobytes()
    dims = [[(0, 300), (0, None)], [(300, 300), (0, None)]]
    entries: dict[bytes, EntryFields | bytes] = {
        b"emb": {"shape": MATRIX.shape, "slices": dims},
        slice_key(b"emb", dims[0]): {"size": len(half)},
        slice_key(b"emb", dims[1]): {"offset": len(half), "size": len(rest)},
    }
    with ckpttool.open(str(write_bundle(tmp_path, "p", entries, [half + rest]))) as checkpoint:
        emb = checkpoint.read("emb")
        assert not is_mapped(emb)
        np.testing.assert_array_equal(emb, MATRIX)
    swapped = MATRIX.byteswap().tobytes()
    entries = {b"w": {"shape": MATRIX.shape, "size": len(swapped), "crc": masked_crc(swapped)}}
    big = header(1, big_endian=True)
    with ckpttool.open(str(write_bundle(tmp_path, "b", entries, [swapped], head=big))) as opened:
        w = opened.read("w")
        assert not is_mapped(w)
        np.testing.assert_array_equal(w, MATRIX)


def test_a_short_file_is_never_mapped(large: str, tmp_path: Path) -> None:
    for name in os.listdir(os.path.dirname(large)):
        (tmp_path / name).write_bytes(Path(large).parent.joinpath(name).read_bytes())
    os.truncate(tmp_path / "m.data-00000-of-00001", 2_000_000)
    with ckpttool.open(str(tmp_path / "m")) as checkpoint:
        with pytest.raises(ckpttool.IncompleteError) as caught:
            checkpoint.read("matrix")
        assert caught.value.id == "shard-short"
        assert checkpoint.read("matrix[0:2]").shape == (2, 1000)


def test_strings_and_odd_types_come_as_tensorflow_gives_them(fixtures_dir: Path) -> None:
    with ckpttool.open(str(fixtures_dir / "dtypes" / "all")) as checkpoint:
        strings = checkpoint.read("array/string")
        assert strings.dtype == object
        assert strings[0, 0] == b"a"
        assert checkpoint.read("scalar/string").item() == b"one line\nand another"
        assert checkpoint.read("array/bfloat16").dtype == ml_dtypes.bfloat16
        assert checkpoint.read("array/int4").dtype == ml_dtypes.int4
        assert checkpoint.read("array/int4").astype(int).tolist() == [-8, -1, 0, 7]
        assert checkpoint.read("array/float8_e4m3fn").dtype == ml_dtypes.float8_e4m3fn
        assert checkpoint.read("empty/float32").shape == (0, 3)


@pytest.mark.parametrize("index", [None, True, [0, 1], np.array([True]), 1.5, (0, "a")])
def test_other_indices_are_refused(large: str, index: Any) -> None:
    with ckpttool.open(large) as checkpoint, pytest.raises(ckpttool.UsageError) as caught:
        checkpoint.read("matrix", index)
    assert caught.value.id == "bad-index"


def test_one_index_at_a_time(large: str) -> None:
    with ckpttool.open(large) as checkpoint:
        with pytest.raises(ckpttool.UsageError, match="two indices"):
            checkpoint.read("matrix[0]", 1)
        assert checkpoint.read(checkpoint["matrix"], (0, 5)) == 5.0


def test_a_closed_one_says_so(large: str) -> None:
    checkpoint = ckpttool.open(large)
    checkpoint.close()
    checkpoint.close()
    with pytest.raises(ckpttool.UsageError, match="is closed") as caught:
        checkpoint.read("matrix")
    assert caught.value.id == "closed"
    assert "closed" in repr(checkpoint)


def test_limits_reach_the_reader(fixtures_dir: Path) -> None:
    limits = ckpttool.Limits(entries=3)
    with (
        ckpttool.open(str(fixtures_dir / "mlp-v1"), limits=limits) as checkpoint,
        pytest.raises(ckpttool.LimitError),
    ):
        list(checkpoint)


def test_replaced_files_are_opened_anew(tmp_path: Path) -> None:
    def write(*values: float) -> str:
        data = np.array(values, "<f4").tobytes()
        fresh = tmp_path / "fresh"
        fresh.mkdir()
        write_bundle(fresh, "m", {b"w": {"shape": (len(values),), "size": len(data)}}, [data])
        for file in fresh.iterdir():
            file.replace(tmp_path / file.name)
        fresh.rmdir()
        return str(tmp_path / "m")

    with ckpttool.open(write(1, 2)) as checkpoint:
        write(3, 4, 5)
        assert checkpoint.read("w").tolist() == [3.0, 4.0, 5.0]


def test_the_examples_of_the_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    results = doctest.testmod(api)
    assert results.attempted >= 6
    assert results.failed == 0
