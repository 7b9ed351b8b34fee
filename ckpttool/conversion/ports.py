"""Signatures: what a program takes and gives, by names that do not change.

Shared by this process and the child; a ``Port`` is plain data that JSON can say.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckpttool.conversion.specs import port_text

__all__ = ["Port", "Signature"]


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
