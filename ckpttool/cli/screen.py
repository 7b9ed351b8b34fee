"""The terminal as a view sees it: its width, colours, tables and tab-separated lines.

A view yields what it wants shown: ready text (with its line breaks) or objects of rich.
rich is imported by the first thing that needs it, and never for streamed lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from ckpttool.cli.escape import escape

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Column", "Screen", "bytes_text", "tab_lines"]

#: A rich table costs 0.25 ms a row and needs all rows at once; longer ones are streamed.
TABLE_ROWS = 200
_BATCH = 500
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Column(NamedTuple):
    """A column of a table; ``style`` is words of ``Screen.style``."""

    title: str
    align: Literal["left", "right"] = "left"
    style: str = ""


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

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Iterator[object]:
        """Rows of cells, escaped here, as a rich table, or as lines when there are many.

        Many rows are printed as they come, aligned to the widths of the first ones.
        """
        rest = iter(rows)
        head = [[escape(cell) for cell in row] for row in islice(rest, TABLE_ROWS + 1)]
        if len(head) <= TABLE_ROWS:
            yield self._rich_table(columns, head)
            return
        titles = [column.title for column in columns]
        widths = [max(map(len, cells)) for cells in zip(titles, *head, strict=True)]
        line = "  ".join(
            f"{{:{'<' if column.align == 'left' else '>'}{width}}}"
            for column, width in zip(columns, widths, strict=True)
        ).format
        yield self.style(line(*titles).rstrip(), "bold") + "\n"
        lines = chain(head, ([escape(cell) for cell in row] for row in rest))
        while batch := [line(*row).rstrip() for row in islice(lines, _BATCH)]:
            yield "\n".join(batch) + "\n"

    def _rich_table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            table.add_column(
                column.title, justify=column.align, style=column.style, overflow="fold"
            )
        for row in rows:
            table.add_row(*row)
        return table


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


def bytes_text(count: int) -> str:
    """A number of bytes for people, in powers of 1024: ``512 B``, ``1.5 MiB``."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
