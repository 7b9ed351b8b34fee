"""An ONNX model as a source: the initializers of its graph are its variables.

Elements in files beside the model are read only where those lie inside its directory; one
that is missing is a finding, and an error of just the variables that lie in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.errors import CorruptError, IncompleteError
from ckpttool.formats.long_message import FileBytes
from ckpttool.formats.onnx import naming_onnx, read_model
from ckpttool.formats.onnx_tensor import OnnxTensor, numbers_of, texts_of
from ckpttool.model import Finding, Shard, Variable
from ckpttool.sources.array_file import ArrayFileSource
from ckpttool.sources.base import Extent, Read
from ckpttool.sources.beside import BesideFiles
from ckpttool.sources.filenames import join
from ckpttool.sources.kinds import kind_of_name
from ckpttool.sources.packed import unpacked_pieces, whole_pieces
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ckpttool.formats.model_summary import ModelSummary
    from ckpttool.limits import Limits
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.selection import Selection
    from ckpttool.storage.base import ReadableFile

__all__ = ["OnnxSource", "open_resolved"]

#: Bits of elements that can be spread over a byte each.
_PACKED = {2, 4}


def open_resolved(resolved: Resolved, limits: Limits) -> OnnxSource:
    """Open the model that an address came to; raises as `OnnxSource`."""
    return OnnxSource(open_directory(resolved.directory), resolved, limits, "onnx")


class OnnxSource(ArrayFileSource):
    """An open model.

    Attributes:
        summary: what the model says of itself.

    Raises:
        CorruptError, LimitError: as ``read_model``.
        UnsafeError: elements in a file outside the directory, or behind a link.
    """

    summary: ModelSummary
    _message: FileBytes
    _tensors: dict[str, OnnxTensor]
    _beside: BesideFiles
    #: Of each file beside the model, up to where it is needed.
    _needed: dict[int, int]

    def _load(self, name: str) -> Iterator[Variable]:
        self._message, self._needed = FileBytes(self.open(name)), {}
        self._beside = BesideFiles(self._directory, self._message.path, self._files)
        model = read_model(self._message, self._limits)
        self.summary = model.summary
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        for tensor in model.tensors:
            if tensor.external is not None:
                self._beside.add(tensor.external.location)
        for finding in self._beside.findings():
            self.found(finding)
        if model.sparse:
            text = f"{model.sparse} sparse initializers are not among the variables"
            self.found(Finding("sparse-tensor", "note", self.location, text))
        return map(self._variable, model.tensors)

    def _variable(self, tensor: OnnxTensor) -> Variable:
        name, kind = tensor.name, kind_of_name(tensor.name)
        shard, offset, nbytes = self._stored(tensor)
        if nbytes is None:
            nbytes = tensor.packed_bytes
        elif nbytes != tensor.packed_bytes and tensor.type.bits:
            self.found(Finding("size-mismatch", "error", name, _misfit(tensor, nbytes)))
        return Variable(name, name, tensor.type.dtype, tensor.shape, nbytes, shard, offset, kind)

    def _stored(self, tensor: OnnxTensor) -> tuple[int | None, int | None, int | None]:
        """The file, the offset and the size of its plain bytes; no size of numbers in a field."""
        if tensor.external is not None:
            number = self._beside.add(tensor.external.location)
            stat = self._beside.stat(number)
            start, nbytes = tensor.external.offset, tensor.external.nbytes
            if stat is None:
                return None, None, nbytes
            if nbytes is None:
                nbytes = max(0, stat.size - start)
            elif start + nbytes > stat.size:
                text = f"{tensor.name} lies past the end of {self._beside.path(number)}"
                self.found(Finding("weights-short", "error", tensor.name, text))
            self._needed[number] = max(self._needed.get(number, 0), start + nbytes)
            return number + 1, start, nbytes
        if tensor.raw is not None:
            return 0, tensor.raw[0], tensor.raw[1] - tensor.raw[0]
        start, end = tensor.place
        return 0, start, end - start if tensor.type.dtype == "string" else None

    # Source ---------------------------------------------------------------------------

    def shards(self) -> Sequence[Shard]:
        path, stat = self._message.path, self._message.file.stat
        return [Shard(path, stat.size, stat.size, present=True), *self._beside.shards(self._needed)]

    def extent(self, variable: Variable) -> Extent | None:
        tensor = self._tensors[variable.key]
        if tensor.type.bits < 8 or (tensor.raw is None and tensor.external is None):
            return None
        file, start = self._plain(tensor, variable)
        return Extent(file, start, variable.nbytes, little_endian=True)

    def reads(self, variable: Variable, selection: Selection) -> Iterator[Read]:
        tensor = self._tensors[variable.key]
        if tensor.raw is not None or tensor.external is not None:
            if tensor.type.bits >= 8:
                yield from super().reads(variable, selection)
            else:
                file, start = self._plain(tensor, variable)
                yield Read(file.path, start, variable.nbytes)
        else:
            start, end = tensor.place
            yield Read(self._message.path, start, end - start)

    def _chunks(self, variable: Variable, selection: Selection, *, check: bool) -> Iterator[bytes]:
        tensor = self._tensors[variable.key]
        if tensor.type.bits >= 8 and (tensor.raw is not None or tensor.external is not None):
            yield from super()._chunks(variable, selection, check=check)
            return
        if tensor.raw is None and tensor.external is None:
            with naming_onnx(self._message.path):
                data = numbers_of(self._message, tensor, self._limits)

            def read(offset: int, size: int) -> bytes:
                return data[offset : offset + size]
        else:
            file, start = self._plain(tensor, variable)

            def read(offset: int, size: int) -> bytes:
                return file.pread(start + offset, size)

        bits = tensor.type.bits
        if bits in _PACKED:
            yield from unpacked_pieces(selection, bits, read, signed=tensor.type.signed)
        else:
            yield from whole_pieces(selection, bits // 8, read)

    def _strings(
        self,
        variable: Variable,
        selection: Selection,
        *,
        check: bool,  # noqa: ARG002 - there are no checksums
    ) -> list[bytes]:
        with naming_onnx(self._message.path):
            texts = texts_of(self._message, self._tensors[variable.key], self._limits)
        return [text for start, run in selection.runs() for text in texts[start : start + run]]

    def _plain(self, tensor: OnnxTensor, variable: Variable) -> tuple[ReadableFile, int]:
        """The file with a tensor's bytes, and where they start, after checking their size."""
        if variable.shard is None or variable.offset is None:
            assert tensor.external is not None, "only a file beside the model can be missing"
            path = join(self._directory.path, tensor.external.location)
            raise IncompleteError(
                f"the values of {variable.name} are not here",
                why=f"they are in {path}, which is missing",
                hint="copy it beside the model",
                id="weights-missing",
            )
        if variable.nbytes != tensor.packed_bytes:
            raise CorruptError(
                f"the size of {variable.name} does not fit its shape",
                why=_misfit(tensor, variable.nbytes),
                hint="take the file from another copy",
                id="size-mismatch",
            )
        file = self._message.file if not variable.shard else self._beside.file(variable.shard - 1)
        if variable.offset + variable.nbytes > file.stat.size:
            raise IncompleteError(
                f"the values of {variable.name} are not all there",
                why=f"they end at byte {variable.offset + variable.nbytes} of {file.path}, which "
                f"has {file.stat.size}",
                hint="copy it again from where it is whole",
                id="weights-short",
            )
        return file, variable.offset


def _misfit(tensor: OnnxTensor, nbytes: int) -> str:
    return (
        f"{tensor.name} has {nbytes} bytes, and {list(tensor.shape)} elements of "
        f"{tensor.type.dtype} take {tensor.packed_bytes}"
    )
