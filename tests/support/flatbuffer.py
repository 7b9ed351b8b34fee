"""FlatBuffers made by hand, of just what a test needs."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple, TypeGuard

__all__ = ["Field", "Tables", "Text", "Vector", "flatbuffer", "tflite"]


class Text(NamedTuple):
    """A text."""

    value: bytes


class Vector(NamedTuple):
    """Numbers, each by struct's letter; bytes by ``B``."""

    format: str
    values: tuple[int, ...] | bytes


class Tables(NamedTuple):
    """A vector of tables."""

    values: tuple[Mapping[int, Field], ...]


#: A number by struct's letter, what a field points to, or a table.
Field = tuple[str, int] | Text | Vector | Tables | Mapping[int, "Field"]


def _is_number(field: Field) -> TypeGuard[tuple[str, int]]:
    return isinstance(field, tuple) and not isinstance(field, Text | Vector | Tables)


class _Writer:
    """Appends; whatever is pointed to lies behind what points to it."""

    def __init__(self, ident: bytes) -> None:
        self.data = bytearray(4) + bytearray(ident)

    def table(self, fields: Mapping[int, Field]) -> int:
        slots = max(fields, default=-1) + 1
        vtable = len(self.data)
        places, body = [0] * slots, bytearray(4)
        for slot, field in sorted(fields.items()):
            number = struct.pack(f"<{field[0]}", field[1]) if _is_number(field) else bytes(4)
            body += bytes(-len(body) % len(number))
            places[slot] = len(body)
            body += number
        self.data += struct.pack(f"<{slots + 2}H", 4 + 2 * slots, len(body), *places)
        self.data += bytes(-len(self.data) % 4)
        start = len(self.data)
        self.data += body
        struct.pack_into("<i", self.data, start, start - vtable)
        for slot, field in sorted(fields.items()):
            if _is_number(field):
                continue
            at = start + places[slot]
            struct.pack_into("<I", self.data, at, self._pointed(field) - at)
        return start

    def _pointed(self, field: Field) -> int:
        if isinstance(field, Mapping):
            return self.table(field)
        self.data += bytes(-len(self.data) % 4)
        start = len(self.data)
        if isinstance(field, Text):
            self.data += struct.pack("<I", len(field.value)) + field.value + b"\0"
        elif isinstance(field, Vector):
            values = field.values
            data = (
                bytes(values)
                if isinstance(values, bytes)
                else struct.pack(f"<{len(values)}{field.format}", *values)
            )
            self.data += struct.pack("<I", len(values)) + data
        else:
            assert isinstance(field, Tables)
            count = len(field.values)
            self.data += struct.pack("<I", count) + bytes(4 * count)
            for i, table in enumerate(field.values):
                at = start + 4 + 4 * i
                struct.pack_into("<I", self.data, at, self.table(table) - at)
        return start


def flatbuffer(root: Mapping[int, Field], ident: bytes = b"TFL3") -> bytes:
    """A file whose root table has these fields, by their numbers in the schema."""
    writer = _Writer(ident)
    struct.pack_into("<I", writer.data, 0, writer.table(root))
    return bytes(writer.data)


def tflite(
    tensors: tuple[Mapping[int, Field], ...] = (),
    buffers: tuple[bytes, ...] = (),
    *,
    operators: tuple[int, ...] = (),
    codes: tuple[Mapping[int, Field], ...] = (),
    graph: Mapping[int, Field] | None = None,
    **more: Field,
) -> bytes:
    """A model of one subgraph; buffer 0 is the empty one, those given follow it.

    ``more`` replaces fields of the root: ``f4=…`` is field 4.
    """
    fields: dict[int, Field] = {
        0: ("I", 3),
        1: Tables(codes),
        2: Tables(
            (
                {
                    0: Tables(tensors),
                    1: Vector("i", ()),
                    2: Vector("i", ()),
                    3: Tables(tuple({0: ("I", index)} for index in operators)),
                    **(graph or {}),
                },
            )
        ),
        4: Tables(({}, *({0: Vector("B", data)} for data in buffers))),
    }
    return flatbuffer(fields | {int(name[1:]): field for name, field in more.items()})
