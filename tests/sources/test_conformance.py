"""What every kind of source must do, whatever lies beneath. A new kind adds one line.

The case of a kind is a checkpoint of it in `fixtures/`, with a numeric variable of two
dimensions or more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, LimitError, NotFoundError, UnsupportedError
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.limits import Limits
from ckpttool.model import KINDS, Variable
from ckpttool.sources.base import Source, SourceKind
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Index, Selection

INDICES: list[Index] = [
    (...,),
    (0,),
    (-1,),
    (slice(1, 3),),
    (..., 0),
    (slice(None, None, -2), slice(1, None)),
    (slice(0, 0),),
]


class Case(NamedTuple):
    """An address in the fixtures, what it is, and a variable to try indices on."""

    address: str
    kind: SourceKind
    style: str | None
    matrix: str
    step: int | None


CASES = [
    Case("mlp-v1", "tf-v2", "name", "hidden/weights", 1000),
    Case("keras3", "tf-v2", "object", "regressor/hidden/kernel", 16),
    Case("module/encoder", "tf-v2", "object", "embedding", None),
    Case("partitioned", "tf-v2", "name", "embedding/table", 1),
    Case("two-shards/model.ckpt-42", "tf-v2", "name", "tower/kernel", 42),
    Case("dtypes/all", "tf-v2", "name", "array/string", None),
    Case("savedmodel", "savedmodel", "object", "embedding", None),
    Case("v1", "tf-v1", "name", "embedding", 2),
    Case("v1-sharded", "tf-v1", "name", "first/kernel", 30),
    Case("v1-dtypes/all", "tf-v1", "name", "sliced/float16", None),
    Case("keras-files/keras3.h5", "keras-h5", None, "embedding/embeddings", 3),
    Case("keras-files/keras2-only.h5", "keras-h5", None, "embedding/embeddings", None),
    Case("keras-files/keras3.weights.h5", "keras-weights", None, "embedding/embeddings", 3),
    Case("keras-files/bfloat16.weights.h5", "keras-weights", None, "dense/kernel", None),
    Case("keras-files/keras3.keras", "keras-v3", None, "embedding/embeddings", 3),
    Case("keras-files/keras2.keras", "keras-v3", None, "embedding/embeddings", 3),
    Case("arrays/model.safetensors", "safetensors", None, "embedding", 42),
    Case("arrays/model-7.npz", "npz", None, "embedding", 42),
    Case("models/tfjs", "tfjs", None, "dense/kernel", None),
    Case("models/dense.onnx", "onnx", None, "dense/kernel", 42),
    Case("models/dense.tflite", "tflite", None, "matmul", None),
    Case("graphs/frozen.pb", "frozen-graph", None, "dense/kernel", None),
    Case("graphs/frozen.pbtxt", "frozen-graph", None, "dense/kernel", None),
]


@pytest.fixture(params=CASES, ids=lambda case: case.address.replace("/", "-"))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def source(case: Case, fixtures_dir: Path) -> Iterator[Source]:
    with open_source(str(fixtures_dir / case.address)) as opened:
        yield opened


def readable(source: Source) -> Iterator[tuple[Variable, Selection]]:
    """The variables of fixed size with everything of them selected."""
    for variable in source.variables():
        if BY_NAME[variable.dtype].size and variable.shape is not None:
            yield variable, Selection.whole(variable.shape)


def test_says_what_it_is(source: Source, case: Case, fixtures_dir: Path) -> None:
    assert source.address == str(fixtures_dir / case.address)
    assert source.location.startswith(source.address)
    assert (source.kind, source.style, source.step) == (case.kind, case.style, case.step)
    assert all(isinstance(note, str) for note in source.notes)


def test_lists_each_variable_once_in_the_order_of_keys(source: Source) -> None:
    found = list(source.variables())
    keys = [variable.key.encode("utf-8", "surrogateescape") for variable in found]
    assert keys == sorted(set(keys))
    assert len({variable.name for variable in found}) == len(found)
    assert all(variable.kind in KINDS for variable in found)
    assert list(source.variables()) == found, "a second listing is the same"


def test_lists_without_names_where_none_are_wanted(source: Source) -> None:
    named = [variable._replace(name=variable.key, kind="other") for variable in source.variables()]
    assert list(source.variables(named=False)) == named


def test_finds_by_name_and_by_key(source: Source) -> None:
    for variable in source.variables():
        assert source.find(variable.name) == variable
        assert source.find(variable.key) == variable
        assert source.lookup(variable.key) == variable


def test_offers_the_nearest_of_what_is_not_there(source: Source, case: Case) -> None:
    assert source.lookup(case.matrix + "x") is None
    with pytest.raises(NotFoundError) as caught:
        source.find(case.matrix + "x")
    assert caught.value.id == "variable-not-found"
    assert case.matrix in caught.value.hint
    for odd in ("", "\0", "\udcff", "../x", "*"):
        assert source.lookup(odd) is None


def test_shards_hold_what_the_variables_need(source: Source) -> None:
    shards = source.shards()
    needed = sum(variable.nbytes for variable in source.variables())
    assert all(shard.present and os.path.getsize(shard.path) == shard.nbytes for shard in shards)
    assert sum(shard.expected for shard in shards) >= needed


def test_chunks_are_the_elements_in_order(source: Source) -> None:
    for variable, selection in readable(source):
        size = BY_NAME[variable.dtype].size
        chunks = list(source.chunks(variable, selection))
        assert all(chunk and len(chunk) % size == 0 for chunk in chunks)
        assert sum(map(len, chunks)) == variable.nbytes
        array = source.read(variable, selection)
        assert array.dtype == numpy_dtype(variable.dtype)
        assert array.shape == variable.shape
        assert array.tobytes() == b"".join(chunks)


def test_a_selection_is_what_numpy_selects(source: Source, case: Case) -> None:
    variable = source.find(case.matrix)
    assert variable.shape is not None
    everything = source.read(variable, Selection.whole(variable.shape))
    assert everything.ndim >= 2
    for index in INDICES:
        selection = Selection.of(variable.shape, index)
        expected = everything[index]
        ours = source.read(variable, selection)
        assert ours.shape == np.shape(expected)
        assert ours.tolist() == np.asarray(expected).tolist()
        if variable.dtype == "string":
            flat = np.asarray(expected, object).ravel().tolist()
            assert source.strings(variable, selection) == flat


def test_strings_and_numbers_are_asked_for_differently(source: Source) -> None:
    for variable in source.variables():
        assert variable.shape is not None
        selection = Selection.whole(variable.shape)
        if variable.dtype == "string":
            assert all(isinstance(value, bytes) for value in source.strings(variable, selection))
            with pytest.raises(UnsupportedError, match="string"):
                list(source.chunks(variable, selection))
        else:
            with pytest.raises(UnsupportedError, match="holds no strings"):
                source.strings(variable, selection)


def test_an_extent_is_where_the_elements_lie(source: Source) -> None:
    for variable, selection in readable(source):
        extent = source.extent(variable)
        if extent is None:
            assert variable.slices is not None or variable.offset is None
            continue
        assert extent.little_endian
        data = extent.file.pread(extent.offset, extent.nbytes)
        assert data == b"".join(source.chunks(variable, selection))


def test_planned_reads_lie_in_its_files_and_suffice(source: Source, case: Case) -> None:
    variable = source.find(case.matrix)
    assert variable.shape is not None
    for index in INDICES:
        selection = Selection.of(variable.shape, index)
        reads = list(source.reads(variable, selection))
        for path, offset, size in reads:
            assert 0 <= offset < offset + size <= os.path.getsize(path)
        wanted = selection.size * BY_NAME[variable.dtype].size
        assert sum(read.nbytes for read in reads) >= wanted


def test_limits_bound_what_it_reads(case: Case, fixtures_dir: Path) -> None:
    with (
        pytest.raises(LimitError) as caught,
        open_source(str(fixtures_dir / case.address), Limits(entries=1)) as source,
    ):
        list(source.variables())
    assert caught.value.exit_code == 21


def test_closes_its_files(case: Case, fixtures_dir: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with open_source(str(fixtures_dir / case.address)) as source:
        for variable, selection in readable(source):
            source.read(variable, selection)
        assert len(os.listdir("/proc/self/fd")) > before
    assert len(os.listdir("/proc/self/fd")) == before
    source.close()


def test_nothing_is_left_open_by_an_address_that_fails(fixtures_dir: Path, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "bad.index").write_bytes(b"no table at all, and long enough to be one" * 3)
    for address in (tmp_path / "bad", tmp_path, tmp_path / "none", fixtures_dir / "README.md"):
        with pytest.raises(CkpttoolError):
            open_source(str(address))
    assert len(os.listdir("/proc/self/fd")) == before
