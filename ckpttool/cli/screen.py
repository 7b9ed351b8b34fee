"""The terminal as a view sees it: its width, colours, tables and tab-separated lines.

A view yields what it wants shown: ready text (with its line breaks) or objects of rich.
Tables and lines are made here, without rich: it takes longer to import than to list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from ckpttool.cli.escape import escape
from ckpttool.policy.words import size as bytes_text

__all__ = ["Column", "Screen", "bytes_text", "tab_lines"]

_BATCH = 500
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        title: over it.
        align: numbers to the right; what is on the left may lose its middle for want of room.
        style: words of ``Screen.style``.
        drop: where there is no room, columns go in this order, 1 first; 0 stays.
        prose: text that may be wrapped at its spaces.
    """

    title: str
    align: Literal["left", "right"] = "left"
    style: str = ""
    drop: int = 0
    prose: bool = False


class Screen(NamedTuple):
    """What a terminal can show: ``width`` in columns, colours, characters past ASCII."""

    width: int
    color: bool
    unicode: bool

    def style(self, text: str, words: str) -> str:
        """Text in a style (``"bold red"``), or unchanged where there are no colours."""
        if not self.color or not words:
            return text
        codes = ";".join(_STYLES[word] for word in words.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterator[str]:
        """Rows of cells, escaped here, as aligned lines that fit into the width.

        Many rows are printed as they come, aligned to the widths of the first ones.
        """
        from ckpttool.cli.table import table_lines

        return table_lines(self, columns, rows)

    def text(self, text: str, hang: int = 2) -> str:
        """A line of ready text (escaped, maybe styled), broken at spaces, with its line break.

        The lines after the first begin with ``hang`` spaces.
        """
        from ckpttool.cli.fitting import wrapped

        return wrapped(text, self.width, hang) + "\n"


def tab_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows of cells as tab-separated lines, escaped, some hundred lines a piece.

    When the rows break off with an error, those before it are given first.
    """
    lines: list[str] = []
    try:
        for row in rows:
            lines.append("\t".join(row if "".join(row).isprintable() else map(escape, row)))
            if len(lines) == _BATCH:
                yield "\n".join(lines) + "\n"
                lines = []
    except Exception:
        if lines:
            yield "\n".join(lines) + "\n"
        raise
    if lines:
        yield "\n".join(lines) + "\n"
