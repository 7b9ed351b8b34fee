"""Graphs as TensorFlow's own protobuf classes read them: the corpus, text, every constant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.formats.attr_value import read_attrs
from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.formats.graph_file import GraphFile, read_graph_file
from ckpttool.formats.graph_text import encode_text
from ckpttool.formats.graphdef import Node
from ckpttool.formats.long_message import MemoryBytes
from ckpttool.formats.saved_model import parse_fingerprint
from ckpttool.formats.saved_objects import parse_saved_objects
from ckpttool.formats.tensor_proto import read_tensor
from ckpttool.limits import Limits
from ckpttool.storage import open_directory

tf = pytest.importorskip("tensorflow")

from google.protobuf import text_format  # noqa: E402 - of TensorFlow
from tensorflow.core.framework import tensor_pb2, variable_pb2  # noqa: E402
from tensorflow.core.protobuf import (  # noqa: E402
    fingerprint_pb2,
    meta_graph_pb2,
    saved_model_pb2,
)

LIMITS = Limits()
CLASSES = {
    "GraphDef": tf.compat.v1.GraphDef,
    "MetaGraphDef": meta_graph_pb2.MetaGraphDef,
    "SavedModel": saved_model_pb2.SavedModel,
}
#: What every corpus has of files that hold a graph.
ENDINGS = (".meta", ".pb", ".pbtxt")


def graph_paths(corpus: Path) -> list[Path]:
    return sorted(
        path
        for path in corpus.rglob("*")
        if path.name.endswith(ENDINGS)
        and path.name not in ("fingerprint.pb", "keras_metadata.pb")
        and not path.read_bytes().startswith(b"version https://git-lfs")
    )


@contextmanager
def opened(path: Path) -> Iterator[GraphFile]:
    with (
        open_directory(str(path.parent)) as directory,
        closing(directory.open(path.name)) as file,
    ):
        yield read_graph_file(file, LIMITS)


def graphs_of(message: Any, kind: str) -> list[Any]:
    if kind == "GraphDef":
        return [message]
    return [meta.graph_def for meta in metas_of(message, kind)]


def metas_of(message: Any, kind: str) -> list[Any]:
    return {"GraphDef": [], "MetaGraphDef": [message]}.get(kind) or list(
        getattr(message, "meta_graphs", [])
    )


def fields_of(node: Node | Any) -> tuple[str, str, tuple[str, ...], str]:
    inputs = node.inputs if isinstance(node, Node) else tuple(node.input)
    return node.name, node.op, inputs, node.device


def test_the_corpus(corpus: Path) -> None:
    """Every graph of the corpus: nodes, functions, versions, placeholders, signatures."""
    paths = graph_paths(corpus)
    assert len(paths) >= 20
    for path in paths:
        with opened(path) as found:
            theirs = CLASSES[found.message].FromString(path.read_bytes())
            compare(found, theirs)


def compare(found: GraphFile, theirs: Any) -> None:
    ours = [found.graph] if found.graph else [meta.graph() for meta in found.metas]
    for graph, definition in zip(ours, graphs_of(theirs, found.message), strict=True):
        assert list(map(fields_of, graph.nodes)) == list(map(fields_of, definition.node))
        functions = definition.library.function
        for function, their in zip(graph.functions, functions, strict=True):
            signature = their.signature
            assert function.name == signature.name
            assert function.inputs == tuple(arg.name for arg in signature.input_arg)
            assert function.outputs == tuple(arg.name for arg in signature.output_arg)
            assert list(map(fields_of, function.nodes)) == list(map(fields_of, their.node_def))
        assert graph.producer == definition.versions.producer
        for node, their_node in zip(graph.nodes, definition.node, strict=True):
            if node.op in ("Placeholder", "Variable", "VariableV2", "Const", "FusedBatchNorm"):
                compare_attrs(graph.attrs(node), their_node.attr)
    for meta, definition in zip(found.metas, metas_of(theirs, found.message), strict=True):
        compare_meta(meta, definition)


def compare_attrs(attrs: Any, theirs: Any) -> None:
    assert set(attrs.names) == set(theirs)
    for name, value in theirs.items():
        kind = value.WhichOneof("value")
        if kind == "type":
            assert attrs.type(name) == tf.as_dtype(value.type).base_dtype.name
        elif kind == "shape":
            assert attrs.shape(name) == sizes(value.shape)
        elif kind == "b":
            assert attrs.flag(name) is value.b
        elif kind == "s":
            assert attrs.text(name) == value.s.decode()
        elif kind == "i":
            assert attrs.integer(name) == value.i
        elif kind == "f":
            assert attrs.number(name) == value.f
        elif kind == "tensor":
            compare_tensor(attrs.tensor(name), value.tensor)


def sizes(proto: Any) -> tuple[int, ...] | None:
    shape = tf.TensorShape(proto)
    return None if shape.rank is None else tuple(-1 if size is None else size for size in shape)


def compare_tensor(ours: Any, theirs: Any) -> None:
    array = tf.make_ndarray(theirs)
    assert (ours.dtype, ours.shape) == (tf.as_dtype(theirs.dtype).name, array.shape)
    if ours.dtype == "string":
        # Where nothing is stored, NumPy fills with text.
        assert ours.strings(LIMITS) == [text or b"" for text in array.ravel().tolist()]
        return
    elements = ours.elements(LIMITS)
    size = BY_NAME[ours.dtype].size * array.size
    assert elements.nbytes == size
    data = elements.read(0, size)
    assert data == array.astype(numpy_dtype(ours.dtype), copy=False).tobytes()
    half = size // 2
    assert elements.read(half, size - half) == data[half:]
    if ours.content is not None:
        assert ours.source.get(*ours.content) == data


def compare_meta(meta: Any, theirs: Any) -> None:
    info = theirs.meta_info_def
    assert meta.tags == tuple(info.tags)
    assert meta.tensorflow_version == info.tensorflow_version
    assert meta.git_version == info.tensorflow_git_version
    assert meta.ops == tuple(op.name for op in info.stripped_op_list.op)
    assert {one.name for one in meta.collections} == set(theirs.collection_def)
    assert [one.name for one in meta.signatures] == sorted(theirs.signature_def)
    for signature in meta.signatures:
        their = theirs.signature_def[signature.name]
        assert signature.method == their.method_name
        for ours, tensors in ((signature.inputs, their.inputs), (signature.outputs, their.outputs)):
            assert [one.name for one in ours] == sorted(tensors)
            for one in ours:
                assert one.tensor == tensors[one.name].name
                said = tensors[one.name].HasField("tensor_shape")
                assert one.shape == (sizes(tensors[one.name].tensor_shape) if said else None)
                if tensors[one.name].dtype:
                    assert one.dtype == tf.as_dtype(tensors[one.name].dtype).name
    assert meta.saver is not None or not theirs.HasField("saver_def")
    if meta.saver is not None:
        assert meta.saver.restore_op == theirs.saver_def.restore_op_name
        assert meta.saver.save_tensor == theirs.saver_def.save_tensor_name
        assert (meta.saver.version == "V2") == (theirs.saver_def.version == 2)
    variables = {one.name: one for one in meta.variables()}
    for collection in ("variables", "trainable_variables"):
        for data in theirs.collection_def[collection].bytes_list.value:
            definition = variable_pb2.VariableDef.FromString(data)
            ours = variables[definition.variable_name]
            assert ours.initializer == definition.initializer_name
            assert ours.initial_value == definition.initial_value_name
            assert ours.resource == definition.is_resource
            part = definition.save_slice_info_def
            if part.full_name:
                assert ours.slice is not None
                assert ours.slice.full_shape == tuple(part.full_shape)
                assert ours.slice.offset == tuple(part.var_offset)
                assert ours.slice.shape == tuple(part.var_shape)
    if meta.objects is not None:
        objects = parse_saved_objects(meta.source, meta.objects[0], meta.objects[1], LIMITS)
        nodes = theirs.object_graph_def.nodes
        assert objects.nodes == len(nodes)
        saved = [node.variable for node in nodes if node.HasField("variable")]
        assert [one.name for one in objects.variables] == [one.name for one in saved]
        assert [one.dtype for one in objects.variables] == [
            tf.as_dtype(one.dtype).name for one in saved
        ]


def test_text_of_the_corpus_is_the_same_graph(corpus: Path) -> None:
    """What protobuf writes as text comes back as the same nodes, to the bytes of attributes."""
    for path in graph_paths(corpus):
        with opened(path) as found:
            kind = found.message
        theirs = CLASSES[kind].FromString(path.read_bytes())
        message, data = encode_text(text_format.MessageToString(theirs).encode(), str(path))
        assert message == kind
        for ours, original in zip(
            graphs_of(CLASSES[kind].FromString(data), kind), graphs_of(theirs, kind), strict=True
        ):
            for node in original.node:  # what our tables leave out, and say so
                node.ClearField("experimental_type")
                node.ClearField("experimental_debug_info")
            assert list(map(bare, ours.node)) == list(map(bare, original.node))


def bare(node: Any) -> bytes:
    data: bytes = node.SerializeToString(deterministic=True)
    return data


def test_fingerprints(corpus: Path) -> None:
    paths = list(corpus.rglob("fingerprint.pb"))
    assert paths
    for path in paths:
        theirs = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
        ours = parse_fingerprint(path.read_bytes(), str(path))
        assert ours.checkpoint_hash == theirs.checkpoint_hash
        assert ours.saved_model_checksum == theirs.saved_model_checksum
        assert ours.uuid == theirs.uuid


def stored(proto: Any) -> Any:
    data = proto.SerializeToString()
    return read_tensor(MemoryBytes(data, "graph.pb"), 0, len(data))


NUMERIC = [name for name, dtype in BY_NAME.items() if dtype.size and dtype.numpy]


@pytest.mark.parametrize("name", NUMERIC)
def test_constants_of_every_type(name: str) -> None:
    """As `tf.make_tensor_proto` stores them: as bytes, or as one number for all."""
    dtype = tf.as_dtype(name)
    try:
        number = np.asarray([0, 1, 1, 0, 1, 1], np.int8).astype(dtype.as_numpy_dtype)
        many = tf.make_tensor_proto(number.reshape(2, 3), dtype)
        one = tf.make_tensor_proto(number[1], dtype, shape=[4])
    except (TypeError, ValueError) as error:
        pytest.skip(f"TensorFlow makes no constant of it: {error}")
    for proto in (many, one):
        ours = stored(proto)
        values = tf.make_ndarray(proto)
        assert (ours.dtype, ours.shape) == (name, values.shape)
        data = ours.elements(LIMITS).read(0, ours.nbytes)
        assert data == values.tobytes()


FIELDS = {
    "float32": ("float_val", st.floats(width=32, allow_nan=False)),
    "float64": ("double_val", st.floats(allow_nan=False)),
    "int32": ("int_val", st.integers(-(2**31), 2**31 - 1)),
    "int16": ("int_val", st.integers(-(2**15), 2**15 - 1)),
    "uint8": ("int_val", st.integers(0, 255)),
    "int64": ("int64_val", st.integers(-(2**63), 2**63 - 1)),
    "uint32": ("uint32_val", st.integers(0, 2**32 - 1)),
    "uint64": ("uint64_val", st.integers(0, 2**64 - 1)),
    "bool": ("bool_val", st.booleans()),
    "string": ("string_val", st.binary(max_size=9)),
}


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_numbers_in_fields_of_their_own(data: st.DataObject) -> None:
    """Fewer numbers than elements: the last one is repeated, as TensorFlow does."""
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    field, numbers = FIELDS[name]
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3))
    count = int(np.prod(shape))
    values = data.draw(st.lists(numbers, max_size=count))
    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(name).as_datatype_enum)
    proto.tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
    getattr(proto, field).extend(values)
    compare_tensor(stored(proto), proto)


def test_half_and_complex_numbers_in_fields_of_their_own() -> None:
    half = tensor_pb2.TensorProto(dtype=tf.float16.as_datatype_enum, half_val=[0x3C00, 0xC000])
    half.tensor_shape.CopyFrom(tf.TensorShape([3]).as_proto())
    compare_tensor(stored(half), half)
    pair = tensor_pb2.TensorProto(dtype=tf.complex64.as_datatype_enum, scomplex_val=[1, -2])
    pair.tensor_shape.CopyFrom(tf.TensorShape([3]).as_proto())
    ours = stored(pair)
    assert ours.elements(LIMITS).read(0, ours.nbytes) == np.full(3, 1 - 2j, np.complex64).tobytes()


def test_attributes_in_lists() -> None:
    node = tf.compat.v1.NodeDef(name="n", op="IteratorGetNext")
    node.attr["output_types"].list.type.extend([1, 9, 107])
    for shape in ([None, 3], None, []):
        node.attr["output_shapes"].list.shape.append(tf.TensorShape(shape).as_proto())
    node.attr["f"].func.name = "body"
    data = node.SerializeToString()
    attrs = read_attrs(MemoryBytes(data, "graph.pb"), 0, len(data))
    assert attrs.types("output_types") == ["float32", "int64", "string"]
    assert attrs.shapes("output_shapes") == [(-1, 3), None, ()]
    assert attrs.function("f") == "body"
    assert attrs.types("absent") == [] == attrs.shapes("absent")
    assert (attrs.function("absent"), attrs.type("f"), attrs.flag("f")) == (None, None, None)


def test_the_list_of_ops_is_that_of_this_tensorflow() -> None:
    from ckpttool.sources.tensorflow_ops import known_ops, listed_version
    from fixtures.make_tensorflow_ops import registered_ops

    if listed_version() != tf.__version__:
        pytest.skip(f"the list is of TensorFlow {listed_version()}")
    # Imports of other packages register ops of their own.
    assert known_ops() <= set(registered_ops())
    assert {"MatMul", "VarHandleOp", "IteratorGetNext"} <= known_ops()
