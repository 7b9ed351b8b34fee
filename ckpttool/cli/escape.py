"""Text that came out of a file, made safe for a terminal and for one line.

A name in a checkpoint may hold anything: terminal sequences, line breaks, bidirectional
overrides that show other text than is there, bytes that are no UTF-8. Everything that is
printed for people, and every field of a tab-separated line, goes through ``escape``.
JSON has its own escapes (``cli/jsontext.py``) and is exact.
"""

from __future__ import annotations

__all__ = ["clip", "escape"]

_LONGEST = 2000

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str) -> str:
    r"""The text with everything that is not printable written as an escape.

    Controls become ``\n``, ``\t``, ``\x1b``; bytes that were not UTF-8 (surrogate
    escapes) ``\xff``; other invisible characters, the bidirectional overrides among
    them, ``\u202e``. A backslash stays as it is, so that a Windows path stays readable:
    where exactness matters, use JSON.
    """
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else _escaped(char) for char in text])


def clip(text: str) -> str:
    """The text, or its ends and its length where it is thousands of characters long.

    For messages: a key of a hostile file may be megabytes.
    """
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return f"{text[:half]} … ({len(text)} characters) … {text[-half:]}"


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return _SHORT.get(char) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
