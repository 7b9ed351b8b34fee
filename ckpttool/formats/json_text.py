"""JSON out of a file that nobody vouches for: strict, bounded, and each key once.

Knows JSON, and nothing of what it says.
"""

from __future__ import annotations

import json
from typing import NoReturn

from ckpttool.errors import CkpttoolError, CorruptError

__all__ = ["json_malformed", "parse_json"]


def parse_json(data: bytes, what: str) -> object:
    """The value of a JSON text; the caller has bounded its length.

    Args:
        data: the text, UTF-8.
        what: whose it is, for messages.

    Raises:
        CorruptError: id ``json-malformed``: also for NaN, a key that is there twice, and
            nesting deeper than Python's own limit.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_distinct,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError as error:
        raise json_malformed(what, f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise json_malformed(what, "it is nested too deeply") from None
    except ValueError as error:  # json.JSONDecodeError, our own, and numbers past any bound
        raise json_malformed(what, str(error)) from None


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
