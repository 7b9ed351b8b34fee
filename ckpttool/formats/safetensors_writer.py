"""Arrays as a ``.safetensors`` file: header first, then the bytes, streamed.

Keeps bfloat16, the float8 types and float4 exactly. Arrays lie in the order in which the
safetensors library puts them (widest elements first, then by name), so each is aligned.
Much data begins at a page: then whole pages can be copied, and mapped. What lies in a file
as it is to be written can be copied by the kernel. Knows no source and no path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.errors import CorruptError
from ckpttool.formats.named_array import (
    NamedArray,
    name_not_representable,
    not_representable,
    refuse_dtypes,
    require_distinct,
)
from ckpttool.formats.packing import pack_halves
from ckpttool.formats.safetensors_dtypes import BY_TENSORFLOW, RANKS
from ckpttool.model import numel

if TYPE_CHECKING:
    from ckpttool.storage.base import NewFile

__all__ = ["check_safetensors", "write_safetensors"]

_METADATA = "__metadata__"
_ALIGNMENT = 8
_PAGE = 4096
#: Bytes of data from which on they begin at a page.
_MUCH = 2**20
#: The most that the safetensors library reads (MAX_HEADER_SIZE in tensor.rs).
_MOST_HEADER_BYTES = 100_000_000


def check_safetensors(arrays: Sequence[NamedArray]) -> None:
    """Refuse what the format cannot hold, before anything is written.

    Raises:
        UnsupportedError: id ``dtype-not-representable`` or ``name-not-representable``.
        UsageError: id ``output-twice``.
    """
    misfits = [array for array in arrays if array.dtype not in BY_TENSORFLOW]
    refuse_dtypes("safetensors", "safetensors", misfits, "save as .npz or .json")
    for array in arrays:
        if array.name == _METADATA:
            raise name_not_representable("safetensors", array.name, "the format uses it itself")
        if not _is_utf8(array.name):
            raise name_not_representable("safetensors", array.name, "it is not UTF-8")
        if numel(array.shape) * BY_TENSORFLOW[array.dtype].bits % 8:
            raise not_representable(
                "safetensors",
                f"{array.name} has an odd number of elements of half a byte each",
                "add --cast auto, which widens what NumPy has no type for, exactly",
            )
    require_distinct("safetensors", [array.name for array in arrays])


def write_safetensors(
    arrays: Sequence[NamedArray],
    write: Callable[[bytes], object],
    metadata: Mapping[str, str] | None = None,
    file: NewFile | None = None,
) -> None:
    """Write a file to something that need not seek.

    Args:
        arrays: in any order.
        write: takes the pieces one after the other.
        metadata: text that goes with them, under ``__metadata__``.
        file: what ``write`` writes to, where that can copy: it is given the places of arrays
            without looking at their bytes.

    Raises:
        UnsupportedError, UsageError: as `check_safetensors`; nothing is written then.
        CorruptError: id ``size-mismatch``: an array gave more or fewer elements than its
            shape has.
        CkpttoolError: from the arrays and from ``write``.
    """
    check_safetensors(arrays)
    ordered = sorted(arrays, key=lambda a: (-RANKS[BY_TENSORFLOW[a.dtype].word], a.name))
    header = _header(ordered, metadata)
    if file is not None:
        file.reserve(len(header) + sum(map(_nbytes, ordered)))
    write(header)
    for array in ordered:
        place = None if file is None or _is_packed(array) else array.place()
        if file is not None and place is not None and place.nbytes == _nbytes(array):
            file.copy(place.file, place.offset, place.nbytes)
            continue
        done = 0
        for piece in _pieces(array):
            write(piece)
            done += len(piece)
        if done != _nbytes(array):
            raise CorruptError(
                f"the elements of {array.name} do not fit its shape",
                why=f"{done} bytes came, and {_nbytes(array)} are needed",
                id="size-mismatch",
            )


def _header(ordered: Iterable[NamedArray], metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    at = 0
    for array in ordered:
        end = at + _nbytes(array)
        header[array.name] = {
            "dtype": BY_TENSORFLOW[array.dtype].word,
            "shape": list(array.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # Behind eight bytes of length.
    text += b" " * (-(8 + len(text)) % (_PAGE if at >= _MUCH else _ALIGNMENT))
    if len(text) > _MOST_HEADER_BYTES:
        raise not_representable(
            "safetensors",
            f"its header would have {len(text)} bytes, and readers take {_MOST_HEADER_BYTES}",
            "choose fewer variables",
        )
    return len(text).to_bytes(8, "little") + text


def _nbytes(array: NamedArray) -> int:
    return numel(array.shape) * BY_TENSORFLOW[array.dtype].bits // 8


def _pieces(array: NamedArray) -> Iterable[bytes]:
    return _packed(array.chunks()) if _is_packed(array) else array.chunks()


def _is_packed(array: NamedArray) -> bool:
    return BY_TENSORFLOW[array.dtype].bits == 4


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Elements of a byte each, two in a byte."""
    left = b""
    for piece in pieces:
        data = left + piece
        even = len(data) & ~1
        left = data[even:]
        yield pack_halves(data[:even])


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
