"""ONNX models as a source, against the onnx package; and models that lie."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpttool.errors import CkpttoolError, IncompleteError, UnsupportedError
from ckpttool.limits import Limits
from ckpttool.sources.onnx import OnnxSource
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Index, Selection

onnx = pytest.importorskip("onnx")
from onnx import TensorProto as T  # noqa: E402
from onnx import external_data_helper, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(11)
#: Types whose numbers stand in fields of their own, with numbers that each holds.
TYPES: dict[int, list[Any]] = {
    T.FLOAT: [1.5, -2.0, 0.1],
    T.DOUBLE: [1.5, -2.0, 0.1],
    T.INT8: [-128, 127, -1],
    T.UINT8: [0, 255, 7],
    T.INT16: [-(2**15), 2**15 - 1, -1],
    T.UINT16: [0, 2**16 - 1, 7],
    T.INT32: [-(2**31), 2**31 - 1, -1],
    T.UINT32: [0, 2**32 - 1, 7],
    T.INT64: [-(2**63), 2**63 - 1, -1],
    T.UINT64: [0, 2**64 - 1, 7],
    T.BOOL: [True, False, True],
    T.FLOAT16: [1.5, -2.0, 0.1],
    T.BFLOAT16: [1.5, -2.0, 3.0],
    T.COMPLEX64: [1 + 2j, -1j, 0.5],
    T.COMPLEX128: [1 + 2j, -1j, 0.5],
    T.FLOAT8E4M3FN: [1.5, -2.0, 3.0],
    T.FLOAT8E5M2: [1.5, -2.0, 3.0],
    T.FLOAT8E4M3FNUZ: [1.5, -2.0, 3.0],
    T.FLOAT8E5M2FNUZ: [1.5, -2.0, 3.0],
    T.INT4: [-8, 7, -1],
    T.UINT4: [0, 15, 7],
    T.FLOAT4E2M1: [1.5, -2.0, 3.0],
}


def model(
    tensors: list[Any], nodes: list[Any] | None = None, inputs: tuple[Any, ...] = (), **more: Any
) -> Any:
    nodes = [helper.make_node("Identity", ["x"], ["y"])] if nodes is None else nodes
    given = [helper.make_tensor_value_info("x", T.FLOAT, ["batch", 4]), *inputs]
    result = [helper.make_tensor_value_info("y", T.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, result, tensors)
    return helper.make_model(graph, producer_name="tests", producer_version="1", **more)


def save(path: Path, what: Any) -> Path:
    path.write_bytes(what if isinstance(what, bytes) else what.SerializeToString())
    return path


def whole(source: Any, name: str) -> np.ndarray:
    variable = source.find(name)
    found: np.ndarray = source.read(variable, Selection.whole(variable.shape))
    return found


def test_every_type_as_bytes_and_as_numbers(tmp_path: Path) -> None:
    tensors = []
    for kind, numbers in TYPES.items():
        typed = helper.make_tensor(f"typed{kind}", kind, [3], numbers)
        plain = T(name=f"plain{kind}", data_type=kind, dims=[3])
        array = numpy_helper.to_array(typed)
        packed = numpy_helper.from_array(array).raw_data
        plain.raw_data = packed
        tensors += [typed, plain]
    path = save(tmp_path / "x.onnx", model(tensors))
    with open_source(str(path)) as source:
        assert not source.findings()
        for tensor in tensors:
            expected = numpy_helper.to_array(tensor)
            ours = whole(source, tensor.name)
            assert ours.astype(expected.dtype).tolist() == expected.tolist(), tensor.name
            if tensor.data_type not in {T.COMPLEX64, T.COMPLEX128}:
                assert ours.dtype.name == expected.dtype.name
            variable = source.find(tensor.name)
            for index in ((1,), (slice(None, None, -1),), (slice(1, 1),)):
                chosen = source.read(variable, Selection.of((3,), index))
                assert chosen.tolist() == ours[index].tolist()


def test_texts_scalars_and_empty_ones(tmp_path: Path) -> None:
    words_given = [b"one", b"", "zwölf".encode(), b"\0"]
    tensors = [
        T(name="words", data_type=T.STRING, dims=[2, 2], string_data=words_given),
        helper.make_tensor("scalar", T.FLOAT, [], [2.5]),
        helper.make_tensor("none", T.INT32, [0, 3], []),
    ]
    with open_source(str(save(tmp_path / "x.onnx", model(tensors)))) as source:
        words = source.find("words")
        assert source.strings(words, Selection.whole((2, 2))) == words_given
        assert source.strings(words, Selection.of((2, 2), (..., 1))) == [b"", b"\0"]
        assert whole(source, "scalar") == np.float32(2.5)
        assert whole(source, "none").shape == (0, 3)


def test_numbers_that_are_not_packed(tmp_path: Path) -> None:
    """Protobuf lets a writer put each number into a field of its own."""
    tensor = b"\x08\x03\x10\x06\x42\x01w" + b"".join(
        b"\x28" + n for n in (b"\x01", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x05")
    )
    floats = b"\x0a\x01\x02\x10\x01\x42\x01v" + b"\x25\0\0\x80\x3f" + b"\x22\x04\0\0\0\x40"
    graph = b"".join(b"\x2a" + bytes([len(part)]) + part for part in (tensor, floats))
    data = b"\x08\x08\x12\x01t\x3a" + bytes([len(graph)]) + graph
    with open_source(str(save(tmp_path / "x.onnx", data))) as source:
        assert whole(source, "w").tolist() == [1, -1, 5]
        assert whole(source, "v").tolist() == [1, 2]


def test_says_what_the_model_is(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["z"]),
            helper.make_node("Mine", ["z"], ["u"], domain="me"),
        ],
        "inner",
        [],
        [helper.make_tensor_value_info("u", T.FLOAT, [1])],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Relu", ["y"], ["r"]),
    ]
    weight = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    old_style_input = helper.make_tensor_value_info("w", T.FLOAT, [2])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("me", 2)]
    made = model([weight], nodes, (old_style_input,), opset_imports=opsets, ir_version=8)
    with open_source(str(save(tmp_path / "x.onnx", made))) as source:
        assert isinstance(source, OnnxSource)
        summary = source.summary
        assert (summary.writer, summary.form) == ("tests 1", "ONNX IR 8")
        assert summary.opsets == {"ai.onnx": 17, "me": 2}
        assert summary.ops == {"Relu": 3, "me.Mine": 2, "If": 1}
        (signature,) = summary.signatures
        assert [(t.name, t.dtype, t.shape) for t in signature.inputs] == [("x", "float32", (-1, 4))]
        assert [(t.name, t.dtype, t.shape) for t in signature.outputs] == [("y", "float32", None)]


def external(tensor: Any, location: str, **place: Any) -> Any:
    external_data_helper.set_external_data(tensor, location, **place)
    tensor.ClearField("raw_data")
    return tensor


def test_elements_in_files_beside_the_model(tmp_path: Path) -> None:
    arrays = {name: RNG.normal(size=(3, 4)).astype(np.float32) for name in "abc"}
    (tmp_path / "deep").mkdir()
    data = arrays["a"].tobytes() + arrays["b"].tobytes()
    (tmp_path / "deep" / "w.bin").write_bytes(b"????" + data)
    (tmp_path / "c.bin").write_bytes(arrays["c"].tobytes())
    tensors = [
        external(numpy_helper.from_array(arrays["a"], "a"), "deep/w.bin", offset=4, length=48),
        external(numpy_helper.from_array(arrays["b"], "b"), "deep/w.bin", offset=52),
        external(numpy_helper.from_array(arrays["c"], "c"), "c.bin"),
    ]
    path = save(tmp_path / "x.onnx", model(tensors))
    indices: list[Index] = [(), (1,), (..., slice(None, None, -2))]
    with open_source(str(path)) as source:
        assert len(source.shards()) == 3
        for name, array in arrays.items():
            for index in indices:
                selection = Selection.of((3, 4), index)
                found = source.read(source.find(name), selection)
                assert found.tolist() == array[index].tolist()
    (tmp_path / "c.bin").write_bytes(b"short")
    (tmp_path / "deep" / "w.bin").write_bytes(b"????" + data[:-1])
    with open_source(str(path)) as source:
        assert {finding.id for finding in source.findings()} == {"size-mismatch"}
        assert whole(source, "a").tolist() == arrays["a"].tolist()
        for name in "bc":
            with pytest.raises(CkpttoolError) as caught:
                whole(source, name)
            assert caught.value.exit_code == 20
    (tmp_path / "deep" / "w.bin").unlink()
    with open_source(str(path)) as source:
        assert "weights-missing" in {finding.id for finding in source.findings()}
        assert [shard.present for shard in source.shards()] == [True, False, True]
        with pytest.raises(IncompleteError) as caught_missing:
            whole(source, "a")
        assert caught_missing.value.id == "weights-missing"


@pytest.mark.parametrize("location", ["../x", "/etc/passwd", "", "a/../../x", "link", "d/x", "."])
def test_files_outside_the_directory_are_refused(tmp_path: Path, location: str) -> None:
    """CVE-2022-25882, CVE-2024-27318 and the two after them: external data by path or link."""
    (tmp_path / "secret").write_bytes(bytes(48))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "m" / "d").symlink_to(tmp_path)
    (tmp_path / "x").write_bytes(bytes(48))
    tensor = numpy_helper.from_array(np.zeros((3, 4), np.float32), "a")
    tensor.ClearField("raw_data")
    tensor.data_location = T.EXTERNAL
    if location:
        tensor.external_data.add(key="location", value=location)
    path = save(tmp_path / "m" / "x.onnx", model([tensor]))
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(path))
    assert caught.value.exit_code == 22


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-1"), ("length", "9" * 30), ("offset", "x")]
)
def test_places_that_are_no_numbers(tmp_path: Path, key: str, value: str) -> None:
    tensor = numpy_helper.from_array(np.zeros(3, np.float32), "a")
    external(tensor, "w.bin")
    tensor.external_data.add(key=key, value=value)
    (tmp_path / "w.bin").write_bytes(bytes(12))
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(save(tmp_path / "x.onnx", model([tensor]))))
    assert caught.value.id == "onnx-malformed"


def test_elements_that_do_not_fit_their_shape(tmp_path: Path) -> None:
    tensors = [
        T(name="raw", data_type=T.FLOAT, dims=[3], raw_data=bytes(8)),
        T(name="few", data_type=T.INT32, dims=[3], int32_data=[1, 2]),
        T(name="many", data_type=T.INT32, dims=[1], int32_data=[1, 2]),
        T(name="words", data_type=T.STRING, dims=[3], string_data=[b"a"]),
        T(name="huge", data_type=T.FLOAT, dims=[2**40], float_data=[1]),
        T(name="odd", data_type=99, dims=[2], raw_data=bytes(8)),
        numpy_helper.from_array(np.ones(2, np.float32), "good"),
    ]
    with open_source(str(save(tmp_path / "x.onnx", model(tensors)))) as source:
        assert [(f.id, f.object) for f in source.findings()] == [("size-mismatch", "raw")]
        assert whole(source, "good").tolist() == [1, 1]
        for name, code in {"raw": 20, "few": 20, "many": 20, "words": 20, "huge": 21}.items():
            with pytest.raises(CkpttoolError) as caught:
                whole(source, name)
            assert caught.value.exit_code == code, name
        assert source.find("odd").dtype == "dtype_99"
        with pytest.raises(UnsupportedError):
            whole(source, "odd")


def opened(path: Path, data: Any, limits: Limits | None = None) -> CkpttoolError:
    with pytest.raises(CkpttoolError) as caught:
        open_source(str(save(path, data)), limits).close()
    return caught.value


def test_claims_are_held_against_limits(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    two = model([numpy_helper.from_array(np.ones(2, np.float32), name) for name in "ab"])
    assert opened(path, two, Limits(entries=1)).id == "limit-entries"
    deep = model([T(name="a", data_type=T.FLOAT, dims=[1] * 300, raw_data=bytes(4))])
    assert opened(path, deep).id == "limit-rank"
    wide = model([T(name="a", data_type=T.FLOAT, dims=[2**62, 2**62])])
    assert opened(path, wide).id == "shape-overflow"
    assert opened(path, model([T(name="a", dims=[-1])])).id == "negative-dimension"
    twins = model([numpy_helper.from_array(np.ones(2, np.float32), "a")] * 2)
    assert opened(path, twins).id == "onnx-malformed"
    nodes = [helper.make_node("Relu", ["x"], ["y"])] * 5
    assert opened(path, model([], nodes), Limits(graph_nodes=4)).id == "limit-graph"
    assert opened(path, two, Limits(graph_text_bytes=3)).exit_code == 21
    assert opened(path, two, Limits(key_bytes=0)).exit_code == 21


def test_graphs_inside_each_other_are_bounded(tmp_path: Path) -> None:
    """Each level a graph with one node whose attribute is the next."""

    def field(number: int, data: bytes) -> bytes:
        size = len(data)
        out = bytearray()
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        return bytes([number << 3 | 2]) + bytes([*out, size]) + data

    graph = field(1, field(4, b"Relu"))
    for level in range(1000):
        graph = field(1, field(4, b"Loop") + field(5, field(6, graph)))
        if level in {5, 999}:
            data = b"\x08\x08" + field(2, b"t") + field(7, graph)
            if level == 5:
                with open_source(str(save(tmp_path / "x.onnx", data))) as source:
                    assert isinstance(source, OnnxSource)
                    assert source.summary.ops == {"Loop": 6, "Relu": 1}
            else:
                assert "inside each other" in opened(tmp_path / "x.onnx", data).why


def test_a_graph_that_feeds_itself_is_only_counted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["b", "b"], ["a"]), helper.make_node("Add", ["a", "a"], ["b"])]
    with open_source(str(save(tmp_path / "x.onnx", model([], nodes)))) as source:
        assert isinstance(source, OnnxSource)
        assert source.summary.ops == {"Add": 2}


def test_sparse_initializers_are_told(tmp_path: Path) -> None:
    made = model([])
    made.graph.sparse_initializer.add().dims.append(3)
    with open_source(str(save(tmp_path / "x.onnx", made))) as source:
        assert [finding.id for finding in source.findings()] == ["sparse-tensor"]


def test_cut_off_or_changed_anywhere_it_never_breaks(fixtures_dir: Path, tmp_path: Path) -> None:
    data = (fixtures_dir / "models" / "dense.onnx").read_bytes()
    (tmp_path / "dense.bin").write_bytes(bytes(120))
    path = tmp_path / "x.onnx"
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
                    size = sum(map(len, source.chunks(variable, selection)))
                    assert size >= variable.nbytes


def test_more_files_than_are_kept_open(tmp_path: Path) -> None:
    """onnx.save_model can put every tensor into a file of its own."""
    tensors = []
    for i in range(80):
        array = np.full(3, i, np.float32)
        (tmp_path / f"w{i}").write_bytes(array.tobytes())
        tensors.append(external(numpy_helper.from_array(array, f"t{i}"), f"w{i}"))
    path = save(tmp_path / "x.onnx", model(tensors))
    before = len(os.listdir("/proc/self/fd"))
    with open_source(str(path)) as source:
        for i in range(80):
            assert whole(source, f"t{i}").tolist() == [i] * 3
        assert len(os.listdir("/proc/self/fd")) < before + 50
    assert len(os.listdir("/proc/self/fd")) == before
    for i in range(80):
        (tmp_path / f"w{i}").unlink()
    more = [external(numpy_helper.from_array(array, f"u{i}"), f"u{i}") for i in range(40)]
    with open_source(str(save(path, model(tensors + more)))) as source:
        assert len(source.shards()) == 101
        missing = [f for f in source.findings() if f.id == "weights-missing"]
        assert len(missing) == 101
        assert missing[-1].message == "20 more files are missing"
