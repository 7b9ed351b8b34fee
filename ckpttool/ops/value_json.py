"""Values as JSON, exact and streamed: what ``load --json`` and ``load -o x.json`` write.

JSON has no NaN and no infinity: they become null, with their counts beside the values.
Strings are text where all of them are UTF-8, else base64. A complex number is a pair.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from typing import TYPE_CHECKING

from ckpttool.model import numel
from ckpttool.ops.value_text import QUICK, Batch, rows, texts
from ckpttool.sources.selection import index_text

if TYPE_CHECKING:
    from ckpttool.ops.load import Loaded

__all__ = ["array_pieces", "json_pieces"]


def array_pieces(loaded: Loaded, *, values: bool = True) -> Iterator[str]:
    """All items as a JSON array, in pieces."""
    yield "["
    for number in range(len(loaded.items)):
        if number:
            yield ", "
        yield from json_pieces(loaded, number, values=values)
    yield "]"


def json_pieces(loaded: Loaded, number: int, *, values: bool = True) -> Iterator[str]:
    """One variable as a JSON object, in pieces: the ``variables`` of ``load --json``.

    Args:
        loaded: the chosen variables.
        number: which one.
        values: whether to read and write its values; null stands for them otherwise.
    """
    item = loaded.items[number]
    variable = item.variable
    key = variable.key.encode("utf-8", "surrogateescape")
    head: dict[str, object] = {
        "name": _lossy(variable.name.encode("utf-8", "surrogateescape")),
        "key": _lossy(key),
        "dtype": item.dtype,
        "shape": list(item.shape),
        "index": index_text(item.subscript) or None,
    }
    if not variable.key.isascii() and _lossy(key).encode() != key:
        head["key_base64"] = b64encode(key).decode()
    yield dumps(head)[:-1]
    if not values:
        yield ', "values": null, "nan": null, "inf": null, "encoding": null}'
        return
    counts = _Counts()
    encoding = "null"
    yield ', "values": '
    if variable.dtype == "string":
        strings = loaded.strings(number)
        encode = _utf8
        try:
            for value in strings:
                value.decode()
            encoding = '"utf-8"'
        except UnicodeDecodeError:
            encode, encoding = _base64, '"base64"'
        yield from _nested([list(map(encode, strings))], item.shape)
    elif item.dtype in QUICK:
        yield from _nested(map(counts.float_texts, texts(loaded, number)), item.shape)
    else:
        yield from _nested(map(counts.json_texts, loaded.batches(number)), item.shape)
    yield f', "nan": {counts.nan}, "inf": {counts.inf}, "encoding": {encoding}}}'


def _lossy(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _utf8(value: bytes) -> str:
    return dumps(value.decode())


def _base64(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


class _Counts:
    """Makes JSON of numbers, and counts those that JSON does not have."""

    def __init__(self) -> None:
        self.nan = 0
        self.inf = 0

    def json_texts(self, batch: Batch) -> list[str]:
        first = batch[0] if batch else 0
        if isinstance(first, bool):
            return ["true" if value else "false" for value in batch]
        if isinstance(first, complex):
            return [
                f"[{self._finite(repr(value.real))}, {self._finite(repr(value.imag))}]"
                for value in batch
                if isinstance(value, complex)
            ]
        written = list(map(repr, batch))
        return self.float_texts(written) if isinstance(first, float) else written

    def float_texts(self, written: Sequence[str]) -> list[str]:
        """Floats as JSON has them."""
        return [self._finite(text) if "n" in text else text for text in written]

    def _finite(self, text: str) -> str:
        """A float's text; null for NaN and the infinities."""
        if text == "nan":
            self.nan += 1
        elif "inf" in text:
            self.inf += 1
        else:
            return text
        return "null"


def _nested(texts: Iterable[Sequence[str]], shape: tuple[int, ...]) -> Iterator[str]:
    """Elements as nested arrays; without elements one empty array, whatever the shape."""
    if not numel(shape):
        yield "[]"
        return
    if not shape:
        for batch in texts:
            yield from batch
        return
    # Rows in one array of the second-last axis, the third-last, and so on.
    spans = [numel(shape[axis:-1]) for axis in range(len(shape) - 2, -1, -1)]
    parts: list[str] = []
    row = 0
    for cells, begins, ends in rows(texts, shape):
        if not begins:
            parts.append(", ")
        elif row:
            opened = sum(row % span == 0 for span in spans)
            parts.append("]" * opened + ", " + "[" * (opened + 1))
        else:
            parts.append("[" * len(shape))
        parts.append(", ".join(cells))
        if ends:
            parts.append("]")
            row += 1
        if len(parts) > 1000:
            yield "".join(parts)
            parts.clear()
    parts.append("]" * (len(shape) - 1))
    yield "".join(parts)
