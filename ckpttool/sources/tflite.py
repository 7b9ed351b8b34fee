"""A TFLite model as a source: the tensors that hold values are its variables.

Values are handed out as they are stored: of a quantised tensor, the integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ckpttool.errors import CorruptError, UnsupportedError
from ckpttool.formats.long_message import FileBytes
from ckpttool.formats.tensor_bytes import require_bounded
from ckpttool.formats.tflite import TfliteTensor, read_model
from ckpttool.model import Finding, Oddity, Variable, numel, shape_text
from ckpttool.sources.array_file import ArrayFileSource
from ckpttool.sources.base import Extent
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.packed import unpacked_pieces
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.formats.model_summary import ModelSummary
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.selection import Selection

__all__ = ["TfliteSource", "open_resolved"]

_INT_BYTES = 4


def open_resolved(resolved: Resolved, limits: Limits) -> TfliteSource:
    """Open the model that an address came to; raises as `TfliteSource`."""
    return TfliteSource(open_directory(resolved.directory), resolved, limits, "tflite")


class TfliteSource(ArrayFileSource):
    """An open model.

    Attributes:
        summary: what the model says of itself.

    Raises:
        CorruptError, LimitError: as ``read_model``.
    """

    summary: ModelSummary
    _tensors: dict[str, TfliteTensor]

    def _load(self, name: str) -> Iterator[Variable]:
        model = read_model(FileBytes(self.open(name)), self._limits)
        self.summary = model.summary
        self._tensors = {}
        outside = 0
        for graph, subgraph in enumerate(model.subgraphs):
            for index, tensor in enumerate(subgraph.tensors):
                outside += tensor.external
                if tensor.offset is not None:
                    self._tensors[self._name(tensor, graph, index)] = tensor
        if outside:
            self.notes.append(Oddity(f"{outside} tensors are in another file, and are not read"))
        return (self._variable(name, tensor) for name, tensor in self._tensors.items())

    def _name(self, tensor: TfliteTensor, graph: int, index: int) -> str:
        """A name of its own: tensors may have none, or the one of another."""
        name = tensor.name
        while not name or name in self._tensors:
            name += f"#{graph}.{index}"
        return name

    def _variable(self, name: str, tensor: TfliteTensor) -> Variable:
        nbytes = tensor.nbytes or 0
        if tensor.sparse:
            text = f"{name} is stored without its zeros, and is not read"
            self.found(Finding("sparse-tensor", "note", name, text))
        elif tensor.type.bits and nbytes != tensor.packed_bytes:
            self.found(Finding("size-mismatch", "error", name, _misfit(name, tensor)))
        return Variable(
            name,
            name,
            tensor.type.dtype,
            tensor.shape,
            nbytes,
            0,
            tensor.offset,
            kind_of_name(name),
        )

    def extent(self, variable: Variable) -> Extent | None:
        tensor = self._tensors[variable.key]
        if tensor.type.bits < 8:
            return None
        _require_fit(variable.name, tensor)
        return Extent(self._files[0], variable.offset or 0, variable.nbytes, little_endian=True)

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        tensor = self._tensors[variable.key]
        if tensor.type.bits >= 8:
            yield from super()._chunks(variable, selection, check=check)
            return
        _require_fit(variable.name, tensor)
        file, start = self._files[0], variable.offset or 0
        signed = tensor.type.dtype.startswith("int")
        yield from unpacked_pieces(
            selection,
            tensor.type.bits,
            lambda offset, size: file.pread(start + offset, size),
            signed=signed,
        )

    def _strings(
        self,
        variable: Variable,
        selection: Selection,
        *,
        check: bool,  # noqa: ARG002 - there are no checksums
    ) -> list[bytes]:
        """Their number, where each begins and the last ends, then the bytes (string_util.h)."""
        tensor = self._tensors[variable.key]
        count = numel(tensor.shape)
        require_bounded(f"reading {variable.name}", count, variable.nbytes, self._limits)
        data = self._files[0].pread(variable.offset or 0, variable.nbytes)
        numbers = memoryview(data[: (count + 2) * _INT_BYTES])
        if len(numbers) < (count + 2) * _INT_BYTES:
            raise _malformed_texts(variable.name, f"{len(data)} bytes hold {count} of them")
        stored, *places = (
            int.from_bytes(numbers[at : at + _INT_BYTES], "little")
            for at in range(0, len(numbers), _INT_BYTES)
        )
        if stored != count or places != sorted(places) or places[-1] > len(data):
            raise _malformed_texts(variable.name, f"{stored} of them end at {places[-1:]}")
        texts = [data[begin:end] for begin, end in pairwise(places)]
        return [text for start, run in selection.runs() for text in texts[start : start + run]]


def _require_fit(name: str, tensor: TfliteTensor) -> None:
    if tensor.sparse:
        raise UnsupportedError(
            f"the values of {name} are not read",
            why="it is sparse: only the values that are not zero are stored",
            hint="convert the model again without sparsity",
            id="sparse-tensor",
        )
    if tensor.nbytes != tensor.packed_bytes:
        raise CorruptError(
            f"the size of {name} does not fit its shape",
            why=_misfit(name, tensor),
            hint="take the file from another copy",
            id="size-mismatch",
        )


def _misfit(name: str, tensor: TfliteTensor) -> str:
    return (
        f"{name} has {tensor.nbytes} bytes, and {shape_text(tensor.shape)} elements of "
        f"{tensor.type.dtype} take {tensor.packed_bytes}"
    )


def _malformed_texts(name: str, why: str) -> CorruptError:
    return CorruptError(
        f"the texts of {name} are malformed",
        why=why,
        hint="take the file from another copy",
        id="strings-malformed",
    )
