"""Where the values of a graph's variables come from, read one at a time.

``SourceValues`` reads any source with our own reader, whole variables and slices of them,
as arrays or in pieces; ``LiveValues`` takes them from variables that TensorFlow restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ckpttool.conversion.worker.graph_variables import GraphVariable
from ckpttool.formats.dtypes import BY_NAME
from ckpttool.model import numel
from ckpttool.sources.base import Source
from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    import numpy as np

__all__ = ["LiveValues", "SourceValues", "Values", "VariableWeight"]


class Values(Protocol):
    """The values of the variables of one graph."""

    def array(self, variable: GraphVariable) -> np.ndarray:
        """All elements; of a slice those of the slice."""
        ...

    def chunks(self, variable: GraphVariable) -> Iterator[bytes]:
        """The same in C order, little-endian, in pieces of at most some MiB."""
        ...


class SourceValues:
    """Values out of a source of ours, checksums compared."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def array(self, variable: GraphVariable) -> np.ndarray:
        found = self._source.find(variable.key)
        return self._source.read(found, _selection(variable, found.shape))

    def chunks(self, variable: GraphVariable) -> Iterator[bytes]:
        found = self._source.find(variable.key)
        return self._source.chunks(found, _selection(variable, found.shape))


class LiveValues:
    """Values of variables that are in memory: operation → what gives its array."""

    def __init__(self, readers: Mapping[str, Callable[[], Any]]) -> None:
        self._readers = readers

    def array(self, variable: GraphVariable) -> np.ndarray:
        import numpy as np

        return np.asarray(self._readers[variable.node]())

    def chunks(self, variable: GraphVariable) -> Iterator[bytes]:
        yield self.array(variable).tobytes()


@dataclass(frozen=True, slots=True)
class VariableWeight:
    """A ``Weight`` of a frozen graph: a variable whose value was left out."""

    variable: GraphVariable
    values: Values

    @property
    def dtype(self) -> str:
        return self.variable.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.variable.shape is not None, "matched with a source, or restored"
        return self.variable.shape

    @property
    def nbytes(self) -> int:
        return numel(self.shape) * BY_NAME[self.dtype].size

    def chunks(self) -> Iterator[bytes]:
        return self.values.chunks(self.variable)

    def array(self) -> np.ndarray:
        return self.values.array(self.variable)


def _selection(variable: GraphVariable, stored: tuple[int, ...] | None) -> Selection:
    shape = variable.shape if stored is None else stored
    assert shape is not None, "matched with this source"
    if variable.offset is None or variable.shape is None:
        return Selection.whole(shape)
    places = zip(variable.offset, variable.shape, strict=True)
    return Selection.of(shape, tuple(slice(start, start + size) for start, size in places))
