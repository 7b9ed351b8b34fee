"""The object graph of an object-based checkpoint: bytes → nodes, edges, attributes, slots.

The string under ``_CHECKPOINTABLE_OBJECT_GRAPH`` is a ``TrackableObjectGraph``
(tensorflow/core/protobuf/trackable_object_graph.proto). A checkpoint of 100,000 variables
has as many nodes, so what TensorFlow itself writes is read in place, by hand (a generator
a message takes three times as long), and any other legal encoding through ``wire.fields``.
Nodes are numbers and edges are columns: there is no object a node.

Knows the message; what a node *means* (model, optimizer, step) is not for this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats import wire
from ckpttool.limits import Limits

__all__ = [
    "OBJECT_GRAPH_KEY",
    "VARIABLE_VALUE",
    "ObjectGraph",
    "Slot",
    "parse_object_graph",
]

#: The key of the graph in a checkpoint (tensorflow/python/trackable/base.py).
OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"

#: The name of the attribute that holds a variable's value.
VARIABLE_VALUE = "VARIABLE_VALUE"

# Field numbers of TrackableObjectGraph, and of the TrackableObject in it.
_NODES = 1
_CHILDREN, _ATTRIBUTES, _SLOTS = 1, 2, 3

# The tags of a node's fields as TensorFlow writes them. The last one only says whether
# anything at or below the node was saved.
_EDGE_TAG, _ATTRIBUTE_TAG, _SLOT_TAG, _HAS_VALUES_TAG = 0x0A, 0x12, 0x1A, 0x2A
_NODE_TAGS = bytes((_EDGE_TAG, _ATTRIBUTE_TAG, _SLOT_TAG, _HAS_VALUES_TAG))

#: How a variable's attribute opens: its name is VARIABLE_VALUE; then the full name's tag.
_VALUE_OPENING = b"\x0a\x0eVARIABLE_VALUE\x12"
_VALUE_OPENING_SIZE = len(_VALUE_OPENING)
_KEY_TAG = 0x1A

_NOTHING: tuple[()] = ()


class Slot(NamedTuple):
    """The variable (a node) that ``optimizer`` keeps for the variable ``original``."""

    optimizer: int
    original: int
    name: str
    variable: int


@dataclass(frozen=True, slots=True)
class ObjectGraph:
    """Nodes are numbered from 0, the root; every number in it is a node that exists.

    Attributes:
        child_ids: for each node, where its edges lead, in the order they were saved.
        child_names: for each node, the local names of those edges, in the same order.
        owners: for each saved tensor, in node order, the node that saved it.
        attributes: the name of the tensor in that node: ``VARIABLE_VALUE`` for a variable.
        full_names: the variable's own name in the program that wrote it; may be empty.
        keys: the tensor's key in the checkpoint.
        slots: every slot variable, in node order.
    """

    child_ids: list[Sequence[int]]
    child_names: list[Sequence[str]]
    owners: list[int]
    attributes: list[str]
    full_names: list[str]
    keys: list[str]
    slots: list[Slot]

    def __len__(self) -> int:
        return len(self.child_ids)


def parse_object_graph(data: bytes, limits: Limits) -> ObjectGraph:
    """Parse a serialised ``TrackableObjectGraph``.

    Time and memory are linear in ``data``; cycles and shared nodes are legal and kept.

    Raises:
        CorruptError: id ``object-graph-malformed``: no such message, or an edge to a node
            that does not exist.
        LimitError: id ``object-graph-too-large``: more nodes than
            ``limits.object_graph_nodes``, or more than four times as many edges,
            attributes and slots together.
    """
    try:
        return _Parser(data, limits.object_graph_nodes).run()
    except IndexError:
        raise _malformed(f"a field runs past the end at byte {len(data)}") from None
    except CorruptError as error:
        raise _malformed(error.why) from None


def _malformed(why: str) -> CorruptError:
    return CorruptError(
        "the object graph is malformed",
        why=why,
        hint="the variables can still be used by their keys: add --names key",
        id="object-graph-malformed",
    )


def _too_large(what: str, limit: int) -> LimitError:
    return LimitError(
        "the object graph is too large",
        why=f"it has more than {limit} {what}",
        hint="if you trust the file, raise the limit: CKPTTOOL_LIMITS=object_graph_nodes=100M",
        id="object-graph-too-large",
    )


class _Parser:
    """One pass over the bytes; an ``IndexError`` means that a field runs past them."""

    def __init__(self, data: bytes, node_limit: int) -> None:
        self._data = data
        self._node_limit = node_limit
        self._link_limit = 4 * node_limit
        self._edges = 0
        self._graph = ObjectGraph([], [], [], [], [], [], [])
        self._labels: dict[bytes, str] = {}

    def run(self) -> ObjectGraph:
        """Parse every node.

        A node that is a variable and nothing else is read in place, lengths of up to 14
        bits included; anything else is left to `_node`. Such a node is two strings that
        end where their message ends, and a message that ends (a flag of two or four bytes
        may follow) where the node ends; so no read of an accepted node was outside it.
        """
        data = self._data
        end = len(data)
        node_limit = self._node_limit
        graph = self._graph
        add_ids, add_names = graph.child_ids.append, graph.child_names.append
        add_owner, add_attribute = graph.owners.append, graph.attributes.append
        add_full_name, add_key = graph.full_names.append, graph.keys.append
        node = pos = 0
        while pos < end and data[pos] == _NODES << 3 | wire.LENGTH:
            size = data[pos + 1]
            body = pos + 2
            if size >= 0x80:
                size = size & 0x7F | data[body] << 7
                body += 1
                if size > 0x3FFF:
                    size, body = wire.read_varint(data, pos + 1, end)
            stop = body + size
            if stop > end:
                raise wire.malformed(f"node {node} at byte {pos} runs past the end at byte {end}")
            pos = stop
            if node >= node_limit:
                raise _too_large("nodes", node_limit)
            if size > 20 and data[body] == _ATTRIBUTE_TAG:
                at = body + 2
                size = data[at - 1]
                if size >= 0x80:
                    size = size & 0x7F | data[at] << 7
                    at += 1
                after = at + size
                if data.startswith(_VALUE_OPENING, at):
                    at += _VALUE_OPENING_SIZE + 1
                    size = data[at - 1]
                    if size >= 0x80:
                        size = size & 0x7F | data[at] << 7
                        at += 1
                    middle = at + size
                    if middle + 2 < after and data[middle] == _KEY_TAG:
                        start = middle + 2
                        size = data[start - 1]
                        if size >= 0x80:
                            size = size & 0x7F | data[start] << 7
                            start += 1
                        if start + size == after and (
                            after == stop
                            or (
                                data[after] == _HAS_VALUES_TAG
                                and after + 2 + data[after + 1] == stop
                            )
                        ):
                            add_ids(_NOTHING)
                            add_names(_NOTHING)
                            add_owner(node)
                            add_attribute(VARIABLE_VALUE)
                            add_full_name(data[at:middle].decode("utf-8", "surrogateescape"))
                            add_key(data[start:after].decode("utf-8", "surrogateescape"))
                            node += 1
                            continue
            self._node(node, body, stop)
            node += 1
        for number, _, value in wire.fields(data, pos, end):
            if number == _NODES and isinstance(value, tuple):
                self._node(node, *value)
                node += 1
        self._check_references()
        return graph

    def _node(self, node: int, pos: int, stop: int) -> None:
        """One ``TrackableObject`` of any shape; its edges are read in place."""
        data = self._data
        labels = self._labels
        ids: list[int] = []
        names: list[str] = []
        while pos < stop:
            tag = data[pos]
            if tag not in _NODE_TAGS:
                self._unusual_fields(node, pos, stop, ids, names)
                break
            size = data[pos + 1]
            body = pos + 2
            if size >= 0x80:
                size, body = wire.read_varint(data, pos + 1, stop)
            pos = body + size
            if pos > stop:
                raise wire.malformed(f"a field of node {node} runs past its end at byte {stop}")
            if tag == _EDGE_TAG and size > 3:
                child = data[body + 1]
                at = body + 2
                if child >= 0x80:
                    child = child & 0x7F | data[at] << 7
                    at += 1
                    if child > 0x3FFF:
                        child = child & 0x3FFF | data[at] << 14
                        at += 1
                        if child > 0x1FFFFF:
                            child, at = wire.read_varint(data, body + 1, stop)
                if (
                    at + 1 < pos
                    and data[body] == 0x08
                    and data[at] == 0x12
                    and at + 2 + data[at + 1] == pos
                ):
                    label = data[at + 2 : pos]
                    name = labels.get(label)
                    if name is None:
                        name = labels[label] = label.decode("utf-8", "surrogateescape")
                    ids.append(child)
                    names.append(name)
                else:
                    self._unusual_edge(body, pos, ids, names)
            elif tag == _EDGE_TAG:
                self._unusual_edge(body, pos, ids, names)
            elif tag == _ATTRIBUTE_TAG:
                self._attribute(node, body, pos)
            elif tag == _SLOT_TAG:
                self._slot(node, body, pos)
        graph = self._graph
        graph.child_ids.append(ids or _NOTHING)
        graph.child_names.append(names or _NOTHING)
        self._edges += len(ids)
        if node >= self._node_limit:
            raise _too_large("nodes", self._node_limit)
        if self._edges + len(graph.owners) + len(graph.slots) > self._link_limit:
            raise _too_large("edges, attributes and slots", self._link_limit)

    def _attribute(self, node: int, pos: int, stop: int) -> None:
        """One ``SerializedTensor``; one without a key saved nothing and is left out."""
        texts = ["", "", "", ""]
        for number, _, value in wire.fields(self._data, pos, stop):
            if 1 <= number <= 3 and isinstance(value, tuple):
                texts[number] = self._text(value)
        if texts[3]:
            graph = self._graph
            graph.owners.append(node)
            graph.attributes.append(texts[1])
            graph.full_names.append(texts[2])
            graph.keys.append(texts[3])

    def _slot(self, node: int, pos: int, stop: int) -> None:
        """One ``SlotVariableReference``: the original's number, a name, the slot's number."""
        data = self._data
        original = variable = 0
        name = ""
        while pos < stop:
            tag = data[pos]
            if tag == 0x08:
                original, pos = wire.read_varint(data, pos + 1, stop)
            elif tag == 0x18:
                variable, pos = wire.read_varint(data, pos + 1, stop)
            elif tag == 0x12 and data[pos + 1] < 0x80:
                start = pos + 2
                pos = start + data[start - 1]
                if pos > stop:
                    raise wire.malformed(f"a slot's name runs past its end at byte {stop}")
                name = self._label(data[start:pos])
            else:
                original, name, variable = self._unusual_slot(pos, stop, original, name, variable)
                break
        self._graph.slots.append(Slot(node, original, name, variable))

    def _unusual_fields(
        self, node: int, pos: int, stop: int, ids: list[int], names: list[str]
    ) -> None:
        """The rest of a node's fields, in any legal encoding."""
        for number, _, value in wire.fields(self._data, pos, stop):
            if isinstance(value, tuple):
                if number == _CHILDREN:
                    self._unusual_edge(*value, ids, names)
                elif number == _ATTRIBUTES:
                    self._attribute(node, *value)
                elif number == _SLOTS:
                    self._slot(node, *value)

    def _unusual_slot(
        self, pos: int, stop: int, original: int, name: str, variable: int
    ) -> tuple[int, str, int]:
        """The rest of a slot's fields, in any legal encoding."""
        for number, _, value in wire.fields(self._data, pos, stop):
            if isinstance(value, tuple):
                if number == 2:
                    name = self._text(value)
            elif number == 1:
                original = value
            elif number == 3:
                variable = value
        return original, name, variable

    def _unusual_edge(self, pos: int, stop: int, ids: list[int], names: list[str]) -> None:
        """One ``ObjectReference`` in any legal encoding: to node 0, or with a long name."""
        child = 0
        name = ""
        for number, _, value in wire.fields(self._data, pos, stop):
            if isinstance(value, tuple):
                if number == 2:
                    name = self._text(value)
            elif number == 1:
                child = value
        ids.append(child)
        names.append(name)

    def _label(self, label: bytes) -> str:
        """A local name; they repeat ("kernel", "0", "m"), so each is decoded and kept once."""
        name = self._labels.get(label)
        if name is None:
            name = self._labels[label] = label.decode("utf-8", "surrogateescape")
        return name

    def _text(self, span: tuple[int, int]) -> str:
        return self._data[span[0] : span[1]].decode("utf-8", "surrogateescape")

    def _check_references(self) -> None:
        """Every edge and slot leads to a node (a negative number reads as a huge one)."""
        count = len(self._graph)
        for node, ids in enumerate(self._graph.child_ids):
            if ids and max(ids) >= count:
                raise _no_such_node(f"node {node} has an edge", max(ids), count)
        for slot in self._graph.slots:
            worst = max(slot.original, slot.variable)
            if worst >= count:
                raise _no_such_node(f"node {slot.optimizer} has a slot", worst, count)


def _no_such_node(what: str, number: int, count: int) -> CorruptError:
    return wire.malformed(f"{what} to node {wire.signed64(number)}, and there are {count} nodes")
