from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.formats.object_graph import VARIABLE_VALUE, ObjectGraph, parse_object_graph
from ckpttool.limits import Limits
from tests.support.graphs import Node, chain_bytes, graph_bytes, message, variable_key
from tests.support.handmade import varint

LIMITS = Limits()

TEXT = st.text(max_size=200) | st.sampled_from(["kernel", "0", "a/b.c", "x" * 127, "x" * 128])
KEY = st.text(min_size=1, max_size=300)


def as_nodes(graph: ObjectGraph) -> list[Node]:
    """The parsed graph in the form it was written from (but for what is not parsed)."""
    nodes = [Node(tail=b"") for _ in range(graph.size)]
    for node, (ids, names) in graph.edges.items():
        nodes[node].edges = list(zip(ids, names, strict=True))
    columns = zip(graph.owners, graph.full_names, graph.keys, strict=True)
    for number, (owner, full_name, key) in enumerate(columns):
        name = graph.attributes.get(number, VARIABLE_VALUE)
        nodes[owner].attributes.append((name, full_name, key))
    for optimizer, original, name, variable in graph.slots:
        nodes[optimizer].slots.append((original, name, variable))
    return nodes


def parse(data: bytes) -> list[Node]:
    return as_nodes(parse_object_graph(data, LIMITS))


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    """Graphs with cycles and shared nodes, whose node numbers take one to three bytes."""
    empty = draw(st.sampled_from([0, 0, 0, 130, 16_400]))
    count = draw(st.integers(1, 8))
    node = st.integers(0, count - 1).map(lambda number: number + empty) | st.just(0)
    edges = st.lists(st.tuples(node, TEXT), max_size=4)
    attributes = st.lists(st.tuples(st.just(VARIABLE_VALUE) | TEXT, TEXT, KEY), max_size=2)
    slots = st.lists(st.tuples(node, TEXT, node), max_size=2)
    return [Node(tail=b"")] * empty + [
        Node(draw(edges), draw(attributes), draw(slots), b"") for _ in range(count)
    ]


@settings(deadline=None)
@given(graphs(), st.sampled_from([b"", b"\x2a\x00", b"\x2a\x02\x08\x01", b"\x22\x03\x0a\x01s"]))
def test_reads_what_was_written(nodes: list[Node], tail: bytes) -> None:
    written = [Node(node.edges, node.attributes, node.slots, tail) for node in nodes]
    assert parse(graph_bytes(written)) == nodes


@settings(deadline=None)
@given(graphs(), st.randoms())
def test_any_order_and_unknown_fields_are_legal(nodes: list[Node], random) -> None:
    data = b""
    for node in nodes:
        edges = [(1, message((1, child), (2, name))) for child, name in node.edges]
        others = [
            (2, message((1, name), (2, full), (3, key))) for name, full, key in node.attributes
        ]
        slots = [(3, message((1, first), (2, name), (3, slot))) for first, name, slot in node.slots]
        parts = [iter(edges), iter(others), iter(slots), iter([(77, b"unknown"), (4, 5)])]
        fields = []
        while parts:  # one kind between the other, each in its own order
            part = random.choice(parts)
            field = next(part, None)
            if field is None:
                parts.remove(part)
            else:
                fields.append(field)
        data += message((9, "unknown"), (1, message(*fields)), (8, 1))
    assert parse(data) == nodes


def test_numbers_in_more_bytes_than_they_need() -> None:
    edge = b"\x08\x81\x80\x80\x00\x12\x81\x00n"  # node 1 in four bytes, a length in two
    attribute = b"\x0a\x8e\x00VARIABLE_VALUE\x12\x81\x00f\x1a\x81\x00k"
    slot = b"\x88\x00\x81\x00\x12\x81\x00m\x18\x81\x00"
    node = message((1, edge), (2, attribute), (3, slot))
    data = b"\x8a\x00" + varint(len(node)) + node + message((1, b""))
    assert parse(data) == [
        Node([(1, "n")], [(VARIABLE_VALUE, "f", "k")], [(1, "m", 1)], b""),
        Node(tail=b""),
    ]


def test_a_repeated_single_field_is_what_it_was_last() -> None:
    edge = message((1, 1), (2, "first"), (2, "last"), (1, 2))
    data = message((1, message((1, edge)))) + message((1, b""), (1, b""))
    assert parse(data)[0].edges == [(2, "last")]


def test_an_attribute_without_a_key_saved_nothing() -> None:
    assert parse(graph_bytes([Node(attributes=[(VARIABLE_VALUE, "w", "")])])) == [Node(tail=b"")]


def test_names_that_are_not_utf8_are_kept() -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    nodes = [Node([(0, name)], [(VARIABLE_VALUE, name, name)], [(0, name, 0)], b"")]
    assert parse(graph_bytes(nodes)) == nodes


def test_no_bytes_is_no_node() -> None:
    assert parse(b"") == []


@pytest.mark.parametrize("number", [1, 2**31 - 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("place", ["edge", "original", "variable"])
def test_a_reference_to_no_node_is_malformed(number: int, place: str) -> None:
    if place == "edge":
        node = message((1, message((1, number), (2, "x"))))
    else:
        pair = (number, 0) if place == "original" else (0, number)
        node = message((3, message((1, pair[0]), (2, "m"), (3, pair[1]))))
    with pytest.raises(CorruptError, match=r"malformed.*node 0 has .*there are 1 nodes") as raised:
        parse(message((1, node)))
    assert raised.value.id == "object-graph-malformed"


GRAPH = [
    Node([(1, "model"), (2, "optimizer"), (0, "root")]),
    Node([(3, "kernel"), (200, "x" * 130)]),
    Node([(4, "iter")], slots=[(3, "m", 5)]),
    Node(attributes=[(VARIABLE_VALUE, "dense/kernel", variable_key("model/kernel"))]),
    Node(attributes=[(VARIABLE_VALUE, "Adam/iter", variable_key("optimizer/iter"))]),
    Node(attributes=[("py_state", "", "p/.ATTRIBUTES/py_state")]),
    *[Node()] * 195,
]


def outcome(data: bytes) -> int | str:
    """The number of nodes, or the id of the error; anything else is a failure."""
    try:
        return parse_object_graph(data, LIMITS).size
    except CkpttoolError as error:
        return error.id


def test_every_truncation_is_a_clean_error_or_a_shorter_graph() -> None:
    data = graph_bytes(GRAPH)
    seen = {outcome(data[:size]) for size in range(len(data))}
    assert "object-graph-malformed" in seen
    assert all(isinstance(found, str) or found < len(GRAPH) for found in seen)


def test_every_flipped_bit_is_a_clean_error_or_a_graph() -> None:
    data = graph_bytes(GRAPH)
    seen: set[int | str] = set()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            seen.add(outcome(bytes(flipped)))
    assert {found for found in seen if isinstance(found, str)} == {"object-graph-malformed"}


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_clean_error_or_a_graph(data: bytes) -> None:
    found = outcome(data)
    assert isinstance(found, int) or found == "object-graph-malformed"


def test_limits() -> None:
    few = Limits(object_graph_nodes=10)
    assert parse_object_graph(graph_bytes([Node()] * 10), few).size == 10
    for node in (Node(), Node(attributes=[(VARIABLE_VALUE, "w", "k")])):
        with pytest.raises(LimitError, match="more than 10 nodes") as raised:
            parse_object_graph(graph_bytes([node] * 11), few)
        assert raised.value.id == "object-graph-too-large"
    parse_object_graph(graph_bytes([Node([(0, "x")] * 40)]), few)
    for node in (
        Node([(0, "x")] * 41),
        Node([(1, "x")] * 41),
        Node(attributes=[(VARIABLE_VALUE, "w", "k")] * 41),
        Node(slots=[(1, "m", 1)] * 41),
    ):
        with pytest.raises(LimitError, match="more than 40 edges"):
            parse_object_graph(graph_bytes([node, Node()]), few)


def test_a_million_nodes_in_one_chain() -> None:
    count = 1_000_000
    data = chain_bytes(count - 1) + graph_bytes([Node([(0, "back")])])
    start = time.process_time()
    graph = parse_object_graph(data, LIMITS)
    assert time.process_time() - start < 30
    assert graph.size == count
    assert graph.edges[count - 2] == ([count - 1], ("x",))
    assert graph.edges[count - 1] == ([0], ("back",))


def _graph_strings(tensorflow, folder: Path) -> dict[str, bytes]:
    found = {}
    for index in sorted(folder.rglob("*.index")):
        try:
            reader = tensorflow.train.load_checkpoint(str(index.with_suffix("")))
            found[str(index)] = reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
        except Exception:  # noqa: BLE001 - TensorFlow raises plain ones, and they are its affair
            continue
    return found


def _as_tensorflow_reads(message_class, data: bytes) -> list[Node]:
    return [
        Node(
            [(child.node_id, child.local_name) for child in node.children],
            [
                (tensor.name, tensor.full_name, tensor.checkpoint_key)
                for tensor in node.attributes
                if tensor.checkpoint_key
            ],
            [
                (slot.original_variable_node_id, slot.slot_name, slot.slot_variable_node_id)
                for slot in node.slot_variables
            ],
            b"",
        )
        for node in message_class.FromString(data).nodes
    ]


@pytest.mark.parametrize("where", ["corpus", "fixtures_dir"])
def test_real_graphs_as_protobuf_reads_them(where: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(where)
    tensorflow = pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    found = _graph_strings(tensorflow, folder)
    assert len(found) > 3
    for name, data in found.items():
        assert parse(data) == _as_tensorflow_reads(TrackableObjectGraph, data), name


def test_flipped_bits_as_protobuf_reads_them() -> None:
    pytest.importorskip("tensorflow")
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

    data = graph_bytes(GRAPH)
    compared = 0
    for position in range(0, 500, 3):  # the nodes that hold something
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                theirs = _as_tensorflow_reads(TrackableObjectGraph, bytes(flipped))
            except DecodeError:
                continue  # it is stricter about UTF-8
            try:
                assert parse(bytes(flipped)) == theirs, (position, bit)
            except CorruptError as error:
                # We alone refuse edges to nowhere, and groups, which no message has.
                assert "to node" in error.why or "wire type" in error.why, (position, bit)  # noqa: PT017
            else:
                compared += 1
    assert compared > 400
