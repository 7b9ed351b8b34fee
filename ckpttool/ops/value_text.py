"""Values as lines of text, exact and streamed.

Every number is written so that it reads back as the same element: floats as the shortest
decimal of their own width; no digit and no row is left out. JSON is made by
``ops/value_json.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ckpttool.formats.elements import cast, values

if TYPE_CHECKING:
    from ckpttool.formats.elements import Value
    from ckpttool.ops.load import Loaded

__all__ = ["QUICK", "Batch", "lines", "number_texts", "rows", "texts"]

Batch = Sequence["Value | bytes"]

#: Types of which `texts` may be quicker than `number_texts`.
QUICK = frozenset({"float32", "float16", "bfloat16"})
#: How many there have to be: numpy, where it is installed, takes a third of the time, and a
#: tenth of a second to import.
_MANY = 300_000
#: The bits of a float32 that are zero in powers of two.
_FRACTION = 2**23 - 1
#: Bytes of float32 turned into text at once.
_PIECE = 2**18


def texts(loaded: Loaded, number: int) -> Iterator[list[str]]:
    """The elements of item ``number``, which is of numbers, as text, some at a time.

    Raises:
        CkpttoolError: as ``Loaded.chunks``.
    """
    item = loaded.items[number]
    if item.dtype in QUICK and item.selection.size >= _MANY and not _is_confined():
        try:
            yield from _quick_texts(loaded, number)
            return
        except ImportError:
            pass  # raised before anything is read
    yield from map(number_texts, loaded.batches(number))


def _is_confined() -> bool:
    """Whether memory is limited: numpy's libraries may end a process that has too little."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _quick_texts(loaded: Loaded, number: int) -> Iterator[list[str]]:
    """As `number_texts` has it, by numpy as far as the two agree.

    They write the same digits, but for subnormal numbers and powers of two, and the same
    way, but for large numbers and at 1e-4.
    """
    import numpy as np

    dtype = loaded.items[number].dtype
    smallest = np.finfo(np.float32).tiny
    for chunk in loaded.chunks(number):
        wide = cast(chunk, dtype, "float32")
        for at in range(0, len(wide), _PIECE):
            numbers = np.frombuffer(wide[at : at + _PIECE], "<f4")
            found = list(map(str, numbers))
            size = np.abs(numbers)
            agreed = (size > 1.01e-4) & (size < 9e5)
            agreed |= (size >= smallest) & (size < 0.99e-4)
            agreed &= numbers.view("<u4") & _FRACTION != 0
            agreed |= size == 0
            others = np.flatnonzero(~agreed)
            exact = number_texts(values(numbers[others].tobytes(), "float32"))
            for place, text in zip(others.tolist(), exact, strict=True):
                found[place] = text
            yield found


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
