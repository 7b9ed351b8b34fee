"""Tables on a terminal: which columns there is room for, how wide each is, and the lines.

Where the width does not do, columns go in the order that they say (``Column.drop``), prose
is wrapped, and only then names lose their middle. Rows are measured on the first few
hundred and printed as they come, so that a million need no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, zip_longest

from ckpttool.cli.escape import escape
from ckpttool.cli.fitting import columns_of, shortened, wrapped
from ckpttool.cli.screen import Column, Screen

__all__ = ["MEASURED", "Layout", "table_lines"]

#: Rows whose cells say how wide the columns are; longer tables are plainer, and quick.
MEASURED = 200
_BATCH = 500
_GAP = "  "
#: Prose is not made narrower than this while another column can go instead.
_PROSE = 24
#: No name is made shorter than this.
_SHORTEST = 8
#: Of the width, what names keep at least while a column can go for it.
_NAMES_SHARE = 0.6


class Layout:
    """The columns of one table on one screen.

    Attributes:
        left_out: that for which there is no room, in words: titles of columns.
    """

    def __init__(
        self, screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]]
    ) -> None:
        self._screen = screen
        self._columns = columns
        self._mark = "…" if screen.unicode else "..."
        cells = [[columns_of(column.title) for column in columns]]
        cells += [list(map(columns_of, row)) for row in rows]
        natural = [max(lengths) for lengths in zip(*cells, strict=True)]
        self._kept = self._chosen(natural, cells)
        self._widths = self._fitted(natural)
        #: Columns whose cells may be wider than they: names cut, prose wrapped.
        self._tight = [number for number in self._kept if self._widths[number] < natural[number]]
        self.left_out = [
            columns[number].title.strip()
            for number in range(len(columns))
            if natural[number] and number not in self._kept and columns[number].title
        ]
        if any(not columns[number].prose for number in self._tight):
            self.left_out.append("whole names")
        # A format takes a cell by its number, so rows need not be cut down to what is kept.
        last = self._kept[-1] if self._kept else 0
        self._format = _GAP.join(
            f"{{{number}}}"
            if number == last and columns[number].align == "left"
            else f"{{{number}:{'<' if columns[number].align == 'left' else '>'}"
            f"{self._widths[number]}}}"
            for number in self._kept
        ).format

    def titles(self) -> str:
        """The line of titles."""
        return self.row([column.title for column in self._columns], ["bold"] * len(self._columns))

    def row(self, cells: Sequence[str], styles: Sequence[str]) -> str:
        """One row as a line, or as several where prose is wrapped; without the line break."""
        shown = {number: self._cell(number, cells[number]) for number in self._kept}
        first = self._kept[0] if self._kept else 0
        if all(len(lines) == 1 for lines in shown.values()):
            excess = self._columns_taken(shown) - self._screen.width
            if excess > 0 and self._columns[first].align == "left":
                # The name of a later row is longer than all that were measured.
                room = max(columns_of(shown[first][0]), self._widths[first]) - excess
                name = shortened(shown[first][0], max(room, _SHORTEST), self._mark)
                return self._line([name, *(shown[n][0] for n in self._kept[1:])], styles, room)
        return "\n".join(
            self._line(line, styles) for line in zip_longest(*shown.values(), fillvalue="")
        )

    def rows(self, batch: Sequence[Sequence[str]]) -> Iterator[str]:
        """Rows without styles, at speed: those with nothing special take one ``format``."""
        lines = [self._format(*row).rstrip() for row in batch]
        plain = [""] * len(self._columns)
        if not self._tight and all(map(str.isascii, lines)):
            width = self._screen.width
            if max(map(len, lines)) <= width:
                return iter(lines)
            return (
                line if len(line) <= width else self.row(row, plain)
                for line, row in zip(lines, batch, strict=True)
            )
        return (self.row(row, plain) for row in batch)

    # -- inside ----------------------------------------------------------------------------

    def _chosen(self, natural: list[int], lengths: list[list[int]]) -> list[int]:
        """The columns for which there is room."""
        columns, width = self._columns, self._screen.width
        kept = [number for number in range(len(columns)) if natural[number]]
        going = sorted((n for n in kept if columns[n].drop), key=lambda n: columns[n].drop)
        choices = [
            [number for number in kept if number not in going[:count]]
            for count in range(len(going) + 1)
        ]
        needs = [
            min(length, _PROSE) if column.prose else length
            for column, length in zip(columns, natural, strict=True)
        ]
        for choice in choices:
            if _total(needs, choice) <= width:
                return choice

        def harm(choice: list[int]) -> tuple[int, float, int]:
            """How many names are cut, how far below what is readable, what has gone."""
            left = [n for n in choice if columns[n].align == "left" and not columns[n].prose]
            if not left:
                return 0, 0.0, len(kept) - len(choice)
            names = max(left, key=needs.__getitem__)
            room = width - _total(needs, choice) + needs[names]
            cut = sum(row[names] > room for row in lengths)
            return cut, max(0.0, _NAMES_SHARE * width - room), len(kept) - len(choice)

        # Nothing makes every name fit. One long name alone does not cost all the columns.
        return min(choices, key=harm)

    def _fitted(self, natural: list[int]) -> list[int]:
        """How wide each column is: prose takes what is left, then the widest gives way."""
        widths = list(natural)
        columns = self._columns
        for prose in (True, False):
            while (excess := _total(widths, self._kept) - self._screen.width) > 0:
                able = [
                    n
                    for n in self._kept
                    if columns[n].align == "left"
                    and columns[n].prose == prose
                    and widths[n] > (_PROSE if prose else _SHORTEST)
                ]
                if not able:
                    break
                *others, widest = sorted(able, key=widths.__getitem__)
                least = widths[others[-1]] if others else 0
                step = max(1, min(excess, widths[widest] - least))
                floor = _PROSE if prose else _SHORTEST
                widths[widest] = max(floor, widths[widest] - step)
        return widths

    def _cell(self, number: int, text: str) -> list[str]:
        """The lines of a cell."""
        if number not in self._tight:
            return [text]
        width = self._widths[number]
        if self._columns[number].prose:
            return wrapped(text, width, 0).split("\n")
        return [shortened(text, width, self._mark)]

    def _columns_taken(self, shown: dict[int, list[str]]) -> int:
        taken = len(_GAP) * (len(shown) - 1)
        for number, (text,) in shown.items():
            length = columns_of(text)
            last = number == self._kept[-1] and self._columns[number].align == "left"
            taken += length if last else max(length, self._widths[number])
        return taken

    def _line(self, cells: Sequence[str], styles: Sequence[str], first: int = -1) -> str:
        """Cells of the columns that are kept, padded (the first to another width) and styled."""
        pieces: list[str] = []
        for number, text in zip(self._kept, cells, strict=True):
            width = first if first >= 0 and not pieces else self._widths[number]
            padding = " " * (width - columns_of(text))
            styled = self._screen.style(text, styles[number]) if text else ""
            right = self._columns[number].align == "right"
            pieces.append(padding + styled if right else styled + padding)
        return _GAP.join(pieces).rstrip()


def table_lines(
    screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]]
) -> Iterator[str]:
    """A table with its titles; what had no room is named below it.

    Up to `MEASURED` rows have the styles of their columns.
    """
    escaped = (list(map(escape, row)) for row in rows)
    head = list(islice(escaped, MEASURED + 1))
    layout = Layout(screen, columns, head)
    if any(column.title for column in columns):
        yield layout.titles() + "\n"
    if len(head) <= MEASURED:
        styles = [column.style for column in columns]
        yield "".join(layout.row(row, styles) + "\n" for row in head)
    else:
        lines = chain(head, escaped)
        while batch := list(islice(lines, _BATCH)):
            yield "\n".join(layout.rows(batch)) + "\n"
    if layout.left_out:
        indent = len(columns[0].title) - len(columns[0].title.lstrip())
        text = f"{'':{indent}}(no room for {', '.join(layout.left_out)})"
        yield screen.text(screen.style(text, "dim"), hang=indent)


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    """What some columns take, with the gaps between them."""
    return sum(widths[number] for number in kept) + len(_GAP) * (len(kept) - 1)
