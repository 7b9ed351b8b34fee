"""How ``load`` looks: values on a terminal abbreviated, in a pipe and in JSON complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from ckpttool.cli.escape import escape
from ckpttool.cli.fitting import columns_of, flowed
from ckpttool.cli.jsontext import Written
from ckpttool.cli.screen import Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.cli.views.load_file import heading
from ckpttool.errors import ChangedError, CkpttoolError, PartialError
from ckpttool.model import shape_text
from ckpttool.ops.figures.model import Figures
from ckpttool.ops.load import Loaded
from ckpttool.ops.preview import WHOLE_UP_TO, Nested, preview
from ckpttool.ops.summary import summarise
from ckpttool.ops.value_json import array_pieces
from ckpttool.ops.value_text import lines, number_texts, rows, texts

__all__ = ["ValuesView"]

#: A string longer than this is cut on a terminal, unless everything is asked for.
_STRING_SHOWN = 200
#: Variables that cannot be read and are named; the rest are counted.
_FAILURES_SAID = 20
#: Texts up to this long are padded, so that columns line up.
_ALIGNED = 24


class ValuesView(View):
    """The values themselves.

    In a pipe a row is a line (of one dimension: an element), cells tab-separated; of
    several variables each has a line ``# name dtype shape`` before it. Where some of them
    cannot be read, the others are shown, and the exit code is 3; a JSON document is whole
    or an error.
    """

    command = "load"

    def __init__(self, loaded: Loaded, *, full: bool) -> None:
        self._loaded = loaded
        self._full = full
        self._failed: list[CkpttoolError] = []

    @property
    def exit_code(self) -> int:
        return PartialError.exit_code if self._failed else 0

    @property
    def warnings(self) -> Sequence[str]:
        said = list(map(str, self._failed[:_FAILURES_SAID]))
        if len(self._failed) > _FAILURES_SAID:
            said.append(f"{len(self._failed) - _FAILURES_SAID} more variables cannot be read")
        return said

    def data(self) -> Mapping[str, object]:
        return {
            "source": self._loaded.source.location,
            "variables": Written(array_pieces(self._loaded)),
            "output": None,
            "reads": None,
        }

    def plain(self) -> Iterator[str]:
        return self._each(self._plain)

    def _plain(self, number: int) -> Iterator[str]:
        item = self._loaded.items[number]
        pieces = lines(self._texts(number), item.shape, "\t")
        first = next(pieces, "")  # read before anything is said of it
        if len(self._loaded.items) > 1:
            yield from tab_lines([(f"# {item.name}", item.dtype, shape_text(item.shape))])
        yield first
        yield from pieces

    def human(self, screen: Screen) -> Iterator[str]:
        return self._each(lambda number: self._human(screen, number))

    def _each(self, shown: Callable[[int], Iterator[str]]) -> Iterator[str]:
        """All items in turn; one that cannot be read does not keep the others back.

        Raises:
            ChangedError: what follows would be of another checkpoint.
            CkpttoolError: none could be read: the first error.
        """
        count = len(self._loaded.items)
        for number in range(count):
            try:
                yield from shown(number)
            except ChangedError:
                raise
            except CkpttoolError as error:
                self._failed.append(error)
        if self._failed and len(self._failed) == count:
            raise self._failed[0]

    def _human(self, screen: Screen, number: int) -> Iterator[str]:
        item = self._loaded.items[number]
        summary = summarise(self._loaded, number) if item.selection.size > 1 else None
        nested: Nested = []
        full: Iterable[Sequence[str]] = ()
        whole = self._full and item.selection.size > 0
        if whole:
            more = iter(self._texts(number, '"'))
            full = chain([next(more)], more)  # read before anything is said of it
        else:
            nested = preview(self._loaded, number)
        yield "\n" if number > len(self._failed) else ""
        yield heading(screen, item)
        if summary:
            line = flowed(_summary_items(summary), screen.width)
            yield screen.style(line, "dim") + "\n"
        if whole:
            yield from _full(full, item.shape)
            return
        yield _abbreviated(nested, screen.width)
        if item.selection.size > WHOLE_UP_TO:
            hint = f"{item.selection.size} values; --full prints all, -o FILE saves them"
            yield screen.text(screen.style(hint, "dim"), hang=0)
        elif any(isinstance(cell, bytes) and len(cell) > _STRING_SHOWN for cell in _cells(nested)):
            hint = "--full prints the strings whole, -o FILE saves them"
            yield screen.text(screen.style(hint, "dim"), hang=0)

    def _texts(self, number: int, quote: str = "") -> Iterable[Sequence[str]]:
        if self._loaded.items[number].dtype == "string":
            return [[_string_text(value, quote) for value in self._loaded.strings(number)]]
        return texts(self._loaded, number)


def _string_text(value: bytes, quote: str) -> str:
    return quote + escape(value.decode("utf-8", "surrogateescape")) + quote


def _summary_items(summary: Figures) -> list[str]:
    def short(value: float | None) -> str:
        return "-" if value is None else f"{value:.6g}"

    words = []
    if summary.minimum is not None:
        words = [
            f"min {short(summary.minimum)}",
            f"max {short(summary.maximum)}",
            f"mean {short(summary.mean)}",
            f"std {short(summary.std)}",
        ]
    words.append(f"zeros {summary.zeros}")
    words += [f"{word} {n}" for word, n in (("NaN", summary.nan), ("Inf", summary.inf)) if n]
    return words


def _full(texts: Iterable[Sequence[str]], shape: tuple[int, ...]) -> Iterator[str]:
    """All values, a row a line, in brackets."""
    if len(shape) < 2:
        opening, closing = ("[", "]\n") if shape else ("", "\n")
        yield opening
        between = ""
        for batch in texts:
            yield between + "  ".join(batch)
            between = "  " if batch else between
        yield closing
        return
    spans = [1]
    for size in reversed(shape[:-1]):
        spans.append(spans[-1] * size)
    row = 0
    for cells, begins, ends in rows(texts, shape):
        if begins:
            opened = sum(row % span == 0 for span in spans)
            yield " " * (len(shape) - opened) + "[" * opened
        else:
            yield "  "
        yield "  ".join(cells)
        if ends:
            row += 1
            yield "]" * sum(row % span == 0 for span in spans) + "\n"


def _abbreviated(nested: Nested, width: int) -> str:
    """Nested values in brackets, columns aligned, rows folded to the width of the screen."""
    if not isinstance(nested, list):
        return _cell(nested) + "\n"
    widest = max((columns_of(_cell(cell)) for cell in _cells(nested)), default=0)
    return "\n".join(_block(nested, 0, widest if widest <= _ALIGNED else 0, width)) + "\n"


def _cells(nested: Nested) -> Iterator[Nested]:
    """What is in the innermost lists."""
    if isinstance(nested, list):
        yield from chain.from_iterable(map(_cells, nested))
    else:
        yield nested


def _cell(value: Nested) -> str:
    if value is ...:
        return "..."
    if isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape")
        if len(text) > _STRING_SHOWN:
            text = f"{text[:_STRING_SHOWN]}… ({len(value)} bytes)"
        return f'"{escape(text)}"'
    assert not isinstance(value, list), "cells are no lists"
    return number_texts([value])[0]


def _block(nested: list[Nested], depth: int, cell: int, width: int) -> list[str]:
    """The lines of a list: inner lists one after the other, or cells in a row."""
    indent = " " * (depth + 1)
    if not any(isinstance(member, list) for member in nested):
        found = [indent[:-1] + "["]
        for number, member in enumerate(nested, 1):
            text = _cell(member)
            text = " " * (cell - columns_of(text)) + text
            # The last one has the brackets behind it, which may close every level.
            closing = depth + 1 if number == len(nested) else 0
            taken = columns_of(found[-1]) + columns_of(text) + 2 + closing
            if taken > width and not found[-1].endswith("["):
                found.append(indent)
            separated = found[-1] == indent or found[-1].endswith("[")
            found[-1] += text if separated else "  " + text
        found[-1] += "]"
        return found
    found = []
    for member in nested:
        if isinstance(member, list):
            found += _block(member, depth + 1, cell, width)
        else:
            found.append(indent + "...")
    found[0] = indent[:-1] + "[" + found[0][depth + 1 :]
    found[-1] += "]"
    return found
