"""Serialises object graphs from plain Python, as TensorFlow writes them or in odd ways.

Written apart from ckpttool's own parser, so that a test never compares it with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.handmade import varint

__all__ = ["Node", "chain_bytes", "graph_bytes", "message", "variable_key"]


@dataclass
class Node:
    """A node: edges to nodes by name, saved tensors, slots; ``tail`` is added as it is."""

    edges: list[tuple[int, str]] = field(default_factory=list)
    #: Name, full name and key of each.
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    #: The original's node, the slot's name, and the slot's node.
    slots: list[tuple[int, str, int]] = field(default_factory=list)
    tail: bytes = b"\x2a\x02\x08\x01"


def variable_key(path: str) -> str:
    """The key of the variable at an (escaped) object path."""
    return f"{path}/.ATTRIBUTES/VARIABLE_VALUE"


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A protobuf message; like proto3 it leaves out zeros and empty strings (not bytes)."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value) if value else b""
            continue
        data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        if data or isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def graph_bytes(nodes: Sequence[Node]) -> bytes:
    """A ``TrackableObjectGraph`` of these nodes."""
    return b"".join(message((1, _node_bytes(node))) for node in nodes)


def chain_bytes(count: int) -> bytes:
    """The nodes of a chain, each leading to the next by ``x``, in little time."""
    return b"".join(
        [
            b"\x0a\x0a\x0a\x08\x08%c%c%c%c\x12\x01x"
            % (n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14 & 0x7F | 0x80, n >> 21)
            for n in range(1, count + 1)
        ]
    )


def _node_bytes(node: Node) -> bytes:
    edges = [message((1, child), (2, name)) for child, name in node.edges]
    tensors = [message((1, name), (2, full), (3, key)) for name, full, key in node.attributes]
    slots = [message((1, original), (2, name), (3, slot)) for original, name, slot in node.slots]
    fields = [(1, edge) for edge in edges] + [(2, tensor) for tensor in tensors]
    return message(*fields, *((3, slot) for slot in slots)) + node.tail
