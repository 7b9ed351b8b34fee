"""Graphs for tests, without TensorFlow: as text, as bytes, as parsed objects.

Graphs are written in the text format, with `node()` for the common case.
"""

from __future__ import annotations

from pathlib import Path

from ckpttool.formats.graph_file import GraphFile, read_graph_file
from ckpttool.formats.graph_text import encode_text
from ckpttool.formats.graphdef import Graph, parse_graph
from ckpttool.formats.long_message import MemoryBytes
from ckpttool.limits import Limits
from ckpttool.storage import open_directory

__all__ = ["binary", "field", "graph_of", "node", "placeholder", "read_file", "varint"]


def node(name: str, op: str, *inputs: str, device: str = "", **attrs: str) -> str:
    """A node as text; an attribute is the text of its value: ``T="type: DT_FLOAT"``."""
    parts = [f'name: "{name}"', f'op: "{op}"']
    parts += [f'input: "{text}"' for text in inputs]
    if device:
        parts.append(f'device: "{device}"')
    parts += [f'attr {{ key: "{key}" value {{ {value} }} }}' for key, value in attrs.items()]
    return f"node {{ {' '.join(parts)} }}\n"


def placeholder(name: str, dtype: str = "DT_FLOAT", shape: str = "unknown_rank: true") -> str:
    """A placeholder as text."""
    return node(name, "Placeholder", dtype=f"type: {dtype}", shape=f"shape {{ {shape} }}")


def graph_of(*parts: str, producer: int = 27, limits: Limits | None = None) -> Graph:
    """The parsed graph whose text the parts are."""
    data = binary("".join(parts) + f"versions {{ producer: {producer} }}")
    return parse_graph(MemoryBytes(data, "graph.pb"), 0, len(data), limits or Limits())


def binary(text: str) -> bytes:
    """The binary form of a graph as text."""
    return encode_text(text.encode(), "graph.pbtxt")[1]


def read_file(path: Path, limits: Limits | None = None) -> GraphFile:
    """What a graph file holds; it stays open as long as the result is used."""
    return read_graph_file(open_directory(str(path.parent)).open(path.name), limits or Limits())


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, contents: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(contents)) + contents
