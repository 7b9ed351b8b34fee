"""The small languages of ``convert``'s options, as data. Pure: knows no graph.

``[NAME=]TENSOR[:INDEX][:DTYPE][SHAPE]`` is an input or an output, ``NAME=VALUE`` a frozen
input or an argument of a model's function. An operation's name holds none of ``:=[``
(tensorflow/core/framework/node_def_util.cc), so nothing here is ambiguous.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import UsageError
from ckpttool.formats.dtypes import BY_NAME

__all__ = ["NamedValue", "PortSpec", "Value", "parse_named_value", "parse_port", "port_text"]

#: What a frozen input or a model's argument can be: what JSON can say.
Value = bool | int | float | str | list[object] | dict[str, object] | None

_PORT = re.compile(
    r"(?:(?P<name>[^:=\[\]]+)=)?(?P<tensor>[^:=\[\]]+)"
    r"(?::(?P<index>\d+))?(?::(?P<dtype>[a-z]\w*))?(?P<shape>\[[^\[\]]*\])?"
)
_UNKNOWN = {"?", "-1", "none", ""}


@dataclass(frozen=True, slots=True)
class PortSpec:
    """An input or output as it was asked for.

    Attributes:
        name: what it is to be called; the tensor's own name where none was given.
        tensor: the operation, or the model's argument, that it stands for.
        index: which output of the operation; None where that was left open.
        dtype: TensorFlow's word, or None.
        shape: None where none was given; a dimension is None where it may be any.
    """

    name: str
    tensor: str
    index: int | None = None
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None


class NamedValue(NamedTuple):
    """``NAME=VALUE``."""

    name: str
    value: Value


def parse_port(text: str) -> PortSpec:
    """``image=x:0:float32[?,784]`` → its parts; every part but the tensor may be absent.

    Raises:
        UsageError: id ``port-spec``.
    """
    found = _PORT.fullmatch(text.strip())
    if found is None:
        raise _unclear(text, "it has another form")
    tensor, dtype = found["tensor"], found["dtype"]
    if dtype is not None and dtype not in BY_NAME:
        raise _unclear(text, f"there is no dtype {dtype}")
    index = None if found["index"] is None else int(found["index"])
    return PortSpec(found["name"] or tensor, tensor, index, dtype, _shape(text, found["shape"]))


def port_text(name: str, dtype: str, shape: tuple[int | None, ...] | None) -> str:
    """``image:float32[?,784]``, as people read it and as ``parse_port`` takes it."""
    if shape is None:
        return f"{name}:{dtype}"
    return f"{name}:{dtype}[{','.join('?' if size is None else str(size) for size in shape)}]"


def parse_named_value(option: str, text: str) -> NamedValue:
    """``is_training=False`` → the name and what JSON, or Python's True, False and None, say.

    What is neither is taken as text.

    Raises:
        UsageError: id ``named-value``: there is no ``=``, or no name before it.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(
            f"{option} {text!r} cannot be understood",
            why="it has to be NAME=VALUE",
            hint=f"for example {option} is_training=False",
            id="named-value",
        )
    words: dict[str, Value] = {"True": True, "False": False, "None": None}
    if value in words:
        return NamedValue(name.strip(), words[value])
    try:
        return NamedValue(name.strip(), json.loads(value))
    except (ValueError, RecursionError):
        return NamedValue(name.strip(), value)


def _shape(text: str, shape: str | None) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    inside = shape[1:-1].strip()
    sizes: list[int | None] = []
    for part in inside.split(",") if inside else []:
        word = part.strip().lower()
        if word not in _UNKNOWN and not (word.isascii() and word.isdigit()):
            raise _unclear(text, f"{part.strip()!r} is no size of a dimension")
        sizes.append(None if word in _UNKNOWN else int(word))
    return tuple(sizes)


def _unclear(text: str, why: str) -> UsageError:
    return UsageError(
        f"the input or output {text!r} cannot be understood",
        why=why,
        hint="write [NAME=]TENSOR[:INDEX][:DTYPE][SHAPE], such as image=x:0:float32[?,784]",
        id="port-spec",
    )
