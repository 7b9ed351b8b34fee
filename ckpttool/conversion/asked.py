"""What a model asks a checkpoint for: the answer of the child that builds the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.model import Kind

__all__ = ["Asked", "AskedVariable"]


class AskedVariable(NamedTuple):
    """A variable of the model.

    Attributes:
        name: under which the checkpoint would have it.
        kind: what it is for.
        dtype: TensorFlow's word.
        shape: -1 stands for a size that is open; None: all of it is.
        key: in the checkpoint; None: that has no value for it.
    """

    name: str
    kind: Kind
    dtype: str
    shape: tuple[int, ...] | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """All that a model asks for.

    Attributes:
        variables: in the model's order.
        by: how they were looked for: by the objects of both, as ``tf.train.Checkpoint``
            does; by names; or by Keras' own files.
        casts: a value of another dtype is cast, so that it is in nobody's way.
        warnings: what a person should know.
    """

    variables: tuple[AskedVariable, ...]
    by: str
    casts: bool = False
    warnings: tuple[str, ...] = ()
