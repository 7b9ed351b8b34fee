"""JSON out of a file that nobody vouches for: strict, bounded, and each key once.

Knows JSON, and nothing of what it says.
"""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn

from ckpttool.errors import CkpttoolError, CorruptError

__all__ = ["holds_half_characters", "json_malformed", "parse_json"]

#: An escape that may be half a character: a surrogate, which stands alone in no UTF-8.
_MAYBE_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(data: bytes, what: str) -> object:
    """The value of a JSON text; the caller has bounded its length.

    Args:
        data: the text, UTF-8.
        what: whose it is, for messages.

    Raises:
        CorruptError: id ``json-malformed``: also for NaN, a number past all bounds, a key
            that is there twice, half a character (a lone surrogate), and nesting deeper
            than Python's own limit.
    """
    try:
        text = data.decode("utf-8")
        found = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise json_malformed(what, f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise json_malformed(what, "it is nested too deeply") from None
    except ValueError as error:  # json.JSONDecodeError, our own, and numbers past any bound
        raise json_malformed(what, str(error)) from None
    if holds_half_characters(text, found):
        raise json_malformed(what, "a text of it has half a character, which is no UTF-8")
    return found


def json_malformed(what: str, why: str) -> CkpttoolError:
    """The error of JSON that is none, or does not say what its format wants."""
    return CorruptError(
        f"the JSON of {what} is malformed",
        why=why,
        hint="take the file from another copy",
        id="json-malformed",
    )


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} is there twice")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits:.80} is past all bounds")
    return value


def holds_half_characters(text: str, found: object) -> bool:
    """Whether a string or a key of ``found``, the value of JSON ``text``, has a lone surrogate."""
    pending = [found] if _MAYBE_HALF.search(text) else []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str) and not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                return True
    return False
