"""Graphs, right and wrong, without TensorFlow: bounds, damage, and the text format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.formats.graph_file import read_graph_file
from ckpttool.formats.graph_text import encode_text
from ckpttool.formats.graphdef import parse_graph
from ckpttool.formats.long_message import AT_HAND, FileBytes, MemoryBytes, walk
from ckpttool.formats.saved_model import parse_saved_model
from ckpttool.limits import Limits
from ckpttool.sources.graph_analysis import analyse_graph
from ckpttool.storage import open_directory
from tests.support.graph_files import (
    binary,
    field,
    graph_of,
    node,
    placeholder,
    read_file,
    varint,
)

SMALL = (
    placeholder("x", shape="dim { size: -1 } dim { size: 4 }")
    + node("w", "Const", dtype="type: DT_FLOAT", value="tensor { dtype: DT_FLOAT float_val: 1 }")
    + node("y", "MatMul", "x", "w:0", "^w", device="/cpu:0", T="type: DT_FLOAT")
)


def parse(data: bytes, limits: Limits | None = None) -> None:
    """Everything that is ever asked of a graph."""
    graph = parse_graph(MemoryBytes(data, "graph.pb"), 0, len(data), limits or Limits())
    analyse_graph(graph)
    for each in graph.all_nodes():
        attrs = graph.attrs(each)
        for name in attrs.names:
            tensor = attrs.tensor(name)
            if tensor is not None:
                tensor.elements(Limits())


def failure(action: Callable[[bytes], object], data: bytes) -> CkpttoolError | None:
    """The error of ours that something ends with; any other goes through."""
    try:
        action(data)
    except CkpttoolError as error:
        return error
    return None


def as_text(text: bytes) -> bytes:
    return encode_text(text, "graph.pbtxt")[1]


# Damage -----------------------------------------------------------------------------------


def test_truncation_at_every_byte() -> None:
    """FAULTS 14: what is cut is an error, or (between two nodes) a shorter graph."""
    data = binary(SMALL)
    errors = [failure(parse, data[:end]) for end in range(len(data))]
    failed = [error for error in errors if error is not None]
    assert {(error.id, error.exit_code) for error in failed} == {("graph-malformed", 20)}
    assert all("graph.pb" in error.what for error in failed)
    assert len(failed) >= len(data) - 4


def test_every_bit_flip() -> None:
    """FAULTS 14: a flipped bit is an error of ours or another graph, never an exception."""
    data = binary(SMALL)
    ids = set()
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        error = failure(parse, bytes(damaged))
        ids.add(error.id if error else "")
    assert ids <= {"", "graph-malformed", "limit-graph", "dtype-unsupported"}
    assert "graph-malformed" in ids


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (field(1, field(1, b"x")), "has no op"),
        (field(1, field(2, b"Add")), "has no name"),
        (field(1, field(1, b"x") + b"\x12\x7f"), "runs past"),
        (varint(1 << 3 | 2) + varint(2**40), "claims"),
        (b"\x0b", "wire type 3"),
        (b"\x00", "field number 0"),
        (b"\xff" * 12, "more than 64 bits"),
    ],
)
def test_what_is_no_graph(data: bytes, why: str) -> None:
    with pytest.raises(CorruptError, match=why) as caught:
        parse(data)
    assert caught.value.id == "graph-malformed"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("tensor { dtype: DT_FLOAT tensor_shape { dim { size: -1 } } }", "full shape"),
        ("tensor { dtype: DT_FLOAT tensor_shape { unknown_rank: true } }", "full shape"),
        ('tensor { dtype: DT_FLOAT tensor_content: "abc" }', "3 bytes of elements instead of 4"),
        (
            "tensor { dtype: DT_FLOAT tensor_shape { "
            + f"dim {{ size: {2**62} }} " * 3
            + "} float_val: 1 }",
            "bytes",
        ),
        ("tensor { tensor_shape { " + "dim { size: 1 } " * 300 + "} }", "254 dimensions"),
    ],
)
def test_a_constant_that_contradicts_itself(value: str, why: str) -> None:
    graph = graph_of(node("c", "Const", value=value))
    with pytest.raises(CorruptError, match=why):
        graph.attrs(graph.nodes[0]).tensor("value")


# Claims -----------------------------------------------------------------------------------


def test_limits() -> None:
    data = binary("".join(node(f"n{number}", "NoOp") for number in range(20)))
    parse(data, Limits(graph_nodes=20))
    with pytest.raises(LimitError) as caught:
        parse(data, Limits(graph_nodes=19))
    assert (caught.value.id, caught.value.exit_code) == ("limit-graph", 21)
    many = binary(node("n", "AddN", *["x"] * 100))
    with pytest.raises(LimitError, match="inputs"):
        parse(many, Limits(graph_nodes=10))
    long = binary(node("n" * 5000, "NoOp"))
    with pytest.raises(LimitError, match="graph_text_bytes"):
        parse(long, Limits(graph_text_bytes=1000))


def test_nodes_of_functions_count() -> None:
    function = field(3, field(1, b"n") + field(2, b"NoOp"))
    data = field(2, field(1, field(1, field(1, b"f")) + function * 30))
    with pytest.raises(LimitError):
        parse(data, Limits(graph_nodes=29))


def test_a_few_bytes_stand_for_any_number_of_elements() -> None:
    """P2: 2^60 repeated elements take no memory before they are asked for, nor then."""
    dims = "dim { size: 1073741824 } " * 2
    value = f"tensor {{ dtype: DT_FLOAT tensor_shape {{ {dims} }} float_val: 2 }}"
    graph = graph_of(node("c", "Const", value=value))
    tensor = graph.attrs(graph.nodes[0]).tensor("value")
    assert tensor is not None
    elements = tensor.elements(Limits())
    assert elements.nbytes == 2**62
    assert elements.read(2**61 + 2, 10) == b"\x00\x40" + b"\x00\x00\x00\x40" * 2


def test_numbers_to_decode_are_bounded() -> None:
    numbers = b"\x01" * 1000
    tensor = field(2, field(2, b"\x08" + varint(1000))) + field(10, numbers) + b"\x08\x09"
    attr = field(5, field(1, b"value") + field(2, field(8, tensor)))
    data = field(1, field(1, b"c") + field(2, b"Const") + attr)
    graph = parse_graph(MemoryBytes(data, "graph.pb"), 0, len(data), Limits())
    found = graph.attrs(graph.nodes[0]).tensor("value")
    assert found is not None
    assert len(found.elements(Limits()).read(0, 8000)) == 8000
    with pytest.raises(LimitError) as caught:
        found.elements(Limits(constant_bytes=7000))
    assert caught.value.id == "limit-constant"


def test_a_meta_graph_has_few_parts() -> None:
    signature = field(5, field(1, b"s") + field(2, b""))
    data = field(2, signature * 200)
    saved = parse_saved_model(MemoryBytes(data, "saved_model.pb"), 0, len(data), Limits())
    assert len(saved.meta_graphs[0].signatures) == 200
    with pytest.raises(LimitError):
        parse_saved_model(
            MemoryBytes(data, "saved_model.pb"), 0, len(data), Limits(graph_items=499)
        )
    many = field(2, b"") * 101
    with pytest.raises(LimitError, match="MetaGraphs"):
        parse_saved_model(MemoryBytes(many, "saved_model.pb"), 0, len(many), Limits())


def test_cycles_and_recursion_are_plain_data() -> None:
    """FAULTS 17: a node that feeds itself, a loop of 50,000, a function that calls itself."""
    count = 50_000
    loop = "".join(node(f"n{k}", "Identity", f"n{(k + 1) % count}") for k in range(count))
    itself = node("a", "Identity", "a") + node("b", "Identity", "b", "^b", "a:7")
    library = 'library { function { signature { name: "f" } node_def { name: "c" op: "f" } } }'
    graph = graph_of(placeholder("x"), itself, loop, library)
    found = analyse_graph(graph)
    assert found.nodes == count + 3
    assert found.unknown_ops == ()
    assert found.ops["f"] == 1


# Large files ------------------------------------------------------------------------------


def test_a_node_longer_than_a_window_is_not_held(tmp_path: Path) -> None:
    """A weight of several windows: its node is found, its bytes stay in the file."""
    weight = bytes(range(256)) * (3 * AT_HAND // 256)
    tensor = b"\x08\x01" + field(2, field(2, b"\x08" + varint(len(weight) // 4)))
    tensor += field(4, weight)
    attr = field(5, field(1, b"value") + field(2, field(8, tensor)))
    nodes = [
        field(1, field(1, b"before") + field(2, b"NoOp")),
        field(1, attr + field(3, b"before") + field(1, b"weight") + field(2, b"Const")),
        field(1, field(1, b"after") + field(2, b"NoOp") + field(3, b"^weight")),
    ]
    path = tmp_path / "graph.pb"
    path.write_bytes(b"".join(nodes))
    found = read_file(path)
    assert found.graph is not None
    assert [(each.name, each.op, each.inputs) for each in found.graph.nodes] == [
        ("before", "NoOp", ()),
        ("weight", "Const", ("before",)),
        ("after", "NoOp", ("^weight",)),
    ]
    stored = found.graph.attrs(found.graph.nodes[1]).tensor("value")
    assert stored is not None
    assert stored.content is not None
    start, end = stored.content
    assert path.read_bytes()[start:end] == weight


def test_windows_cut_fields_anywhere(tmp_path: Path) -> None:
    """However nodes lie across the windows of a file, they are the same."""
    path = tmp_path / "graph.pb"
    for extra in range(40):
        names = [b"a" * (AT_HAND - 100 + extra), b"b" * 50, b"c" * 50, b"d"]
        data = b"".join(field(1, field(1, name) + field(2, b"NoOp")) for name in names)
        path.write_bytes(data)
        with open_directory(str(tmp_path)) as directory:
            file = directory.open("graph.pb")
            source = FileBytes(file)
            graph = parse_graph(source, 0, source.size, Limits())
            fields = [
                base + value[0]
                for _, value, _, base in walk(source, 0, source.size)
                if isinstance(value, tuple)
            ]
            file.close()
        assert [each.name.encode() for each in graph.nodes] == names
        assert [each.start for each in graph.nodes] == fields


# Text -------------------------------------------------------------------------------------


def test_the_words_of_the_text_format() -> None:
    """What protobuf reads: both brackets, lists, comments, separators, enums by number."""
    usual = 'node { name: "a" op: "B" input: "x" input: "y" attr { key: "T" value { type: 1 } } }'
    other = (
        '\ufeff# a comment\nnode: < name: \'a\', op: "" "B"; input: [\'x\', "\\171"]\n'
        "attr: [{ key: 'T' value: < type: DT_FLOAT > }] > # the end"
    )
    assert encode_text(usual.encode(), "g") == encode_text(other.encode(), "g")


def test_fields_that_are_not_known_are_skipped() -> None:
    text = (
        'node { name: "a" op: "B" future { deep < x: 1 y: [1, 2] z: "s" "t" w: -inf > } later: [] '
        'experimental_debug_info { original_node_names: "q" } } unheard_of: ENUM_VALUE'
    )
    assert encode_text(text.encode(), "g")[1] == binary('node { name: "a" op: "B" }')


def test_an_any_of_a_collection() -> None:
    text = (
        'collection_def { key: "saved_model_assets" value { any_list { value { '
        '[type.googleapis.com/tensorflow.AssetFileDef] { filename: "vocabulary.txt" } } } } }'
    )
    kind, data = encode_text(text.encode(), "g")
    assert kind == "MetaGraphDef"
    assert b"vocabulary.txt" in data
    assert b"type.googleapis.com/tensorflow.AssetFileDef" in data


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node {", "line 1: the file ends inside NodeDef"),
        ("node {\n name: 5\n}", "line 2: text in quotes was expected"),
        ('node { name: "a }', "line 1: the text in quotes does not end"),
        ("node {} }", "a field name was expected"),
        ("node { name }", "a colon or { was expected"),
        ('node { attr { key: "T" value { i: 1.5 } } }', "'1.5' is no int"),
        ('node { attr { key: "T" value { i: 99999999999999999999 } } }', "more than 64 bits"),
        ('node { attr { key: "T" value { type: DT_NOTHING } } }', "is no DataType"),
        ('node { attr { key: "T" value { b: maybe } } }', "is no bool"),
        ('node { attr { key: "T" value { f: one } } }', "is not a number"),
        ('node { name { first: "a" } }', "a value was expected"),
        ("node { attr: 5 }", "{ was expected"),
        ('node { input: ["a" "b", "c" }', "a comma or ] was expected"),
        ("model_checkpoint_path: 'x'", "is no field of a GraphDef"),
        ("node { attr { value { " + "func { attr { value { " * 60, "nested more than 100 deep"),
        ("x" * 20, "is no field of"),
    ],
)
def test_text_that_is_no_graph(text: str, why: str) -> None:
    with pytest.raises(CorruptError) as caught:
        encode_text(text.encode(), "graph.pbtxt")
    assert caught.value.id == "graph-malformed"
    assert why in caught.value.why


def test_text_cut_anywhere_ends_in_an_error_of_ours() -> None:
    text = SMALL.encode()
    cuts = [failure(as_text, text[:end]) for end in range(len(text))]
    assert {error.id for error in cuts if error is not None} == {"graph-malformed"}


def test_deep_text_is_refused_at_once() -> None:
    """Nesting is a list here, not calls; a megabyte of brackets is no more than a line."""
    for opening in ("{", "<", "[ {"):
        text = "node { unknown: " + f"{opening} x: " * 300_000
        with pytest.raises(CorruptError, match="deep"):
            encode_text(text.encode(), "graph.pbtxt")


def test_large_text_is_over_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text(SMALL)
    with pytest.raises(LimitError) as caught:
        read_file(path, Limits(graph_file_bytes=len(SMALL) - 1))
    assert caught.value.id == "limit-graph"


# Which message ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (binary(SMALL), "GraphDef"),
        (field(2, field(1, field(1, field(1, b"f")))), "GraphDef"),
        (b"", "GraphDef"),
        (field(1, field(5, b"1.12.0")) + field(2, binary(SMALL)), "MetaGraphDef"),
        (field(1, field(2, field(1, field(1, b"Add"))) + field(4, b"serve")), "MetaGraphDef"),
        (field(1, field(1, b"v1") + field(4, b"serve")), "MetaGraphDef"),
        (field(2, binary(SMALL)), "MetaGraphDef"),
        (b"\x08\x01" + field(2, b""), "SavedModel"),
    ],
)
def test_which_message_a_file_holds(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "file.pb"
    path.write_bytes(data)
    with open_directory(str(tmp_path)) as directory:
        assert read_graph_file(directory.open("file.pb"), Limits()).message == message
