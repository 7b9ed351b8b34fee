"""Frozen dataclasses ↔ JSON, for what goes to the child process and what comes back.

Both sides are this very program, so the form is simply that of the dataclass: a class has
only members that JSON can say, tuples, other such classes, and unions of those with None.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["decode", "encode", "plain"]

_T = TypeVar("_T")


def encode(value: object) -> str:
    """A dataclass as JSON; text that is no Unicode (a path) survives as it is."""
    return json.dumps(plain(value))


def decode(kind: type[_T], text: str | bytes) -> _T:
    """The dataclass of that kind that ``encode`` made the text of."""
    return _build(kind, json.loads(text))  # type: ignore[no-any-return]


def plain(value: object) -> object:
    """A dataclass as dicts and lists, all the way down."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def _build(kind: Any, data: Any) -> Any:  # noqa: ANN401 - what a type hint says is any form
    origin = get_origin(kind)
    if origin in {UnionType, Union}:
        if data is None:
            return None
        (inner, *others) = [one for one in get_args(kind) if one is not NoneType]
        return data if others else _build(inner, data)
    if origin is tuple:
        parts = get_args(kind)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_build(parts[0], item) for item in data)
        return tuple(_build(part, item) for part, item in zip(parts, data, strict=True))
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        hints = get_type_hints(kind)
        return kind(**{name: _build(hints[name], item) for name, item in data.items()})
    return data
