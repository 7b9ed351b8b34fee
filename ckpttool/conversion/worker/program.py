"""``Program``: what is converted, restored from its checkpoint, whatever it came from.

The graph sources (``tf1``, ``saved_model``, ``model``) make one; the targets read it, and
nothing else of a source. It can be run as it was before anything was changed, which is the
reference of the check; frozen, one function at a time; and saved with its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ckpttool.conversion.ports import Signature

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Frozen", "Function", "Program", "Weight", "Written"]


class Weight(Protocol):
    """A constant of a frozen graph whose value is read when it is wanted."""

    @property
    def dtype(self) -> str:
        """TensorFlow's word."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    def chunks(self) -> Iterator[bytes]:
        """Its elements in C order, little-endian, in pieces of at most some MiB."""
        ...

    def array(self) -> np.ndarray:
        """The whole of it."""
        ...


@dataclass(slots=True)
class Frozen:
    """A function as one graph without variables.

    Attributes:
        graph: a ``GraphDef``; control flow is still functions (While, If).
        signature: its ports; ``tensor`` names tensors of ``graph``, and the operation of
            an input is a placeholder that is called as the input (``image:0``).
        weights: operation → its value, for the placeholders that stand for the large
            weights that were left out; empty unless that was asked for.
    """

    graph: Any
    signature: Signature
    weights: Mapping[str, Weight] = field(default_factory=dict)


class Function(Protocol):
    """One signature of a program."""

    @property
    def signature(self) -> Signature: ...

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the restored original computes, before anything was frozen or changed.

        Args:
            feeds: every input by name; strings as arrays of objects (bytes).

        Returns:
            Every output by name.
        """
        ...

    def frozen(self, *, batch: int | None = None, keep_out: int | None = None) -> Frozen:
        """The function with its variables as constants.

        Args:
            batch: the size of the first dimension of every input, where it is open.
            keep_out: weights of so many bytes or more stay out of the graph where that is
                possible: their values are never all in memory.

        Raises:
            UnsupportedError: id ``stateful-graph``: it needs a table or another resource
                that no constant can stand for.
            LimitError: id ``graph-too-large``: over 2 GB with its constants.
        """
        ...


class Program(Protocol):
    """What is converted. Closed by whoever made it."""

    @property
    def functions(self) -> Sequence[Function]:
        """One a signature, ``serving_default`` first where there is one."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What a person should know about how it was restored."""
        ...

    def save(self, path: str, *, batch: int | None = None) -> None:
        """Write a SavedModel: these signatures, and the variables that they use.

        Variables stay variables, under their full names, so that it can be refreshed.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Written:
    """What a target made of a program.

    Attributes:
        signatures: as the result has them: names, dtypes and shapes may have changed.
        warnings: what a person should know about the result.
        facts: more for the report (opset, operators, quantised tensors); JSON.
    """

    signatures: tuple[Signature, ...]
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
