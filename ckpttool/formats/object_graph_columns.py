"""The bytes of an object graph → columns of its nodes, edges, attributes and slots.

A checkpoint of 100,000 variables has as many nodes, so what TensorFlow itself writes is read
in place, by hand (a generator a message takes three times as long), and any other legal
encoding through ``wire.fields``. Nodes are numbers: there is no object a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats import wire

__all__ = ["VARIABLE_VALUE", "Columns", "Edges", "Slot"]

#: The name of the attribute that holds a variable's value.
VARIABLE_VALUE = "VARIABLE_VALUE"

# Field numbers of TrackableObjectGraph, and of the TrackableObject in it.
_NODES = 1
_CHILDREN, _ATTRIBUTES, _SLOTS = 1, 2, 3

# The tags of those fields as TensorFlow writes them, and the last field of most nodes,
# which only says that something at or below it was saved.
_NODE_TAG = 0x0A
_EDGE_TAG, _ATTRIBUTE_TAG, _SLOT_TAG, _HAS_VALUES_TAG = 0x0A, 0x12, 0x1A, 0x2A
_TAGS = bytes((_EDGE_TAG, _ATTRIBUTE_TAG, _SLOT_TAG, _HAS_VALUES_TAG))
_HAS_VALUES = b"\x2a\x02\x08\x01"

#: How a variable's attribute opens: its name is VARIABLE_VALUE; then the full name's tag.
_VALUE_OPENING = b"\x0a\x0eVARIABLE_VALUE\x12"
_OPENING_SIZE = len(_VALUE_OPENING)
_KEY_TAG = 0x1A
#: Around that: two tags and lengths, and a key of at least one byte.
_SHORTEST_VARIABLE = _OPENING_SIZE + 6


#: Names that are remembered, and sets of them: what is met once only fills the memory.
_REMEMBERED = 2**16


class Slot(NamedTuple):
    """The variable (a node) that ``optimizer`` keeps for the variable ``original``."""

    optimizer: int
    original: int
    name: str
    variable: int


#: The edges of a node, in the order they were saved: where they lead, and their names.
#: (A plain tuple: a named one would take a tenth of the whole time to make.)
Edges = tuple[Sequence[int], tuple[str, ...]]


def _too_large(what: str, limit: int) -> LimitError:
    return LimitError(
        "the object graph is too large",
        why=f"it has more than {limit} {what}",
        hint="if you trust the file, raise the limit: CKPTTOOL_LIMITS=object_graph_nodes=100M",
        id="object-graph-too-large",
    )


class Columns:
    """One pass over the bytes; an ``IndexError`` means that a field runs past them.

    TensorFlow numbers nodes breadth first, so objects and then the variables they lead to
    come in long runs. ``_objects`` and ``_variables`` take such a run, reading in place what
    TensorFlow itself writes, and stop at the first node that is anything else.
    """

    def __init__(self, data: bytes, node_limit: int) -> None:
        self._data = data
        self._node_limit = node_limit
        self._link_limit = 4 * node_limit
        self.size = 0
        self._links = 0
        self.edges: dict[int, Edges] = {}
        self.owners: list[int] = []
        self.full_names: list[str] = []
        self.keys: list[str] = []
        self.attributes: dict[int, str] = {}
        self.slots: list[Slot] = []
        # Names of edges repeat ("kernel"), and so do the names at one node: each is kept once.
        self._labels: dict[bytes, str] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self) -> None:
        """Read all of it; raises ``IndexError`` or `CorruptError` where it is malformed."""
        data = self._data
        end = len(data)
        pos = 0
        while pos < end and data[pos] == _NODE_TAG:
            start = pos
            pos = self._variables(self._objects(pos))
            if pos == start:
                body, pos = self._span(pos, end)
                self._node(body, pos)
        for number, _, value in wire.fields(data, pos, end):
            if number == _NODES and isinstance(value, tuple):
                self._node(*value)
        self._check_references()

    def _variables(self, pos: int) -> int:
        """A run of nodes that are a variable and nothing else; returns where it ends.

        Such a node is two strings that end where their message ends, and a message that
        ends where the node ends (a flag may follow): so no read was outside of the node.
        """
        data = self._data
        end = len(data)
        add_owner = self.owners.append
        add_full_name, add_key = self.full_names.append, self.keys.append
        node = first = self.size
        for node in range(first, self._node_limit):
            if pos >= end or data[pos] != _NODE_TAG:
                break
            size = data[pos + 1]
            body = pos + 2
            if size >= 0x80:
                size = size & 0x7F | data[body] << 7
                body += 1
            stop = body + size
            if size < _SHORTEST_VARIABLE or stop > end:
                break
            at = body + 2
            size = data[at - 1]
            if size >= 0x80:
                size = size & 0x7F | data[at] << 7
                at += 1
            after = at + size
            if data[at : at + _OPENING_SIZE] != _VALUE_OPENING:
                break
            at += _OPENING_SIZE + 1
            size = data[at - 1]
            if size >= 0x80:
                size = size & 0x7F | data[at] << 7
                at += 1
            middle = at + size
            start = middle + 2
            if start >= after:
                break
            size = data[start - 1]
            if size >= 0x80:
                size = size & 0x7F | data[start] << 7
                start += 1
            if (
                start + size != after
                or not size
                or data[middle] != _KEY_TAG
                or data[body] != _ATTRIBUTE_TAG
                or (after != stop and data[after:stop] != _HAS_VALUES)
            ):
                break
            add_owner(node)
            add_full_name(data[at:middle].decode("utf-8", "surrogateescape"))
            add_key(data[start:after].decode("utf-8", "surrogateescape"))
            pos = stop
        else:
            node = self._node_limit
        self.size = node
        return pos

    def _objects(self, pos: int) -> int:
        """A run of nodes that have edges and nothing else; returns where it ends."""
        data = self._data
        end = len(data)
        node = first = self.size
        for node in range(first, self._node_limit):
            if pos >= end or data[pos] != _NODE_TAG:
                break
            size = data[pos + 1]
            body = pos + 2
            if size >= 0x80:
                size, body = wire.read_varint(data, pos + 1, end)
            stop = body + size
            if stop > end:
                break
            ids: list[int] = []
            names: list[str] = []
            at = self._plain_edges(body, stop, ids, names)
            if at != stop and data[at:stop] != _HAS_VALUES:
                break
            if ids:
                self._add_edges(node, ids, names)
            pos = stop
        else:
            node = self._node_limit
        self.size = node
        return pos

    def _plain_edges(self, pos: int, stop: int, ids: list[int], names: list[str]) -> int:
        """A run of edges, each a number and then a short name; returns where it ends."""
        data = self._data
        labels = self._labels
        while pos < stop and data[pos] == _EDGE_TAG:
            size = data[pos + 1]
            after = pos + 2 + size
            if not 3 < size < 0x80 or after > stop:
                break
            at = pos + 4
            child = data[at - 1]
            if child >= 0x80:
                child = child & 0x7F | data[at] << 7
                at += 1
                if child > 0x3FFF:
                    child = child & 0x3FFF | data[at] << 14
                    at += 1
                    if child > 0x1FFFFF:
                        child = child & 0x1FFFFF | data[at] << 21
                        at += 1
            if (
                at + 1 >= after
                or data[pos + 2] != 0x08
                or data[at] != 0x12
                or at + 2 + data[at + 1] != after
                or child > 0xFFFFFFF
            ):
                break
            label = data[at + 2 : after]
            name = labels.get(label)
            if name is None:
                name = label.decode("utf-8", "surrogateescape")
                if len(labels) < _REMEMBERED:
                    labels[label] = name
            ids.append(child)
            names.append(name)
            pos = after
        return pos

    def _add_edges(self, node: int, ids: list[int], names: list[str]) -> None:
        shared = tuple(names)
        if len(self._names) < _REMEMBERED:
            shared = self._names.setdefault(shared, shared)
        self.edges[node] = ids, shared
        self._links += len(ids)
        self._check_links()

    def _check_links(self) -> None:
        if self._links + len(self.slots) + len(self.keys) > self._link_limit:
            raise _too_large("edges, attributes and slots", self._link_limit)

    def _span(self, pos: int, stop: int) -> tuple[int, int]:
        """Where a field with a length, whose tag is at ``pos``, begins and ends."""
        size, body = wire.read_varint(self._data, pos + 1, stop)
        if body + size > stop:
            raise wire.malformed(f"the field at byte {pos} runs past byte {stop}")
        return body, body + size

    def _node(self, pos: int, stop: int) -> None:
        """One ``TrackableObject`` of any shape, in any legal encoding."""
        data = self._data
        node = self.size
        if node >= self._node_limit:
            raise _too_large("nodes", self._node_limit)
        ids: list[int] = []
        names: list[str] = []
        while pos < stop:
            if data[pos] == _EDGE_TAG:
                pos = self._plain_edges(pos, stop, ids, names)
                if pos == stop:
                    break
            tag = data[pos]
            if tag not in _TAGS:
                self._unusual_fields(node, pos, stop, ids, names)
                break
            body, pos = self._span(pos, stop)
            if tag == _EDGE_TAG:
                self._unusual_edge(body, pos, ids, names)
            elif tag == _ATTRIBUTE_TAG:
                self._attribute(node, body, pos)
            elif tag == _SLOT_TAG:
                self._slot(node, body, pos)
        if ids:
            self._add_edges(node, ids, names)
        self.size += 1

    def _attribute(self, node: int, pos: int, stop: int) -> None:
        """One ``SerializedTensor``; one without a key saved nothing and is left out."""
        texts = ["", "", "", ""]
        for number, _, value in wire.fields(self._data, pos, stop):
            if 1 <= number <= 3 and isinstance(value, tuple):
                texts[number] = self._text(value)
        _, name, full_name, key = texts
        if key:
            if name != VARIABLE_VALUE:
                self.attributes[len(self.keys)] = name
            self.owners.append(node)
            self.full_names.append(full_name)
            self.keys.append(key)
            self._check_links()

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
            elif tag == 0x12:
                start, pos = self._span(pos, stop)
                label = data[start:pos]
                name = self._labels.get(label) or self._text((start, pos))
                if len(self._labels) < _REMEMBERED:
                    self._labels[label] = name
            else:
                original, name, variable = self._unusual_slot(pos, stop, original, name, variable)
                break
        self.slots.append(Slot(node, original, name, variable))
        self._check_links()

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

    def _text(self, span: tuple[int, int]) -> str:
        return self._data[span[0] : span[1]].decode("utf-8", "surrogateescape")

    def _check_references(self) -> None:
        """Every edge and slot leads to a node (a negative number reads as a huge one)."""
        count = self.size
        for node, (ids, _) in self.edges.items():
            if max(ids) >= count:
                raise _no_such_node(f"node {node} has an edge", max(ids), count)
        for slot in self.slots:
            worst = max(slot.original, slot.variable)
            if worst >= count:
                raise _no_such_node(f"node {slot.optimizer} has a slot", worst, count)


def _no_such_node(what: str, number: int, count: int) -> CorruptError:
    return wire.malformed(f"{what} to node {wire.signed64(number)}, and there are {count} nodes")
