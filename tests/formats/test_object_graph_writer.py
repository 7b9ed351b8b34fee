"""Patched object graphs against protobuf: only what was asked for is different."""

from __future__ import annotations

import random

import pytest

from ckpttool.errors import CorruptError
from ckpttool.formats.object_graph import parse_object_graph
from ckpttool.formats.object_graph_writer import GraphPatch, patch_object_graph
from ckpttool.formats.wire import encode_field
from ckpttool.limits import Limits


@pytest.fixture(scope="module")
def proto():
    pytest.importorskip("tensorflow")
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    return trackable_object_graph_pb2.TrackableObjectGraph


def patched(data: bytes, patch: GraphPatch) -> bytes:
    return patch_object_graph(data, parse_object_graph(data, Limits()), patch)


def example(proto):
    """A root, a model of two variables, an optimizer with a slot, a registered saver."""
    graph = proto()
    root, model, w, b, optimizer, slot, saver = (graph.nodes.add() for _ in range(7))
    for node, edges in (
        (root, {"model": 1, "optimizer": 4, "saver": 6}),
        (model, {"w": 2, "b": 3, "again": 2}),
    ):
        for name, child in edges.items():
            node.children.add(node_id=child, local_name=name)
    for node, key in ((w, "w"), (b, "b"), (slot, "s")):
        node.attributes.add(name="VARIABLE_VALUE", full_name=f"full/{key}", checkpoint_key=key)
    optimizer.slot_variables.add(
        original_variable_node_id=2, slot_name="m", slot_variable_node_id=5
    )
    saver.registered_saver.name = "Mine"
    for node in graph.nodes:
        node.has_checkpoint_values.value = True
    return graph


def test_nothing_asked_for_changes_nothing(proto):
    data = example(proto).SerializeToString()
    assert patched(data, GraphPatch()) == data
    assert not GraphPatch()


def test_a_variable_that_goes_takes_its_edges_and_slots(proto):
    graph = example(proto)
    result = proto.FromString(patched(graph.SerializeToString(), GraphPatch(dropped={"w", "s"})))
    assert [edge.local_name for edge in result.nodes[1].children] == ["b"]
    assert not result.nodes[2].attributes
    assert not result.nodes[4].slot_variables
    values = [node.has_checkpoint_values.value for node in result.nodes]
    assert values == [True, True, False, True, False, False, True]
    assert all(node.HasField("has_checkpoint_values") for node in result.nodes)
    assert result.nodes[3] == graph.nodes[3]
    assert result.nodes[6] == graph.nodes[6]


def test_keys_full_names_and_edges(proto):
    graph = example(proto)
    patch = GraphPatch(
        keys={"w": "a longer key " * 20},
        full_names={"b": "ü/b"},
        edges={(1, "w"): "weight", (0, "saver"): None},
    )
    assert patch
    result = proto.FromString(patched(graph.SerializeToString(), patch))
    expected = proto()
    expected.CopyFrom(graph)
    expected.nodes[2].attributes[0].checkpoint_key = "a longer key " * 20
    expected.nodes[3].attributes[0].full_name = "ü/b"
    expected.nodes[1].children[0].local_name = "weight"
    del expected.nodes[0].children[2]
    assert result == expected


def test_an_absent_full_name_is_added(proto):
    graph = example(proto)
    graph.nodes[2].attributes[0].ClearField("full_name")
    result = proto.FromString(
        patched(graph.SerializeToString(), GraphPatch(full_names={"w": "new"}))
    )
    assert result.nodes[2].attributes[0].full_name == "new"


def test_one_of_two_attributes_keeps_the_node(proto):
    graph = example(proto)
    graph.nodes[2].attributes.add(name="other", checkpoint_key="w2")
    result = proto.FromString(patched(graph.SerializeToString(), GraphPatch(dropped={"w"})))
    assert [one.checkpoint_key for one in result.nodes[2].attributes] == ["w2"]
    assert [edge.local_name for edge in result.nodes[1].children] == ["w", "b", "again"]


def test_unknown_fields_stay(proto):
    graph = example(proto)
    unknown = encode_field(77, b"of a later version") + bytes((0x80 | 0x10, 0x05, 0x01))
    data = graph.SerializeToString() + unknown
    node = graph.nodes[2].SerializeToString() + encode_field(99, b"in a node")
    data = data.replace(encode_field(1, graph.nodes[2].SerializeToString()), encode_field(1, node))
    result = patched(data, GraphPatch(keys={"w": "x"}))
    assert result.endswith(unknown)
    assert encode_field(99, b"in a node") in result
    assert proto.FromString(result).nodes[2].attributes[0].checkpoint_key == "x"


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(proto, seed):
    dice = random.Random(seed)
    graph = proto()
    count = dice.randint(1, 40)
    for number in range(count):
        node = graph.nodes.add()
        for edge in range(dice.randint(0, 4)):
            node.children.add(node_id=dice.randrange(count), local_name=f"e{edge}")
        if dice.random() < 0.6:
            name = dice.choice(["VARIABLE_VALUE", "other"])
            node.attributes.add(name=name, full_name="f", checkpoint_key=f"k{number}")
        if dice.random() < 0.2:
            node.slot_variables.add(
                original_variable_node_id=dice.randrange(count),
                slot_variable_node_id=dice.randrange(count),
                slot_name="m",
            )
    keys = [one.checkpoint_key for node in graph.nodes for one in node.attributes]
    dropped = {key for key in keys if dice.random() < 0.3}
    renamed = {key: f"new{key}" for key in keys if key not in dropped and dice.random() < 0.3}
    edges = {
        (number, edge.local_name): dice.choice(["x", None])
        for number, node in enumerate(graph.nodes)
        for edge in node.children
        if dice.random() < 0.2
    }
    data = graph.SerializeToString()
    result = proto.FromString(patched(data, GraphPatch(dropped=dropped, keys=renamed, edges=edges)))
    gone = {
        number
        for number, node in enumerate(graph.nodes)
        if node.attributes and node.attributes[0].checkpoint_key in dropped
    }
    for number, (old, new) in enumerate(zip(graph.nodes, result.nodes, strict=True)):
        kept = [
            (edge.node_id, edges.get((number, edge.local_name), edge.local_name))
            for edge in old.children
            if edge.node_id not in gone
        ]
        assert [(edge.node_id, edge.local_name) for edge in new.children] == [
            (child, name) for child, name in kept if name is not None
        ]
        assert [one.checkpoint_key for one in new.attributes] == [
            renamed.get(one.checkpoint_key, one.checkpoint_key)
            for one in old.attributes
            if one.checkpoint_key not in dropped
        ]
        assert list(new.slot_variables) == [
            slot
            for slot in old.slot_variables
            if not gone & {slot.original_variable_node_id, slot.slot_variable_node_id}
        ]


def test_a_message_that_is_cut_off_is_an_error(proto):
    data = example(proto).SerializeToString()
    graph = parse_object_graph(data, Limits())
    with pytest.raises(CorruptError):
        patch_object_graph(data[:-1], graph, GraphPatch(keys={"s": "x"}))
