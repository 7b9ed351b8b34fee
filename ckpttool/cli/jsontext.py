"""Values as JSON text that every reader accepts, in pieces when there are many.

Pure ASCII, so neither a terminal nor a locale can be harmed by it. What JSON cannot say
is made sayable: NaN and the infinities are null, a lone surrogate (a byte that was not
UTF-8) is U+FFFD.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

__all__ = ["Written", "dumps", "exact", "lines", "pieces"]

_BATCH = 500

#: `json.dumps` with an option makes an encoder a call, a third of a record's cost.
_encode = json.JSONEncoder(allow_nan=False).encode

# A backslash that is itself escaped, a pair of surrogates (one character), or a lone one.
_SURROGATES = re.compile(
    r"\\\\|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(?P<lone>\\ud[89a-f][0-9a-f]{2})"
)


def dumps(value: object) -> str:
    """One value as JSON on one line."""
    try:
        text = _encode(value)
    except ValueError:
        text = _encode(_finite(value))
    if "\\ud" in text:
        text = _SURROGATES.sub(lambda hit: "\\ufffd" if hit["lone"] else hit[0], text)
    return text


def exact(member: str, text: str) -> dict[str, str]:
    """What goes beside a member that JSON cannot say exactly: its bytes as ``…_base64``.

    Empty for all that is UTF-8.
    """
    if text.isascii() or not any("\udc80" <= char <= "\udcff" for char in text):
        return {}
    from base64 import b64encode

    return {f"{member}_base64": b64encode(text.encode("utf-8", "surrogateescape")).decode()}


def lines(records: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Objects as lines, some hundred a piece; when they break off, those before come first."""
    batch: list[str] = []
    try:
        for record in records:
            batch.append(dumps(record) + "\n")
            if len(batch) == _BATCH:
                yield "".join(batch)
                batch = []
    except Exception:
        yield "".join(batch)
        raise
    yield "".join(batch)


class Written:
    """A member of an object that is JSON text already, in pieces, such as a long array."""

    def __init__(self, text: Iterable[str]) -> None:
        self.text = text


def pieces(data: Mapping[str, object]) -> Iterator[str]:
    """An object as JSON, where a member that is an iterator becomes an array, streamed.

    Text that is ``Written`` already goes through unchanged.
    """
    opening = "{"
    for key, value in data.items():
        yield f"{opening}{dumps(key)}: "
        opening = ", "
        if isinstance(value, Written):
            yield from value.text
        elif isinstance(value, Iterator):
            yield from _array(value)
        else:
            yield dumps(value)
    yield "}" if opening == ", " else "{}"


def _array(items: Iterator[object]) -> Iterator[str]:
    opening = "["
    while batch := list(islice(items, _BATCH)):
        yield opening + dumps(batch)[1:-1]
        opening = ", "
    yield "]" if opening == ", " else "[]"


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return value
