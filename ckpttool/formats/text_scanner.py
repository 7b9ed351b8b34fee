"""The words of the protobuf text format: names, literals, numbers, comments.

Accepts what protobuf accepts (raw UTF-8 of today and octal escapes of older writers, adjacent
literals, single quotes, comments, optional separators), and also what editors and copies add:
a byte-order mark, CRLF, bytes that are not UTF-8. Knows no message; a reader of one is a
subclass that says how it fails and counts what a text makes it hold.
"""

from __future__ import annotations

import re
from typing import NoReturn

__all__ = ["TextScanner"]

_BOM = b"\xef\xbb\xbf"
# Possessive quantifiers: nothing here may ever backtrack over megabytes.
_BLANK = re.compile(rb"(?:[ \t\r\n\f\v]++|#[^\n]*+)*+")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*+")
_NUMBER = re.compile(rb"[+-]?[0-9A-Za-z.][0-9A-Za-z.+-]*+")
_FLOAT_SUFFIX = re.compile(r".*[0-9.]f|.*inff|.*nanf", re.IGNORECASE)
_OCTAL = re.compile(r"-?0[0-9]")
_LITERAL = {
    b'"': re.compile(rb'"([^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+)"'),
    b"'": re.compile(rb"'([^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+)'"),
}
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL
)
_SIMPLE_ESCAPES = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))


class TextScanner:
    """A cursor over the text."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = len(_BOM) if data.startswith(_BOM) else 0

    def fail(self, why: str) -> NoReturn:
        """Raise the error of this kind of file; see ``line``."""
        raise NotImplementedError

    def count(self) -> None:
        """Told of every literal: two bytes of text can make an object of fifty."""

    @property
    def line(self) -> int:
        """The line that the cursor is on, from 1."""
        return self._data.count(b"\n", 0, self._pos) + 1

    def at_end(self) -> bool:
        """Whether nothing but blanks and comments is left."""
        self._skip_blank()
        return self._pos >= len(self._data)

    def name(self) -> str:
        """The name of a field, which has to follow."""
        self._skip_blank()
        name = _NAME.match(self._data, self._pos)
        if name is None:
            self.fail(f"a field name was expected, not {self.here()}")
        self._pos = name.end()
        return name[0].decode()

    def word(self) -> str:
        """A number, a truth value or the name of an enum's value."""
        self._skip_blank()
        match = _NAME.match(self._data, self._pos) or _NUMBER.match(self._data, self._pos)
        if match is None:
            self.fail(f"a value was expected, not {self.here()}")
        self._pos = match.end()
        return match[0].decode()

    def literal(self) -> bytes:
        """Adjacent string literals, joined."""
        pieces = []
        self._skip_blank()
        while (pattern := _LITERAL.get(self._data[self._pos : self._pos + 1])) is not None:
            literal = pattern.match(self._data, self._pos)
            if literal is None:
                self.fail("the text in quotes does not end on this line")
            self.count()
            piece = literal[1]
            pieces.append(_ESCAPE.sub(self._unescape, piece) if b"\\" in piece else piece)
            self._pos = literal.end()
            self._skip_blank()
        if not pieces:
            self.fail(f"text in quotes was expected, not {self.here()}")
        return b"".join(pieces)

    def number(self) -> float:
        """A floating point number; ``inf``, ``nan`` and a final ``f`` are allowed."""
        self._skip_blank()
        match = _NUMBER.match(self._data, self._pos)
        if match is None:
            self.fail(f"a number was expected, not {self.here()}")
        text = match[0].decode()
        try:
            # C++ also spells a number 1.5f; protobuf takes 017 for an octal one, and refuses it.
            if _OCTAL.match(text):
                raise ValueError
            value = float(text[:-1] if _FLOAT_SUFFIX.fullmatch(text) else text)
        except ValueError:
            self.fail(f"{text[:60]!r} is not a number")
        self.count()
        self._pos = match.end()
        return value

    def take(self, byte: bytes) -> bool:
        """Whether this byte follows; then the cursor is past it."""
        self._skip_blank()
        if self._data[self._pos : self._pos + 1] != byte:
            return False
        self._pos += 1
        return True

    def separator(self) -> None:
        """Skip what may stand between fields."""
        if not self.take(b","):
            self.take(b";")

    def here(self) -> str:
        """What stands at the cursor, for messages."""
        text = self._data[self._pos : self._pos + 12]
        return ascii(text.decode("latin-1")) if text else "the end of the file"

    def quoted(self) -> bool:
        """Whether text in quotes follows."""
        self._skip_blank()
        return self._data[self._pos : self._pos + 1] in _LITERAL

    def _unescape(self, escape: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, other = escape.groups()
        if octal is not None:
            value = int(octal, 8)
            if value > 255:
                self.fail(f"\\{octal.decode()} is more than one byte")
            return bytes((value,))
        if hexadecimal is not None:
            return bytes((int(hexadecimal, 16),))
        if other is None:
            try:
                return chr(int(short or long, 16)).encode("utf-8")
            except ValueError:
                self.fail(f"{escape[0].decode()} is not a character")
        simple = _SIMPLE_ESCAPES.get(other[0])
        if simple is not None:
            return bytes((simple,))
        if other in b"xuU":
            self.fail(f"\\{other.decode()} is not followed by its hexadecimal digits")
        # As protobuf does in Python: an unknown escape stands for itself (C:\models).
        return escape[0]

    def _skip_blank(self) -> None:
        blank = _BLANK.match(self._data, self._pos)
        assert blank is not None  # it matches nothing at all, too
        self._pos = blank.end()
