"""Frozen dataclasses ↔ JSON, for what goes to the child process and what comes back.

Both sides are this very program, so the form is simply that of the dataclass: a class has
only members that JSON can say, tuples, other such classes, and unions of those with None.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["decode", "encode", "plain", "require"]

_T = TypeVar("_T")


def encode(value: object) -> str:
    """A dataclass as JSON; text that is no Unicode (a path) survives as it is."""
    return json.dumps(plain(value))


def decode(kind: type[_T], text: str | bytes) -> _T:
    """The dataclass of that kind that ``encode`` made the text of."""
    return _build(kind, json.loads(text))  # type: ignore[no-any-return]


def require(value: object, kind: Any) -> None:  # noqa: ANN401 - what a type hint says is any form
    """Check that what was decoded, of a file that anybody may have written, is of its kind.

    Raises:
        ValueError: it is not.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {UnionType, Union}:
        if value is not None or NoneType not in parts:
            (inner,) = [one for one in parts if one is not NoneType]
            require(value, inner)
        return
    if origin is Literal:
        fits = isinstance(value, str) and value in parts
    elif kind in {int, float}:
        fits = isinstance(value, int if kind is int else int | float)
        fits = fits and not isinstance(value, bool)
    else:
        fits = kind is object or isinstance(value, origin or kind)
    if not fits:
        raise ValueError(f"{str(value)[:40]!r} is no {getattr(kind, '__name__', kind)}")
    if is_dataclass(kind):
        for name, hint in get_type_hints(kind).items():
            require(getattr(value, name), hint)
    elif isinstance(value, dict):
        for key, item in value.items():
            require(key, parts[0])
            require(item, parts[1])
    elif isinstance(value, (tuple, list)):
        for item in value:
            require(item, parts[0])


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
