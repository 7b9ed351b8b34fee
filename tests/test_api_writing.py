"""`ckpttool.write_checkpoint`: whatever arrays there are, TensorFlow reads back their bits."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ckpttool
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype

#: All that an array can be made of; quantised types have none of their own.
DTYPES = [
    one.name
    for one in BY_NAME.values()
    if one.size and one.numpy == one.name and one.name != "bool"
]
GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


def elements(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Any bits at all, NaNs of every kind too; of what is narrower than a byte, any value."""
    random = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    if dtype in {"int4", "uint4", "int2", "uint2", "float4_e2m1fn"}:
        info = ml_dtypes.iinfo(kind) if "int" in dtype else None
        low, high = (info.min, info.max + 1) if info else (-6, 7)
        return random.integers(low, high, shape).astype(kind)
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(random.bytes(count * kind.itemsize), kind).reshape(shape)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of every dtype, shape and layout in memory."""
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=4)))
    dtype = draw(st.sampled_from([*DTYPES, "bool"]))
    seed = draw(st.integers(0, 2**32 - 1))
    if dtype == "bool":
        return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    array = elements(dtype, shape, seed)
    layout = draw(st.sampled_from(["plain", "transposed", "backwards", "big-endian", "broadcast"]))
    if layout == "transposed":
        return array.T
    if layout == "backwards":
        return array[tuple(slice(None, None, -1) for _ in shape)]
    if layout == "big-endian" and array.dtype.isbuiltin == 1:
        return array.astype(array.dtype.newbyteorder(">"))
    if layout == "broadcast":
        return np.broadcast_to(array, (3, *shape))
    return array


def bits(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """Name of the dtype, shape, and the elements in C order and this machine's byte order."""
    return array.dtype.name, array.shape, array.astype(array.dtype.newbyteorder("=")).tobytes()


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(names, arrays(), min_size=1, max_size=6), st.integers(1, 5))
def test_tensorflow_reads_the_very_bits(variables: dict[str, np.ndarray], shards: int) -> None:
    tf = pytest.importorskip("tensorflow")
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "m")
        result = ckpttool.write_checkpoint(prefix, variables, shards=shards)
        assert len(result.shards) == shards
        assert result.nbytes == sum(array.nbytes for array in variables.values())
        assert ckpttool.verify(prefix).healthy
        reader = tf.train.load_checkpoint(prefix)
        assert set(reader.get_variable_to_shape_map()) == set(variables)
        with ckpttool.open(prefix) as checkpoint:
            for name, array in variables.items():
                assert bits(np.asarray(reader.get_tensor(name))) == bits(array), name
                assert bits(checkpoint.read(name)) == bits(array), name


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=9), st.sampled_from(["object", "list", "S"]))
def test_tensorflow_reads_the_very_strings(values: list[bytes], kind: str) -> None:
    tf = pytest.importorskip("tensorflow")
    given_as: Any = values
    if kind == "object":
        given_as = np.array([*values, None], object)[:-1]
    elif kind == "S":
        given_as = np.array(values, "S40")
    expected = values if kind != "S" else [value.rstrip(b"\0") for value in values]
    if kind == "list" and not values:
        return  # an empty list says nothing of strings
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "m")
        ckpttool.write_checkpoint(prefix, {"s": given_as})
        tensor = tf.train.load_checkpoint(prefix).get_tensor("s")
    assert list(tensor) == expected


def test_a_saver_restores_it_and_a_scalar_string_is_one(tmp_path: Path) -> None:
    """``tf.compat.v1.train.Saver`` of a graph with the same names."""
    tf = pytest.importorskip("tensorflow")
    kernel = np.arange(6, dtype=np.float32).reshape(2, 3)
    values: dict[str, Any] = {
        "dense/kernel": kernel,
        "note": "zwölf",
        "bytes": b"a\0b\0",
        "python": 2.5,
    }
    result = ckpttool.write_checkpoint(tmp_path / "m-12", values, step=12, shards=2, verify=True)
    assert (result.variables, result.destination) == (5, str(tmp_path / "m-12"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            "dense/kernel": tf.compat.v1.get_variable("dense/kernel", [2, 3]),
            "global_step": tf.compat.v1.get_variable("global_step", [], tf.int64),
        }
        tf.compat.v1.train.Saver(variables).restore(session, str(tmp_path / "m-12"))
        np.testing.assert_array_equal(session.run(variables["dense/kernel"]), kernel)
        assert session.run(variables["global_step"]) == 12
    reader = tf.train.load_checkpoint(str(tmp_path / "m-12"))
    assert reader.get_tensor("note") == "zwölf".encode()
    assert reader.get_tensor("bytes") == b"a\0b\0"
    assert reader.get_tensor("python") == 2.5
    with ckpttool.open(tmp_path / "m-12") as checkpoint:
        assert (checkpoint.step, checkpoint.style) == (12, "name")


def test_objects_are_restored_by_their_graph(tmp_path: Path) -> None:
    """New values under the keys and the object graph of a checkpoint that TensorFlow wrote."""
    tf = pytest.importorskip("tensorflow")
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(["a"], [1])
    saved = tf.train.Checkpoint(w=tf.Variable([1.0, 2.0]), n=tf.Variable(3), table=table)
    old = saved.write(str(tmp_path / "old"))
    with ckpttool.open(old) as checkpoint:
        graph = checkpoint.read(GRAPH_KEY).item()
        values = {
            variable.key: checkpoint.read(variable).copy()
            for variable in checkpoint.values()
            if variable.kind != "object_graph"
        }
    values["w/.ATTRIBUTES/VARIABLE_VALUE"] *= 10
    ckpttool.write_checkpoint(tmp_path / "new", values, object_graph=graph)
    fresh = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    target = tf.train.Checkpoint(w=tf.Variable([0.0, 0.0]), n=tf.Variable(0), table=fresh)
    target.read(str(tmp_path / "new")).assert_consumed()
    assert target.w.numpy().tolist() == [10.0, 20.0]
    assert (int(target.n), int(fresh.lookup(tf.constant("a")))) == (3, 1)

    del values["w/.ATTRIBUTES/VARIABLE_VALUE"]
    with pytest.raises(ckpttool.UsageError, match=r"w/\.ATTRIBUTES/VARIABLE_VALUE") as caught:
        ckpttool.write_checkpoint(tmp_path / "less", values, object_graph=graph)
    assert caught.value.id == "object-graph-key-missing"
    with pytest.raises(ckpttool.UsageError) as caught:  # the same, as one of the variables
        ckpttool.write_checkpoint(tmp_path / "less", {**values, GRAPH_KEY: graph})
    assert caught.value.id == "object-graph-key-missing"
    for more in ({"step": 1}, {"object_graph": graph}):
        with pytest.raises(ckpttool.UsageError) as caught:
            ckpttool.write_checkpoint(tmp_path / "less", {GRAPH_KEY: np.array(graph)}, **more)
        assert caught.value.id == "options-contradict"
    with pytest.raises(ckpttool.UsageError, match="no object graph"):
        ckpttool.write_checkpoint(tmp_path / "less", {GRAPH_KEY: [graph]})
    assert list(tmp_path.glob("less*")) == []


def test_pieces_of_every_kind_come_one_after_the_other(tmp_path: Path) -> None:
    asked: list[str] = []

    def rows(name: str, values: list[Any]) -> Iterator[Any]:
        for value in values:
            asked.append(name)
            yield value

    half = np.array([1.5, 2.5], ml_dtypes.bfloat16)
    variables = {
        "b": ckpttool.Pieces(
            np.int16, (3, 2), rows("b", [b"\1\0\2\0", np.array([[3, 4], [5, 6]], ">i2")])
        ),
        "a": ckpttool.Pieces("bfloat16", [2, 2], rows("a", [half, half[::-1]])),
        "q": ckpttool.Pieces("qint8", (2,), [np.array([1, -1], np.int8)]),
        "none": ckpttool.Pieces("float32", (0, 5), []),
    }
    ckpttool.write_checkpoint(tmp_path / "m", variables)
    assert asked == ["a", "a", "b", "b"]
    with ckpttool.open(tmp_path / "m") as checkpoint:
        assert checkpoint.read("b").tolist() == [[1, 2], [3, 4], [5, 6]]
        assert checkpoint.read("a").astype(float).tolist() == [[1.5, 2.5], [2.5, 1.5]]
        assert checkpoint["q"].dtype == "qint8"
        assert checkpoint.read("none").shape == (0, 5)


@pytest.mark.parametrize("kind", ["pieces", "transposed", "broadcast", "mapped"])
def test_memory_does_not_grow_with_a_variable(kind: str, tmp_path: Path) -> None:
    side = 4096  # 64 MiB of float32
    value: Any
    if kind == "pieces":
        value = ckpttool.Pieces(
            "float32", (side, side), (np.zeros(side, "f4") for _ in range(side))
        )
    elif kind == "transposed":
        value = np.zeros((side, side), np.float32).T
    elif kind == "broadcast":
        value = np.broadcast_to(np.float32(1), (side, side))
    else:
        value = np.memmap(tmp_path / "raw", np.dtype(">f4"), "w+", shape=(side, side))
    tracemalloc.start()
    try:
        ckpttool.write_checkpoint(tmp_path / "m", {"v": value})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "m.data-00000-of-00001").stat().st_size == side * side * 4
    assert peak < 24 * 2**20


def failing() -> Iterator[np.ndarray]:
    yield np.zeros(2, np.float32)
    raise RuntimeError("the generator failed")


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (ckpttool.Pieces("float32", (4,), [np.zeros(3, "f4")]), "value-shape", "byte 12 of 16"),
        (
            ckpttool.Pieces("float32", (4,), [np.zeros(5, "f4")]),
            "value-shape",
            "20 bytes have come",
        ),
        (ckpttool.Pieces("float32", (4,), [b"123"]), "value-shape", "whole elements"),
        (ckpttool.Pieces("float32", (4,), [np.zeros(4, "i4")]), "value-shape", "a piece is int32"),
        (ckpttool.Pieces("float32", (-1,), []), "value-shape", "negative"),
        (ckpttool.Pieces("string", (1,), [b""]), "value-shape", "lengths"),
        (ckpttool.Pieces("resource", (1,), []), "dtype-not-representable", "resource"),
        (ckpttool.Pieces("nonsense", (1,), []), "dtype-not-representable", "nonsense"),
        (ckpttool.Pieces("float32", (2.5,), []), "value-shape", "whole numbers"),  # type: ignore[arg-type]
        (ckpttool.Pieces("float32", "ab", []), "value-shape", "whole numbers"),  # type: ignore[arg-type]
        (ckpttool.Pieces("float32", (1,) * 255, [b"abcd"]), "value-shape", "254"),
        (ckpttool.Pieces("float32", (0, 2**62, 2), []), "value-shape", "64 bits"),
        (ckpttool.Pieces("float32", (1,), ["abcd"]), "value-shape", "a str"),  # type: ignore[list-item]
        (ckpttool.Pieces("float32", (1,), [None]), "value-shape", "NoneType"),  # type: ignore[list-item]
        ("\ud800", "dtype-not-representable", "no Unicode"),
        ([[1, 2], [3]], "value-shape", "no array"),
        (np.ma.masked_equal([1, 2], 2), "value-shape", "masked"),
        (np.array(["2020-01-01"], "datetime64[D]"), "dtype-not-representable", "datetime64"),
        (np.zeros(2, [("a", "i4")]), "dtype-not-representable", "void"),
        ({"a": 1}, "dtype-not-representable", "dict"),
        ([1, None], "dtype-not-representable", "int"),
    ],
)
def test_what_cannot_be_written_leaves_what_was_there(
    value: Any, error: str, says: str, tmp_path: Path
) -> None:
    ckpttool.write_checkpoint(tmp_path / "m", {"old": np.ones(3)})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ckpttool.CkpttoolError) as caught:
        ckpttool.write_checkpoint(tmp_path / "m", {"v": value}, overwrite=True)
    told = f"{caught.value.what}: {caught.value.why} {caught.value.hint}"
    assert (caught.value.id, says in told) == (error, True), told
    assert "v" in caught.value.what
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_error_of_the_callers_own_comes_through_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the generator failed"):
        ckpttool.write_checkpoint(
            tmp_path / "m", {"v": ckpttool.Pieces("float32", (4,), failing())}
        )
    assert list(tmp_path.iterdir()) == []


def test_where_it_may_be_written(tmp_path: Path, fixtures_dir: Path) -> None:
    def refused(destination: Any, id: str, **more: Any) -> None:
        with pytest.raises(ckpttool.CkpttoolError) as caught:
            ckpttool.write_checkpoint(destination, {"v": 1}, **more)
        assert caught.value.id == id

    refused(tmp_path, "destination-form")
    refused("", "empty-address")
    refused(tmp_path / "nowhere" / "m", "destination-directory")
    refused(fixtures_dir / "savedmodel" / "variables" / "variables", "destination-form")
    refused(tmp_path / "m", "usage", shards=0)
    refused(tmp_path / "m", "usage", shards=10**9)
    refused(tmp_path / "m", "object-graph-malformed", object_graph=b"\xff\xff")
    refused(tmp_path / "m", "options-contradict", object_graph=b"", step=1)
    assert list(tmp_path.iterdir()) == []
    ckpttool.write_checkpoint(os.fsencode(tmp_path / "m"), {"v": 1, "w": 2}, shards=2)
    refused(tmp_path / "m", "exists")
    ckpttool.write_checkpoint(tmp_path / "m", {"v": 5}, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "m.data-00000-of-00001",
        "m.index",
    ]


@pytest.mark.parametrize(
    ("variables", "id"),
    [
        ({"": 1}, "name-unusable"),
        ({"\0x": 1}, "name-unusable"),
        ({"\ud800": 1}, "name-unusable"),
        ({"global_step": 1}, "duplicate-key"),
    ],
)
def test_names_that_cannot_be(variables: dict[str, int], id: str, tmp_path: Path) -> None:
    with pytest.raises(ckpttool.RefusedError) as caught:
        ckpttool.write_checkpoint(tmp_path / "m", variables, step=1)
    assert caught.value.id == id
    assert list(tmp_path.iterdir()) == []


def test_a_name_is_text(tmp_path: Path) -> None:
    with pytest.raises(ckpttool.UsageError, match="bytes"):
        ckpttool.write_checkpoint(tmp_path / "m", {b"w": 1})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [{"shards": 1.5}, {"step": 7.5}, {"step": "7"}, {"shards": 0}])
def test_counts_are_whole_numbers(count: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ckpttool.UsageError, match=r"1\.5|7\.5|'7'|0"):
        ckpttool.write_checkpoint(tmp_path / "m", {"w": 1}, **count)
    assert list(tmp_path.iterdir()) == []


def test_numpys_text_of_any_length(tmp_path: Path) -> None:
    words = np.array(["", "one", "zwölf\0", "a" * 300], np.dtypes.StringDType())
    ckpttool.write_checkpoint(tmp_path / "m", {"words": words})
    with ckpttool.open(tmp_path / "m") as checkpoint:
        assert checkpoint.read("words").tolist() == [word.encode() for word in words]


def test_any_other_name_is_kept_to_the_byte(tmp_path: Path) -> None:
    names = ["a b", "x/y:0", "\n", "\udcff", "ä", "../up", "%s"]
    ckpttool.write_checkpoint(tmp_path / "m", {name: np.int32(at) for at, name in enumerate(names)})
    with ckpttool.open(tmp_path / "m") as checkpoint:
        assert {name: int(checkpoint.read(name)) for name in names} == {
            name: at for at, name in enumerate(names)
        }


def test_a_step_that_no_int64_holds(tmp_path: Path) -> None:
    with pytest.raises(ckpttool.CkpttoolError) as caught:
        ckpttool.write_checkpoint(tmp_path / "m", {"v": 1}, step=2**63)
    assert (caught.value.exit_code, list(tmp_path.iterdir())) == (2, [])
