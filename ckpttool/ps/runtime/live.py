"""What can be asked of live parameters, whoever trains them.

Two kinds meet this: ``hosted`` (a TensorFlow 2 coordinator, from inside) and ``attach`` (a
TensorFlow 1 cluster, from outside). Nothing here knows TensorFlow: elements are bytes in C
order, little-endian, as in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ckpttool.model import Kind, numel

if TYPE_CHECKING:
    import numpy as np

    from ckpttool.sources.base import Source

__all__ = [
    "PIECE_BYTES",
    "Frozen",
    "LivePart",
    "LiveSource",
    "LiveVariable",
    "Loaded",
    "Mode",
    "Moment",
    "per_ps",
    "pieces_of",
]

#: What is fetched at once. A message of gRPC may not pass 2 GiB, and one that is small lets
#: the training's own messages through (a whole fetch of 410 MB took 39 % of the steps).
PIECE_BYTES = 16 * 2**20

Mode = Literal["hosted", "attached"]


class LivePart(NamedTuple):
    """A box of a variable, and the parameter server it lies on; None: the coordinator."""

    ps: int | None
    start: tuple[int, ...]
    extent: tuple[int, ...]


class LiveVariable(NamedTuple):
    """A variable as a snapshot of it is going to hold it.

    Attributes:
        name: the readable name.
        key: its key in the snapshot.
        dtype: TensorFlow's word.
        shape: of all parts together.
        kind: what it is for.
        parts: where it lies, in the order of their places; one part is all of it.
    """

    name: str
    key: str
    dtype: str
    shape: tuple[int, ...]
    kind: Kind
    parts: tuple[LivePart, ...]

    @property
    def stacked(self) -> bool:
        """Whether its parts one after the other are the variable: they cut its rows alone."""
        return all(part.extent[1:] == self.shape[1:] for part in self.parts)


class Moment(NamedTuple):
    """When a copy was made.

    Attributes:
        step_before: the step just before; None where no step is known.
        step: the step in the copy.
        step_after: the step just after.
        consistent: whether the copy is of one moment: no step was half in it.
        pause_seconds: how long the training was held for it.
        time: seconds since the epoch.
    """

    step_before: int | None
    step: int | None
    step_after: int | None
    consistent: bool
    pause_seconds: float
    time: float


class Frozen(Protocol):
    """A copy of all variables that training does not change; it lies where they lie.

    Holds as much memory there as they do, until it is released.
    """

    @property
    def variables(self) -> Sequence[LiveVariable]: ...

    @property
    def strings(self) -> Mapping[str, bytes]:
        """What else belongs into a checkpoint: scalar strings (the object graph) by key."""
        ...

    @property
    def moment(self) -> Moment: ...

    def pieces(self, variable: LiveVariable, part: int) -> Iterator[np.ndarray]:
        """The elements of a part, at most ``PIECE_BYTES`` (or one element) at a time.

        Flat arrays, whose bytes are those of a checkpoint.

        Raises:
            ClusterError: the server that holds it is gone.
        """
        ...

    def string_values(self, variable: LiveVariable) -> list[bytes]:
        """The elements of a variable of strings."""
        ...

    def release(self, variable: LiveVariable) -> None:
        """Let go of the copy of one variable."""
        ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was written into live variables, and the keys of the source that nobody took."""

    variables: int
    nbytes: int
    step: int | None
    unused: tuple[str, ...] = ()


class LiveSource(Protocol):
    """Live parameters. Every method may be called from any thread."""

    @property
    def mode(self) -> Mode: ...

    @property
    def consistent(self) -> bool:
        """Whether it can copy all variables at one moment."""
        ...

    @property
    def begun(self) -> bool:
        """Whether anything was trained: before, values are initial ones, or half restored."""
        ...

    @property
    def busy(self) -> bool:
        """Whether steps are made just now, which whatever is done here would slow down."""
        ...

    def variables(self) -> Sequence[LiveVariable]:
        """What there is now; training may make more."""
        ...

    def step(self) -> int | None:
        """The step just now; None where none is known.

        Raises:
            ClusterError: id ``ps-lost``.
        """
        ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The rows of a live variable (of a scalar, all), piece by piece and not at one moment.

        Raises:
            NotFoundError: id ``variable-not-found``.
        """
        ...

    def freeze(self, *, consistent: bool | None) -> AbstractContextManager[Frozen]:
        """Copy everything; ``consistent`` None is as good as can be.

        Raises:
            RefusedError: id ``snapshot-not-whole``: at one moment it cannot be done.
            ClusterError: ids ``gate-timeout``, ``ps-lost``.
        """
        ...

    def write(self, source: Source, names: Sequence[str] | None = None) -> Loaded:
        """Put the values of a source into the variables of the same keys.

        Args:
            source: an open one.
            names: only these, by name or key; None: all that are live, which then all have
                to be in the source.

        Raises:
            RefusedError: ids ``restore-incomplete``, ``restore-shape``.
            NotFoundError: id ``variable-not-found``.
        """
        ...


def per_ps(variables: Sequence[LiveVariable], itemsize: Mapping[str, int]) -> list[dict[str, int]]:
    """How many variables and bytes lie on each parameter server, by its number.

    A variable counts on every server that has a part of it.
    """
    counts: dict[int, list[int]] = {}
    for variable in variables:
        seen = set()
        for part in variable.parts:
            if part.ps is None:
                continue
            count = counts.setdefault(part.ps, [0, 0])
            count[0] += part.ps not in seen
            count[1] += numel(part.extent) * itemsize[variable.dtype]
            seen.add(part.ps)
    return [
        {"ps": ps, "variables": count, "bytes": nbytes}
        for ps, (count, nbytes) in sorted(counts.items())
    ]


def pieces_of(
    elements: int, itemsize: int, at_most: int = PIECE_BYTES
) -> Iterator[tuple[int, int]]:
    """First element and count of every piece of so many elements.

    >>> list(pieces_of(5, 8, at_most=16))
    [(0, 2), (2, 2), (4, 1)]
    """
    step = max(1, at_most // max(1, itemsize))
    for first in range(0, elements, step):
        yield first, min(step, elements - first)
