"""Graphs as text (``.pbtxt``) → the bytes that their binary form has.

One pass over the text turns it into protobuf's wire format by the tables of
``graph_schema.py``, so that everything else knows one form. Nesting is a list, not calls;
the result is never larger than the text.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple, NoReturn

from ckpttool.errors import LimitError
from ckpttool.formats.graph_errors import graph_malformed
from ckpttool.formats.graph_schema import ENUMS, MESSAGES
from ckpttool.formats.text_scanner import TextScanner
from ckpttool.formats.wire import FIXED32, FIXED64, LENGTH, VARINT, encode_varint
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["GraphMessage", "encode_text", "read_text"]

GraphMessage = Literal["GraphDef", "MetaGraphDef", "SavedModel"]

#: As deep as protobuf reads messages (coded_stream.h: default_recursion_limit_).
_MAX_DEPTH = 100
_TRUE = {"true", "True", "t", "1"}
_FALSE = {"false", "False", "f", "0"}
_CLOSING = {b"{": b"}", b"<": b">"}


def read_text(file: ReadableFile, limits: Limits) -> tuple[GraphMessage, bytes]:
    """As `encode_text`, of a whole file.

    Raises:
        LimitError: id ``limit-graph``: it has more than ``limits.graph_file_bytes``.
    """
    size = file.stat.size
    if size > limits.graph_file_bytes:
        raise LimitError(
            f"{file.path} is too large for a graph as text",
            why=f"it has {size} bytes, and the limit graph_file_bytes is {limits.graph_file_bytes}",
            hint=f"set CKPTTOOL_LIMITS=graph_file_bytes={size}, or save it in binary form",
            id="limit-graph",
        )
    return encode_text(file.pread(0, size), file.path)


def encode_text(text: bytes, path: str) -> tuple[GraphMessage, bytes]:
    """Which message a text is, and its binary form.

    Fields that no table has are skipped. ``path`` is for messages.

    Raises:
        CorruptError: id ``graph-malformed``, with the line.
    """
    return _Encoder(text, path).run()


class _Frame(NamedTuple):
    """A message that is being read.

    ``message`` is None where it is skipped; ``number`` is its field in the one around it,
    and ``closing`` the byte that ends it.
    """

    message: str | None
    number: int
    closing: bytes
    out: bytearray


class _List(NamedTuple):
    """A list ``[…]`` of values of one field."""

    number: int
    type: str | None


class _Encoder(TextScanner):
    def __init__(self, text: bytes, path: str) -> None:
        super().__init__(text)
        self._path = path
        self._stack: list[_Frame | _List] = []

    def fail(self, why: str) -> NoReturn:
        raise graph_malformed(self._path, f"line {self.line}: {why}")

    def run(self) -> tuple[GraphMessage, bytes]:
        root = self._root()
        out = bytearray()
        self._stack.append(_Frame(root, 0, b"", out))
        while self._stack:
            top = self._stack[-1]
            if isinstance(top, _List):
                self._element(top)
            elif top.closing and self.take(top.closing):
                self._close(top)
            elif self.at_end():
                if top.closing:
                    self.fail(f"the file ends inside {top.message or 'a message'}")
                self._stack.pop()
            else:
                self._field(top)
        return root, bytes(out)

    def _root(self) -> GraphMessage:
        """Which message it is, by its first field."""
        if self.at_end():
            return "GraphDef"  # an empty one
        start = self._pos
        name = self.name()
        self._pos = start
        roots: tuple[GraphMessage, ...] = ("GraphDef", "MetaGraphDef", "SavedModel")
        root = next((root for root in roots if name in MESSAGES[root]), None)
        if root is None:
            self.fail(f"{name[:60]!r} is no field of a GraphDef, MetaGraphDef or SavedModel")
        return root

    def _field(self, frame: _Frame) -> None:
        """A field's name, and its value or the beginning of it."""
        if self.take(b"["):
            number, kind = self._extension(frame)
        else:
            table = MESSAGES[frame.message] if frame.message else {}
            number, kind = table.get(self.name(), (0, None))
        colon = self.take(b":")
        if colon and self.take(b"["):
            self._push(_List(number, kind))
        elif not self._open(number, kind):
            if not colon:
                self.fail(f"a colon or {{ was expected, not {self.here()}")
            self._scalar(frame.out, number, kind)
            self.separator()

    def _extension(self, frame: _Frame) -> tuple[int, str | None]:
        """``[domain/tensorflow.X] {…}``: the message in an ``Any``."""
        start = self._pos
        end = self._data.find(b"]", start, start + 1000)
        if end < 0:
            self.fail("a name in brackets does not end")
        self._pos = end + 1
        url = self._data[start:end].strip()
        name = url.rpartition(b".")[2].decode("latin-1")
        if frame.message != "Any" or name not in MESSAGES:
            return 0, None
        _put(frame.out, MESSAGES["Any"]["type_url"][0], url)
        return MESSAGES["Any"]["value"][0], name

    def _element(self, top: _List) -> None:
        """One element of a list, or its end."""
        if self.take(b"]"):
            self._stack.pop()
            self.separator()
        elif not self._open(top.number, top.type):
            frame = self._frame()
            self._scalar(frame.out, top.number, top.type)
            if not self.take(b",") and self._data[self._pos : self._pos + 1] != b"]":
                self.fail(f"a comma or ] was expected, not {self.here()}")

    def _frame(self) -> _Frame:
        """The message that a list is in."""
        for frame in reversed(self._stack):
            if isinstance(frame, _Frame):
                return frame
        raise AssertionError("the root is a message")

    def _open(self, number: int, kind: str | None) -> bool:
        """Whether a message begins here, which then is on the stack."""
        for opening, closing in _CLOSING.items():
            if self.take(opening):
                if kind is not None and kind not in MESSAGES:
                    self.fail(f"a value was expected, not {opening.decode()}")
                self._push(_Frame(kind, number, closing, bytearray()))
                return True
        return False

    def _push(self, frame: _Frame | _List) -> None:
        if len(self._stack) > _MAX_DEPTH:
            self.fail(f"messages are nested more than {_MAX_DEPTH} deep")
        self._stack.append(frame)

    def _close(self, frame: _Frame) -> None:
        self._stack.pop()
        if frame.number:
            _put(self._frame().out, frame.number, frame.out)
        self.separator()

    def _scalar(self, out: bytearray, number: int, kind: str | None) -> None:
        if kind == "bytes":
            _put(out, number, self.literal())
        elif kind is None:
            if self.quoted():
                self.literal()
            else:
                self.word()
        elif kind in ("float", "double"):
            value = self.number()
            if kind == "double":
                out += encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)
            else:
                out += encode_varint(number << 3 | FIXED32) + _float32(value)
        elif kind in MESSAGES:
            self.fail(f"{{ was expected, not {self.here()}")
        else:
            value = self._integer(self.word(), kind)
            out += encode_varint(number << 3 | VARINT) + encode_varint(value & 2**64 - 1)

    def _integer(self, word: str, kind: str) -> int:
        """An integer, a truth value, or a value of an enum by its name or number."""
        if kind == "bool" and word in _TRUE | _FALSE:
            return word in _TRUE
        value = ENUMS.get(kind, {}).get(word)
        if value is not None:
            return value
        digits = word.lstrip("+-")
        try:
            octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
            value = int(word, 8 if octal else 0)
        except ValueError:
            self.fail(f"{word[:60]!r} is no {kind}")
        if not -(2**63) <= value < 2**64:
            self.fail(f"{word[:60]} has more than 64 bits")
        return value


def _put(out: bytearray, number: int, contents: bytes | bytearray) -> None:
    out += encode_varint(number << 3 | LENGTH)
    out += encode_varint(len(contents))
    out += contents


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))
