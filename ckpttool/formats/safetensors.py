"""The header of a ``.safetensors`` file, validated as a whole before a byte of data is read.

Eight bytes of length, JSON, then the data. The arrays have to fill the data exactly, one
after the other: no hole, no overlap, nothing behind. The rules are those of the safetensors
library (``Metadata::validate`` in safetensors/src/tensor.rs). Knows no numpy.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from ckpttool.errors import CorruptError, IncompleteError, UnsupportedError
from ckpttool.formats.bounds import require_count, require_shape, require_within
from ckpttool.formats.json_text import parse_json
from ckpttool.formats.safetensors_dtypes import BY_WORD, SafetensorsType
from ckpttool.limits import Limits
from ckpttool.model import numel, shape_text
from ckpttool.storage.base import ReadableFile

__all__ = ["StoredTensor", "read_header"]

_LENGTH_BYTES = 8
#: Past every place in a file.
_MOST = 2**63
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}


class StoredTensor(NamedTuple):
    """An array, and the bytes of the file that hold it."""

    name: str
    type: SafetensorsType
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_header(file: ReadableFile, limits: Limits) -> tuple[list[StoredTensor], dict[str, str]]:
    """The arrays of a file in the order in which they lie, and its metadata.

    Raises:
        CorruptError: id ``safetensors-malformed`` or ``json-malformed``; ``shape-overflow``,
            ``negative-dimension``.
        IncompleteError: id ``safetensors-cut``: the file ends before its header or its data.
        LimitError: ids ``limit-safetensors-header-bytes``, ``limit-entries``, ``limit-rank``.
        UnsupportedError: id ``dtype-unsupported``: a type whose size is not known.
    """
    size = file.stat.size
    if size < _LENGTH_BYTES:
        _cut(file, f"it has {size} bytes, and its length alone takes {_LENGTH_BYTES}")
    length = int.from_bytes(file.pread(0, _LENGTH_BYTES), "little")
    what = f"the header of {file.path}"
    begin = _LENGTH_BYTES + length
    if begin > size:
        _cut(file, f"its header is said to have {length} bytes, and {size - _LENGTH_BYTES} follow")
    require_within(what, length, limits, "safetensors_header_bytes")
    text = file.pread(_LENGTH_BYTES, length)
    if not text.startswith(b"{"):
        _malformed(file, "its header does not begin with a brace")
    found = parse_json(text, file.path)
    if not isinstance(found, dict):
        _malformed(file, "its header is no object")
    metadata = found.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        _malformed(file, f"its {_METADATA} is not of texts")
    require_count(file.path, len(found), limits)
    tensors = [_tensor(file, name, fields, begin, limits) for name, fields in found.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    _require_filled(file, tensors, begin, size)
    return tensors, metadata


def _tensor(
    file: ReadableFile, name: str, fields: object, begin: int, limits: Limits
) -> StoredTensor:
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
        _malformed(file, f"{name} has not just a dtype, a shape and data_offsets")
    word, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(word, str) or not _numbers(shape) or not _numbers(offsets):
        _malformed(file, f"the dtype, shape or data_offsets of {name} are of another type")
    if len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] < _MOST:
        _malformed(file, f"the data_offsets of {name} are no two places in order")
    known = BY_WORD.get(word)
    if known is None:
        raise UnsupportedError(
            f"{name} in {file.path} has an unknown type",
            why=f"safetensors up to 0.8 has no {word}, so its size is not known",
            hint="update ckpttool",
            id="dtype-unsupported",
        )
    checked = require_shape(name, shape, limits)
    bits = numel(checked) * known.bits
    nbytes = offsets[1] - offsets[0]
    if bits % 8 or bits // 8 != nbytes:
        _malformed(
            file,
            f"{name} has {nbytes} bytes, and {shape_text(checked)} elements of {word} take "
            f"{bits / 8:g}",
        )
    return StoredTensor(name, known, checked, begin + offsets[0], nbytes)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _require_filled(file: ReadableFile, tensors: list[StoredTensor], begin: int, size: int) -> None:
    """Check that arrays lie one after the other, from the first byte of the data to the last."""
    reached, before = begin, "the header"
    for tensor in tensors:
        if tensor.offset != reached:
            what = "overlaps" if tensor.offset < reached else "leaves a hole after"
            _malformed(file, f"{tensor.name} {what} {before}, at byte {tensor.offset}")
        reached, before = tensor.offset + tensor.nbytes, tensor.name
    if reached > size:
        _cut(file, f"its arrays take {reached} bytes, and it has {size}")
    if reached < size:
        _malformed(file, f"{size - reached} bytes follow its last array")


def _malformed(file: ReadableFile, why: str) -> NoReturn:
    raise CorruptError(
        f"{file.path} is a malformed safetensors file",
        why=why,
        hint="take the file from another copy",
        id="safetensors-malformed",
    )


def _cut(file: ReadableFile, why: str) -> NoReturn:
    raise IncompleteError(
        f"{file.path} is not a whole safetensors file",
        why=why,
        hint="copy the file again from where it is whole",
        id="safetensors-cut",
    )
