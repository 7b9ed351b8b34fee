"""Values as lines of text, exact and streamed.

Every number is written so that it reads back as the same element: floats as the shortest
decimal of their own width; no digit and no row is left out. JSON is made by
``ops/value_json.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckpttool.formats.elements import Value

__all__ = ["Batch", "lines", "number_texts", "rows"]

Batch = Sequence["Value | bytes"]


def number_texts(batch: Batch) -> list[str]:
    """Numbers and truth values as text that reads back as the same element."""
    if batch and isinstance(batch[0], complex):
        return [_complex_text(value) for value in batch if isinstance(value, complex)]
    return list(map(repr, batch))


def _complex_text(value: complex) -> str:
    """``1.5-2j``: as Python, NumPy and their readers of text take it."""
    return f"{value.real!r}{value.imag:+}j"


def rows(
    texts: Iterable[Sequence[str]], shape: tuple[int, ...]
) -> Iterator[tuple[Sequence[str], bool, bool]]:
    """Texts of elements cut at the ends of rows: ``(texts, begins a row, ends a row)``.

    A row is what lies along the last axis; a long one comes in several pieces.
    """
    width = shape[-1] if shape else 1
    at = 0
    for batch in texts:
        begin = 0
        while begin < len(batch):
            end = min(begin + width - at, len(batch))
            yield batch[begin:end], at == 0, at + end - begin == width
            at = (at + end - begin) % width
            begin = end


def lines(texts: Iterable[Sequence[str]], shape: tuple[int, ...], separator: str) -> Iterator[str]:
    """Elements as lines, in pieces: a row a line; of one dimension, an element a line."""
    if len(shape) < 2:
        for batch in texts:
            if batch:
                yield "\n".join(batch) + "\n"
        return
    parts: list[str] = []
    for row, _, ends in rows(texts, shape):
        parts.append(separator.join(row))
        parts.append("\n" if ends else separator)
        if len(parts) > 1000:
            yield "".join(parts)
            parts.clear()
    yield "".join(parts)
