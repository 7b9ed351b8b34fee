"""A computation graph: ``GraphDef`` → nodes with names, ops and inputs, and its functions.

Field numbers are those of tensorflow/core/framework/{graph,node_def,function,op_def,versions}
.proto. A graph of a TF 1.x model has some hundred thousand nodes, so nodes are read in place
and their attributes, which are most of the bytes, only when asked for (``attr_value.py``).
Nothing is followed: cycles and functions that call themselves are plain data here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import LimitError
from ckpttool.formats import wire
from ckpttool.formats.attr_value import Attrs, read_attrs
from ckpttool.formats.graph_errors import graph_malformed, naming_graph
from ckpttool.formats.long_message import MessageBytes, Walked, fields_of, walk
from ckpttool.limits import Limits

__all__ = ["Function", "Graph", "Node", "parse_graph"]

# Fields of GraphDef.
_NODE, _LIBRARY, _VERSION, _VERSIONS = 1, 2, 3, 4
# Fields of VersionDef.
_PRODUCER, _MIN_CONSUMER = 1, 2
# Fields of FunctionDefLibrary, FunctionDef and OpDef.
_FUNCTION = 1
_SIGNATURE, _FUNCTION_NODE = 1, 3
_OP_NAME, _INPUT_ARG, _OUTPUT_ARG = 1, 2, 3

# The tags of a node's fields as they are always written.
_NAME_TAG, _OP_TAG, _INPUT_TAG, _DEVICE_TAG, _ATTR_TAG = 0x0A, 0x12, 0x1A, 0x22, 0x2A
#: Which of them are looked at in a node that is too long to be at hand.
_LONG_NODE = {1: _NAME_TAG, 2: _OP_TAG, 3: _INPUT_TAG, 4: _DEVICE_TAG}
#: Inputs that a node may have on average: it takes two bytes to claim one.
_INPUTS_A_NODE = 8
#: Bytes up to which a node's text is not counted: the number of nodes is bounded as well.
_SHORT = 512


class Node(NamedTuple):
    """One node.

    Attributes:
        name: as stored, with its scopes (``dense/MatMul``).
        op: the operation (``MatMul``).
        inputs: ``node``, ``node:1`` for another output than the first, ``^node`` for one
            that only has to run before.
        device: as stored; often empty.
        start: where its message begins; ``end``: and ends. For ``Graph.attrs``.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    device: str
    start: int
    end: int


#: What ``Node(...)`` does, at half the price; there may be a million.
_new_node = tuple.__new__


class Function(NamedTuple):
    """A function of the library: its nodes name their inputs in a way of their own."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]


class Graph(NamedTuple):
    """A parsed ``GraphDef``.

    Attributes:
        source: its bytes, which attributes are read from.
        nodes: in the order they are stored.
        functions: the library, which TF 2.x keeps nearly everything in.
        producer: the version of the graph's writer; 0 where it says none.
        min_consumer: the oldest reader that it is meant for.
    """

    source: MessageBytes
    nodes: list[Node]
    functions: list[Function]
    producer: int
    min_consumer: int

    def attrs(self, node: Node) -> Attrs:
        """The attributes of one of its nodes, or of a node of its functions.

        Raises:
            CorruptError: id ``graph-malformed``.
        """
        return read_attrs(self.source, node.start, node.end)

    def all_nodes(self) -> Iterator[Node]:
        """The graph's own nodes, then those of its functions."""
        yield from self.nodes
        for function in self.functions:
            yield from function.nodes


def parse_graph(source: MessageBytes, start: int, end: int, limits: Limits) -> Graph:
    """Parse the ``GraphDef`` in ``[start, end)``.

    Raises:
        CorruptError: id ``graph-malformed``.
        LimitError: id ``limit-graph``: more nodes than ``limits.graph_nodes``, more than
            eight times as many inputs, functions and their arguments, or names that have
            more than ``limits.graph_text_bytes``.
    """
    with naming_graph(source.path):
        try:
            return _Parser(source, limits).graph(start, end)
        except IndexError:
            raise graph_malformed(source.path, f"a field runs past the end at byte {end}") from None


class _Parser:
    """One graph; counts what all its parts claim together."""

    def __init__(self, source: MessageBytes, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._nodes_left = limits.graph_nodes
        self._inputs_left = _INPUTS_A_NODE * limits.graph_nodes
        self._text_left = limits.graph_text_bytes
        self._words: dict[bytes, str] = {}

    def graph(self, start: int, end: int) -> Graph:
        nodes: list[Node] = []
        functions: list[Function] = []
        producer = min_consumer = 0
        for field in walk(self._source, start, end):
            number, value, _, base = field
            if isinstance(value, int):
                if number == _VERSION and not producer:
                    producer = wire.signed32(value)
            elif number == _NODE:
                nodes.append(self._node(field))
            elif number == _LIBRARY:
                functions += self._library(base + value[0], base + value[1])
            elif number == _VERSIONS:
                versions = fields_of(self._source, base + value[0], base + value[1])
                for inner, _, version in versions:
                    if isinstance(version, int) and inner == _PRODUCER:
                        producer = wire.signed32(version)
                    elif isinstance(version, int) and inner == _MIN_CONSUMER:
                        min_consumer = wire.signed32(version)
        return Graph(self._source, nodes, functions, producer, min_consumer)

    def _library(self, start: int, end: int) -> Iterator[Function]:
        for number, value, _, base in walk(self._source, start, end):
            if number == _FUNCTION and not isinstance(value, int):
                self._count_inputs(1)
                yield self._function(base + value[0], base + value[1])

    def _function(self, start: int, end: int) -> Function:
        name = ""
        inputs: list[str] = []
        outputs: list[str] = []
        nodes: list[Node] = []
        for field in walk(self._source, start, end):
            number, value, _, base = field
            if isinstance(value, int):
                continue
            if number == _FUNCTION_NODE:
                nodes.append(self._node(field))
            elif number == _SIGNATURE:
                signature = base + value[0], base + value[1]
                for inner, _, where in fields_of(self._source, *signature):
                    if isinstance(where, int):
                        continue
                    if inner == _OP_NAME:
                        name = self._text(*where)
                    elif inner in (_INPUT_ARG, _OUTPUT_ARG):
                        self._count_inputs(1)
                        into = inputs if inner == _INPUT_ARG else outputs
                        into.append(self._argument_name(*where))
        return Function(name, tuple(inputs), tuple(outputs), tuple(nodes))

    def _argument_name(self, start: int, end: int) -> str:
        for number, _, value in fields_of(self._source, start, end):
            if number == _OP_NAME and not isinstance(value, int):
                return self._text(*value)
        return ""

    def _node(self, field: Walked) -> Node:
        """The node that a field holds."""
        _, value, window, base = field
        assert not isinstance(value, int)
        start, end = base + value[0], base + value[1]
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise self._too_many("nodes")
        if window is None:
            name, op, inputs, device = self._long_node(start, end)
        else:
            name, op, inputs, device = self._node_at_hand(window, *value, base)
        if not (name and op):
            raise graph_malformed(
                self._source.path, f"the node at byte {start} has no {'op' if name else 'name'}"
            )
        self._inputs_left -= len(inputs)
        if self._inputs_left < 0:
            raise self._too_many("inputs, functions and arguments", _INPUTS_A_NODE)
        if end - start > _SHORT:
            self._count_text(len(name) + len(device) + sum(map(len, inputs)))
        words = self._words
        fields = (
            name.decode("utf-8", "surrogateescape"),
            words.get(op) or self._word(op),
            inputs,
            (words.get(device) or self._word(device)) if device else "",
            start,
            end,
        )
        return _new_node(Node, fields)

    def _node_at_hand(
        self, data: bytes, at: int, end: int, base: int
    ) -> tuple[bytes, bytes, tuple[str, ...], bytes]:
        """A node's name, op, inputs and device: the loop that takes most of the time."""
        begin = at
        name = op = device = b""
        inputs: list[str] = []
        while at < end:
            tag = data[at]
            size = data[at + 1]
            at += 2
            if size >= 0x80:
                size, at = wire.read_varint(data, at - 1, end)
            stop = at + size
            if tag == _ATTR_TAG:
                pass
            elif tag == _INPUT_TAG:
                inputs.append(data[at:stop].decode("utf-8", "surrogateescape"))
            elif tag == _NAME_TAG:
                name = data[at:stop]
            elif tag == _OP_TAG:
                op = data[at:stop]
            elif tag == _DEVICE_TAG:
                device = data[at:stop]
            elif tag & 7 != wire.LENGTH or tag >= 0x80 or tag < 8:
                # A field that no TensorFlow writes; the general way knows what is legal.
                return self._long_node(base + begin, base + end)
            at = stop
        if at != end:
            raise graph_malformed(
                self._source.path, f"a field of the node at byte {base + begin} runs past its end"
            )
        return name, op, tuple(inputs), device

    def _long_node(self, start: int, end: int) -> tuple[bytes, bytes, tuple[str, ...], bytes]:
        found = {_NAME_TAG: b"", _OP_TAG: b"", _DEVICE_TAG: b""}
        inputs: list[str] = []
        for number, _, value in fields_of(self._source, start, end):
            tag = _LONG_NODE.get(number)
            if tag is None or isinstance(value, int):
                continue
            self._count_text(value[1] - value[0])
            text = self._source.get(*value)
            if tag == _INPUT_TAG:
                inputs.append(_decode(text))
                if len(inputs) > self._inputs_left:
                    raise self._too_many("inputs, functions and arguments", _INPUTS_A_NODE)
            else:
                found[tag] = text
        return found[_NAME_TAG], found[_OP_TAG], tuple(inputs), found[_DEVICE_TAG]

    def _count_inputs(self, count: int) -> None:
        self._inputs_left -= count
        if self._inputs_left < 0:
            raise self._too_many("inputs, functions and arguments", _INPUTS_A_NODE)

    def _count_text(self, size: int) -> None:
        self._text_left -= size
        if self._text_left < 0:
            limit = self._limits.graph_text_bytes
            raise LimitError(
                f"{self._source.path} has too large a graph",
                why=f"its names have more than {limit} bytes (the limit graph_text_bytes)",
                hint=f"raise it with CKPTTOOL_LIMITS=graph_text_bytes={4 * limit}",
                id="limit-graph",
            )

    def _too_many(self, what: str, a_node: int = 1) -> LimitError:
        limit = self._limits.graph_nodes
        return LimitError(
            f"{self._source.path} has too large a graph",
            why=f"it has more than {a_node * limit} {what} (the limit graph_nodes is {limit})",
            hint=f"raise it with CKPTTOOL_LIMITS=graph_nodes={4 * limit}",
            id="limit-graph",
        )

    def _text(self, start: int, end: int) -> str:
        self._count_text(end - start)
        return _decode(self._source.get(start, end))

    def _word(self, data: bytes) -> str:
        """Text of which there are few: ops and devices, kept once each."""
        word = self._words.get(data)
        if word is None:
            word = self._words[data] = _decode(data)
        return word


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
