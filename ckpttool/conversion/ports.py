"""Signatures: what a program takes and gives, by names that do not change.

Shared by this process and the child; a ``Port`` is plain data that JSON can say.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckpttool.conversion.specs import port_text
from ckpttool.errors import UsageError

__all__ = ["Port", "Signature", "require_dtype", "require_shape"]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output.

    Attributes:
        name: as the result calls it.
        dtype: TensorFlow's word.
        shape: a dimension is None where it may be any; None where the rank is unknown.
        tensor: the tensor of the graph that it stands for (``x:0``); of a SavedModel also
            the name that its own signature has for it; empty for a model.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None
    tensor: str = ""

    @property
    def text(self) -> str:
        """``image:float32[?,784]``."""
        return port_text(self.name, self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Signature:
    """A function of the result, with its inputs and outputs in their order."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def require_dtype(name: str, has: str, asked: str | None) -> None:
    """Check that a port is of the dtype that was asked for; None and ``""`` ask for none.

    Raises:
        UsageError: id ``port-dtype``.
    """
    if asked and asked != has:
        raise UsageError(
            f"{name} is not {asked}",
            why=f"in the graph it is {has}",
            hint="leave the dtype out, or give that one",
            id="port-dtype",
        )


def require_shape(
    name: str,
    has: tuple[int | None, ...] | None,
    asked: tuple[int | None, ...] | None,
    *,
    may_open: bool = False,
) -> None:
    """Check that a port may have the shape that was asked for: sizes that are open get one.

    Args:
        name: of the port.
        has: its shape in the graph; None: any.
        asked: None: nothing was.
        may_open: a size that is fixed may become open.

    Raises:
        UsageError: id ``port-shape``.
    """
    if has is None or asked is None:
        return
    fits = len(has) == len(asked) and all(
        a in {None, b} or (may_open and b is None) for a, b in zip(has, asked, strict=True)
    )
    if not fits:
        raise UsageError(
            f"{name} cannot have the shape {_sizes(asked)}",
            why=f"in the graph it has {_sizes(has)}",
            hint="give sizes only to dimensions that are open there (?)",
            id="port-shape",
        )


def _sizes(shape: tuple[int | None, ...]) -> str:
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]"
