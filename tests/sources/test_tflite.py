"""TFLite models as a source, against the interpreter; and FlatBuffers that lie."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, UnsupportedError
from ckpttool.formats.long_message import FileBytes
from ckpttool.formats.tflite import read_model
from ckpttool.formats.tflite_ops import BUILTIN_OPERATORS, operator_name
from ckpttool.limits import Limits
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection
from ckpttool.sources.tflite import TfliteSource
from tests.support.flatbuffer import Field, Tables, Text, Vector, flatbuffer, tflite
from tests.support.memory_file import MemoryFile

FLOAT32, STRING, INT8, INT4, INT2, UINT4 = 0, 5, 9, 17, 19, 20
CORPUS = [
    "keras3-mnist-weights-sm-tflite/mnist_model.tflite",
    "multi-regression-allformats/regression/tflite/model.tflite",
    "multi-regression-allformats/regression/tflite/test_api_model.tflite",
]


def whole(source: Any, name: str) -> np.ndarray:
    variable = source.find(name)
    found: np.ndarray = source.read(variable, Selection.whole(variable.shape))
    return found


def assert_same_as_interpreter(path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(path))
    interpreter.allocate_tensors()
    details = {detail["name"]: detail for detail in interpreter.get_tensor_details()}
    with open_source(str(path)) as source:
        assert isinstance(source, TfliteSource)
        for variable in source.variables():
            detail = details[variable.name]
            ours = whole(source, variable.name)
            assert ours.shape == tuple(detail["shape"])
            assert ours.dtype == detail["dtype"]
            theirs = interpreter.get_tensor(detail["index"])
            assert ours.tolist() == theirs.tolist(), variable.name
        ops = [op["op_name"] for op in interpreter._get_ops_details()]
        assert source.summary.ops == {name: ops.count(name) for name in set(ops) - {"DELEGATE"}}
        runners = interpreter.get_signature_list()
        for signature in source.summary.signatures if runners else ():
            theirs_too = runners[signature.name]
            assert [tensor.name for tensor in signature.inputs] == theirs_too["inputs"]
            assert [tensor.name for tensor in signature.outputs] == theirs_too["outputs"]


@pytest.mark.parametrize("name", CORPUS)
def test_corpus_values_are_those_of_the_interpreter(corpus: Path, name: str) -> None:
    assert_same_as_interpreter(corpus / name)


def test_values_are_those_of_the_interpreter(fixtures_dir: Path) -> None:
    assert_same_as_interpreter(fixtures_dir / "models" / "dense.tflite")


def test_operators_are_those_of_tensorflow() -> None:
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    theirs = {
        value: name
        for name, value in vars(schema.BuiltinOperator).items()
        if isinstance(value, int) and not name.startswith("_")
    }
    assert [theirs[i] for i in range(len(theirs))] == list(BUILTIN_OPERATORS)
    assert operator_name(len(theirs)) == f"BUILTIN_{len(theirs)}"


def test_a_model_quantised_by_tensorflow(tmp_path: Path) -> None:
    """Values are the integers that are stored; the summary says how many variables have a scale."""
    tf = pytest.importorskip("tensorflow")
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    kernel = tf.constant(np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32))

    class Model(tf.Module):  # type: ignore[misc,name-defined]
        @tf.function(input_signature=[tf.TensorSpec([1, 64], tf.float32, name="x")])  # type: ignore[untyped-decorator]
        def __call__(self, x: Any) -> Any:
            return {"y": x @ kernel}

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "sm"), signatures=model.__call__)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "sm"))
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    path = tmp_path / "x.tflite"
    path.write_bytes(converter.convert())
    with open_source(str(path)) as source:
        assert isinstance(source, TfliteSource)
        assert source.summary.quantised == 1
        (variable,) = [v for v in source.variables() if v.shape == (64, 64)]
        assert variable.dtype == "int8"
        interpreter = litert.Interpreter(str(path))
        details = {d["name"]: d for d in interpreter.get_tensor_details()}
        detail = details[variable.name]
        scale = detail["quantization_parameters"]["scales"]  # one a row
        meant = whole(source, variable.name).astype(np.float32) * scale[:, None]
        assert np.abs(meant.T - kernel.numpy()).max() <= scale.max()


def tensor(name: str, shape: tuple[int, ...], kind: int, buffer: int, **more: Field) -> Any:
    fields: dict[int, Field] = {
        0: Vector("i", shape),
        1: ("b", kind),
        2: ("I", buffer),
        3: Text(name.encode("utf-8", "surrogateescape")),
    }
    return fields | {int(key[1:]): field for key, field in more.items()}


def texts(*values: bytes) -> bytes:
    places = [4 * (len(values) + 2)]
    for value in values:
        places.append(places[-1] + len(value))
    return struct.pack(f"<{len(places) + 1}i", len(values), *places) + b"".join(values)


ONE = struct.pack("<2f", 1, 2)


def save(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_every_width_texts_and_names_that_are_taken(tmp_path: Path) -> None:
    data = tflite(
        (
            tensor("w", (2,), FLOAT32, 1),
            tensor("w", (2,), FLOAT32, 2),
            tensor("", (), INT8, 3),
            tensor("four", (5,), INT4, 4),
            tensor("ufour", (2, 3), UINT4, 5),
            tensor("two", (5,), INT2, 6),
            tensor("words", (3,), STRING, 7),
            tensor("input", (2,), FLOAT32, 0),
        ),
        (
            ONE,
            ONE[::-1],
            b"\xf9",
            bytes([0x8F, 0x10, 0x07]),
            bytes([0x10, 0x32, 0x54]),
            bytes([0b11_10_01_00, 0b10]),
            texts(b"one", b"", "zwölf".encode()),
        ),
        operators=(0, 1, 0),
        codes=({0: ("b", 127), 3: ("i", 150)}, {0: ("b", 32), 1: Text(b"Mine")}),
    )
    with open_source(save(tmp_path / "x.tflite", data)) as source:
        assert isinstance(source, TfliteSource)
        assert not source.findings()
        assert sorted(variable.name for variable in source.variables()) == [
            "#0.2", "four", "two", "ufour", "w", "w#0.1", "words",
        ]  # fmt: skip
        assert whole(source, "w").tolist() == [1, 2]
        assert whole(source, "#0.2") == -7
        assert whole(source, "four").astype(int).tolist() == [-1, -8, 0, 1, 7]
        assert whole(source, "ufour").astype(int).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert whole(source, "two").astype(int).tolist() == [0, 1, -2, -1, -2]
        chosen = Selection.of((5,), (slice(4, 0, -3),))
        assert source.read(source.find("four"), chosen).astype(int).tolist() == [7, -8]
        words = source.find("words")
        assert source.strings(words, Selection.of((3,), (slice(None, None, -2),))) == [
            "zwölf".encode(),
            b"one",
        ]
        assert source.summary.ops == {BUILTIN_OPERATORS[150]: 2, "Mine": 1}


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    data = tflite(
        (
            tensor("sparse", (4,), FLOAT32, 1, f6={}),
            tensor("short", (3,), FLOAT32, 1),
            tensor("words", (3,), STRING, 2),
            tensor("odd", (2,), 99, 1),
            tensor("far", (2,), FLOAT32, 0, f10=("I", 1)),
            tensor("good", (2,), FLOAT32, 1),
        ),
        (ONE, texts(b"a", b"b")),
    )
    with open_source(save(tmp_path / "x.tflite", data)) as source:
        assert {(f.id, f.object) for f in source.findings()} == {
            ("sparse-tensor", "sparse"),
            ("size-mismatch", "short"),
        }
        assert whole(source, "good").tolist() == [1, 2]
        for name, code in {"sparse": 12, "short": 20, "words": 20, "odd": 12}.items():
            with pytest.raises(CkpttoolError) as caught:
                whole(source, name)
            assert caught.value.exit_code == code, name
        assert any("another file" in note for note in source.notes)
        with pytest.raises(UnsupportedError):
            source.strings(source.find("good"), Selection.whole((2,)))


def test_values_behind_everything_else_in_models_past_2_gb(tmp_path: Path) -> None:
    body = tflite((tensor("w", (2,), FLOAT32, 1),), f4=Tables(({}, {1: ("Q", 2**40), 2: ("Q", 8)})))
    at = len(body)
    placed = Tables(({}, {1: ("Q", at), 2: ("Q", 8)}))
    data = tflite((tensor("w", (2,), FLOAT32, 1),), f4=placed)
    assert len(data) == at
    with open_source(save(tmp_path / "x.tflite", data + ONE)) as source:
        assert whole(source, "w").tolist() == [1, 2]
    assert opened(tmp_path / "x.tflite", data + ONE[:-1]).id == "tflite-malformed"
    assert opened(tmp_path / "x.tflite", body).id == "tflite-malformed"


def opened(path: Path, data: bytes, limits: Limits | None = None) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        open_source(save(path, data), limits).close()
    return caught.value


def operator(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Tables:
    return Tables(({0: ("I", 0), 1: Vector("i", inputs), 2: Vector("i", outputs)},))


def test_which_tensors_an_operator_takes_and_gives() -> None:
    data = tflite(
        (tensor("x", (2,), FLOAT32, 0), tensor("y", (2,), FLOAT32, 0)),
        graph={3: operator((0, -1), (1,))},
        codes=({3: ("i", 9)},),
    )
    (graph,) = read_model(FileBytes(MemoryFile(data)), Limits()).subgraphs
    assert graph.operators == ((BUILTIN_OPERATORS[9], (0, -1), (1,)),)


def test_numbers_that_nothing_has(tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    one = (tensor("w", (2,), FLOAT32, 1),)
    for data in (
        tflite((tensor("w", (2,), FLOAT32, 2),), (ONE,)),
        tflite(one, (ONE,), operators=(0,)),
        tflite(one, (ONE,), graph={1: Vector("i", (1,))}),
        tflite(one, (ONE,), graph={2: Vector("i", (-1,))}),
        tflite(one, (ONE,), graph={3: operator((1,), (0,))}, codes=({3: ("i", 9)},)),
        tflite(one, (ONE,), graph={3: operator((0,), (-2,))}, codes=({3: ("i", 9)},)),
        tflite(one, (ONE,), f7=Tables(({4: ("I", 1)},))),
        tflite(one, (ONE,), f7=Tables(({0: Tables(({1: ("I", 9)},))},))),
        tflite(one, (ONE,), f0=("I", 4)),
        b"\xff\xff\xff\x7fTFL3" + bytes(64),
        b"\x04\0\0\0TFL3" + bytes(64),
    ):
        assert opened(path, data).id == "tflite-malformed"
    assert (
        opened(path, tflite((tensor("w", (-2,), FLOAT32, 1),), (ONE,))).id == "negative-dimension"
    )


def test_claims_are_held_against_limits(tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    two = tflite(tuple(tensor(name, (2,), FLOAT32, 1) for name in "ab"), (ONE,))
    assert opened(path, two, Limits(entries=1)).id == "limit-entries"
    assert opened(path, two, Limits(key_bytes=0)).id == "limit-keys"
    deep = tflite((tensor("w", (1,) * 300, FLOAT32, 1),), (ONE,))
    assert opened(path, deep).id == "limit-rank"
    wide = tflite((tensor("w", (2**31 - 1,) * 3, FLOAT32, 1),), (ONE,))
    assert opened(path, wide).id == "shape-overflow"


def test_parts_that_share_their_bytes_stand_for_no_more_than_the_file(tmp_path: Path) -> None:
    """A vector of 100,000 subgraphs that are all one, of as many tensors that are all one."""
    count = 100_000
    shared = bytearray(flatbuffer({0: ("I", 3), 2: Vector("I", (0,) * count), 4: Tables(({},))}))
    vector = shared.index(struct.pack("<I", count)) + 4
    graph = len(shared)
    tensors = graph + 64
    body = struct.pack("<HHHH", 6, 8, 4, 0) + struct.pack("<iI", 8, tensors - (graph + 12))
    shared += body.ljust(64, b"\0") + struct.pack("<I", count)
    empty = tensors + 4 + 4 * count
    for i in range(count):
        struct.pack_into("<I", shared, vector + 4 * i, graph + 8 - (vector + 4 * i))
        shared += struct.pack("<I", empty + 4 - (tensors + 4 + 4 * i))
    shared += struct.pack("<HH", 4, 4) + struct.pack("<i", 4)
    assert "share bytes" in opened(tmp_path / "x.tflite", bytes(shared)).why


def test_cut_off_or_changed_anywhere_it_never_breaks(fixtures_dir: Path, tmp_path: Path) -> None:
    data = (fixtures_dir / "models" / "dense.tflite").read_bytes()
    path = tmp_path / "x.tflite"
    cases = [data[:end] for end in range(len(data))]
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at * 3 % 8
        cases.append(bytes(changed))
    for case in cases:
        path.write_bytes(case)
        with contextlib.suppress(CkpttoolError), open_source(str(path)) as source:
            for variable in source.variables():
                selection = Selection.whole(variable.shape or ())
                with contextlib.suppress(CkpttoolError):
                    assert sum(map(len, source.chunks(variable, selection))) >= variable.nbytes
