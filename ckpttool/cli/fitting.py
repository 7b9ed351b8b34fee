"""How many columns text takes on a terminal, and text that is made to fit into some.

Knows that a style (an SGR sequence) takes no room, that Chinese, Japanese and Korean
characters take two columns and accents none. Knows no terminal: the width is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["columns_of", "flowed", "shortened", "wrapped"]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
#: The spaces before a word, and the word; a number and its unit are one.
_WORDS = re.compile(r"( *)([^ ]+(?: (?:[KMGT]i)?B\b[^ ]*)?)")


def columns_of(text: str) -> int:
    """Columns that text without styles takes (Unicode UAX 11: wide and fullwidth are two)."""
    if text.isascii():
        return len(text)
    return sum(map(_columns_of_char, text))


def shortened(text: str, columns: int, mark: str = "…") -> str:
    """The text, or its start and its end around ``mark`` where it takes more columns.

    The end is where names differ (``…/kernel/Adam_1``), so it gets the odd column.
    """
    if columns_of(text) <= columns:
        return text
    room = columns - len(mark)
    if room < 2:
        return _start(text, columns)
    end = _start(text[::-1], room - room // 2)[::-1]
    while end and _columns_of_char(end[0]) == 0:
        end = end[1:]  # an accent would sit on the mark
    return _start(text, room // 2) + mark + end


def wrapped(text: str, columns: int, hang: int) -> str:
    """The text, broken at spaces; lines after the first begin with ``hang`` spaces.

    Styles may be in it. A word that is longer than a line (a path) stays whole, so that it
    can be copied: the terminal breaks it. Spaces inside a line stay as they are.
    """
    if columns_of(_STYLE.sub("", text)) <= columns:
        return text
    words = [
        (spaces, word, columns_of(_STYLE.sub("", word))) for spaces, word in _WORDS.findall(text)
    ]
    if hang > columns // 3 or hang + max(needed for _, _, needed in words) > columns:
        hang = min(hang, 2)
    lines: list[str] = []
    line, used = "", 0
    for spaces, word, needed in words:
        fits = used + len(spaces) + needed <= columns
        if fits or not line or hang + needed > columns:
            line += spaces + word
            used += len(spaces) + needed
        else:
            lines.append(line)
            line, used = f"{'':{hang}}{word}", hang + needed
    return "\n".join([*lines, line])


def flowed(items: Iterable[str], columns: int) -> str:
    """Items two spaces apart, in lines that break between items only."""
    lines = [""]
    for item in items:
        if lines[-1] and columns_of(lines[-1]) + 2 + columns_of(item) > columns:
            lines.append("")
        lines[-1] += f"  {item}" if lines[-1] else item
    return "\n".join(lines)


def _start(text: str, columns: int) -> str:
    """As much of the beginning as fits."""
    if text.isascii():
        return text[: max(columns, 0)]
    used = 0
    for place, char in enumerate(text):
        used += _columns_of_char(char)
        if used > columns:
            return text[:place]
    return text


def _columns_of_char(char: str) -> int:
    if char.isascii():
        return 1
    from unicodedata import category, east_asian_width  # only for those who need it

    if category(char) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(char) in {"W", "F"} else 1
