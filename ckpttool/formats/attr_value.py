"""The attributes of a node: ``map<string, AttrValue>`` → what is asked for, by its type.

Field numbers are those of tensorflow/core/framework/attr_value.proto. Knows which types an
attribute can have; which attribute an op has is not for this module. An attribute that is
absent, or of another type, is None: writers leave out what is at its default.
"""

from __future__ import annotations

import struct
from contextlib import AbstractContextManager

from ckpttool.errors import CorruptError
from ckpttool.formats import wire
from ckpttool.formats.graph_errors import graph_malformed, naming_graph
from ckpttool.formats.long_message import AT_HAND, MessageBytes, fields_of
from ckpttool.formats.tensor_proto import Tensor, base_dtype, read_tensor
from ckpttool.formats.tensor_shape import PartialShape, read_shape

__all__ = ["Attrs", "read_attrs"]

_ATTR = 5  # of NodeDef
_KEY, _VALUE = 1, 2  # of an entry of the map
_ATTR_TAG, _KEY_TAG, _VALUE_TAG = 0x2A, 0x0A, 0x12
_LIST, _BYTES, _INT, _FLOAT, _BOOL, _TYPE, _SHAPE, _TENSOR, _FUNC = 1, 2, 3, 4, 5, 6, 7, 8, 10
_LIST_FUNC = 9  # of AttrValue.ListValue
_FUNC_NAME = 1  # of NameAttrList


def read_attrs(source: MessageBytes, start: int, end: int) -> Attrs:
    """The attributes of the node in ``[start, end)``.

    Raises:
        CorruptError: id ``graph-malformed``.
    """
    if end - start <= AT_HAND:
        # Thousands of nodes are asked for theirs: one read, and one loop over its bytes.
        places = _places_at_hand(source.get(start, end), start)
        if places is not None:
            return Attrs(source, places)
    found: dict[str, tuple[int, int]] = {}
    with naming_graph(source.path, f"an attribute of the node at byte {start}"):
        for number, _, entry in fields_of(source, start, end):
            if number != _ATTR or isinstance(entry, int):
                continue
            key, value = "", (0, 0)
            for inner, _, place in fields_of(source, *entry):
                if isinstance(place, int):
                    continue
                if inner == _VALUE:
                    value = place
                elif inner == _KEY and place[1] - place[0] <= AT_HAND:
                    key = source.get(*place).decode("utf-8", "surrogateescape")
            found[key] = value
    return Attrs(source, found)


def _places_at_hand(data: bytes, base: int) -> dict[str, tuple[int, int]] | None:
    """Where the attributes lie of a node as TensorFlow writes it; None of any other."""
    found: dict[str, tuple[int, int]] = {}
    at, end = 0, len(data)
    try:
        while at < end:
            tag, size = data[at], data[at + 1]
            at += 2
            if size >= 0x80:
                size, at = wire.read_varint(data, at - 1, end)
            if tag & 7 != wire.LENGTH or tag >= 0x80 or at + size > end:
                return None
            if tag == _ATTR_TAG:
                length, value = data[at + 1], at + 2 + data[at + 1]
                if data[at] != _KEY_TAG or data[value] != _VALUE_TAG or length >= 0x80:
                    return None
                extent, start = wire.read_varint(data, value + 1, end)
                if start + extent != at + size:
                    return None
                key = data[at + 2 : value].decode("utf-8", "surrogateescape")
                found[key] = base + start, base + start + extent
            at += size
    except (IndexError, CorruptError):
        return None
    return found


class Attrs:
    """The attributes of one node; every getter raises ``CorruptError`` (``graph-malformed``)."""

    def __init__(self, source: MessageBytes, places: dict[str, tuple[int, int]]) -> None:
        self._source = source
        self._places = places

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def names(self) -> tuple[str, ...]:
        """In the order they are stored."""
        return tuple(self._places)

    def type(self, name: str) -> str | None:
        """A type in TensorFlow's word."""
        value = self._number(name, _TYPE)
        return None if value is None else base_dtype(wire.signed32(value))

    def integer(self, name: str) -> int | None:
        value = self._number(name, _INT)
        return None if value is None else wire.signed64(value)

    def flag(self, name: str) -> bool | None:
        value = self._number(name, _BOOL)
        return None if value is None else value != 0

    def number(self, name: str) -> float | None:
        """A float."""
        value = self._number(name, _FLOAT)
        if value is None:
            return None
        result: float = struct.unpack("<f", (value & 0xFFFFFFFF).to_bytes(4, "little"))[0]
        return result

    def text(self, name: str) -> str | None:
        data = self._bytes(name, _BYTES)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def shape(self, name: str) -> PartialShape:
        """A shape; None also where its rank is not known."""
        data = self._bytes(name, _SHAPE)
        with self._naming(name):
            return None if data is None else read_shape(data)

    def function(self, name: str) -> str | None:
        """The name of a function."""
        data = self._bytes(name, _FUNC)
        return None if data is None else self._function_name(name, data)

    def functions(self, name: str) -> list[str]:
        """The names of a list of functions; empty where there is none."""
        data = self._bytes(name, _LIST) or b""
        found = [
            self._function_name(name, data[value[0] : value[1]])
            for number, value in self._fields(name, data)
            if number == _LIST_FUNC and not isinstance(value, int)
        ]
        return [one for one in found if one is not None]

    def tensor(self, name: str) -> Tensor | None:
        """A tensor, whose elements are not read yet."""
        place = self._place(name, _TENSOR)
        with self._naming(name):
            return None if place is None else read_tensor(self._source, *place)

    def shapes(self, name: str) -> list[PartialShape]:
        """A list of shapes; empty where there is none."""
        data = self._bytes(name, _LIST) or b""
        fields = self._fields(name, data)
        with self._naming(name):
            return [
                read_shape(data, *value)
                for number, value in fields
                if number == _SHAPE and not isinstance(value, int)
            ]

    def types(self, name: str) -> list[str]:
        """A list of types; empty where there is none."""
        data = self._bytes(name, _LIST) or b""
        numbers: list[int] = []
        for number, value in self._fields(name, data):
            if number != _TYPE:
                continue
            if isinstance(value, int):
                numbers.append(value)
                continue
            at, end = value
            with self._naming(name):
                while at < end:
                    one, at = wire.read_varint(data, at, end)
                    numbers.append(one)
        return [base_dtype(wire.signed32(number)) for number in numbers]

    # ----------------------------------------------------------------------------------

    def _function_name(self, name: str, data: bytes) -> str | None:
        names = [
            data[value[0] : value[1]]
            for number, value in self._fields(name, data)
            if number == _FUNC_NAME and not isinstance(value, int)
        ]
        return names[-1].decode("utf-8", "surrogateescape") if names else None

    def _number(self, name: str, kind: int) -> int | None:
        value = self._value(name, kind)
        return value if isinstance(value, int) else None

    def _place(self, name: str, kind: int) -> tuple[int, int] | None:
        value = self._value(name, kind)
        return value if isinstance(value, tuple) else None

    def _bytes(self, name: str, kind: int) -> bytes | None:
        place = self._place(name, kind)
        if place is None:
            return None
        size = place[1] - place[0]
        if size > AT_HAND:
            raise graph_malformed(self._source.path, f"attribute {name[:60]!r} has {size} bytes")
        return self._source.get(*place)

    def _value(self, name: str, kind: int) -> int | tuple[int, int] | None:
        """The last field of a kind, which is the one that counts."""
        found: int | tuple[int, int] | None = None
        place = self._places.get(name)
        if place is None:
            return None
        start, end = place
        with self._naming(name):
            if end - start <= AT_HAND:
                for number, _, value in wire.fields(self._source.get(start, end)):
                    if number == kind:
                        found = value
                if isinstance(found, tuple):
                    return start + found[0], start + found[1]
                return found
            for number, _, value in fields_of(self._source, start, end):
                if number == kind:
                    found = value
        return found

    def _fields(self, name: str, data: bytes) -> list[tuple[int, int | tuple[int, int]]]:
        with self._naming(name):
            return [(number, value) for number, _, value in wire.fields(data)]

    def _naming(self, name: str) -> AbstractContextManager[None]:
        return naming_graph(self._source.path, f"attribute {name[:60]!r}")
