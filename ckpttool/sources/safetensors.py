"""A ``.safetensors`` file as a source: every array lies in it as it is.

Only float4, of which two share a byte there, is spread over a byte each when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.formats.safetensors import StoredTensor, read_header
from ckpttool.model import Variable, numel
from ckpttool.sources.array_file import ArrayFileSource
from ckpttool.sources.base import Extent
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.packed import unpacked_pieces
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.selection import Selection

__all__ = ["SafetensorsSource", "open_resolved"]


def open_resolved(resolved: Resolved, limits: Limits) -> SafetensorsSource:
    """Open the file that an address came to; raises as `SafetensorsSource`."""
    directory = open_directory(resolved.directory)
    return SafetensorsSource(directory, resolved, limits, "safetensors")


class SafetensorsSource(ArrayFileSource):
    """An open file.

    Attributes:
        metadata: the texts that its writer put beside the arrays.

    Raises:
        CorruptError, IncompleteError, LimitError, UnsupportedError: as ``read_header``.
    """

    metadata: dict[str, str]

    def _load(self, name: str) -> Iterator[Variable]:
        file = self.open(name)
        tensors, self.metadata = read_header(file, self._limits)
        return map(_variable, tensors)

    def extent(self, variable: Variable) -> Extent | None:
        if variable.offset is None or _packed(variable):
            return None
        return Extent(self._files[0], variable.offset, variable.nbytes, little_endian=True)

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        if not _packed(variable):
            yield from super()._chunks(variable, selection, check=check)
            return
        file, start = self._files[0], variable.offset or 0
        yield from unpacked_pieces(selection, 4, lambda at, size: file.pread(start + at, size))


def _packed(variable: Variable) -> bool:
    return variable.dtype == "float4_e2m1fn" and variable.nbytes != numel(variable.shape or ())


def _variable(tensor: StoredTensor) -> Variable:
    return Variable(
        tensor.name,
        tensor.name,
        tensor.type.dtype,
        tensor.shape,
        tensor.nbytes,
        0,
        tensor.offset,
        kind_of_name(tensor.name),
    )
