"""The target npz: NumPy's archive, not compressed, the same bytes for the same values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.conversion.weights import RAW
from ckpttool.formats.elements import npy_descr
from ckpttool.formats.named_array import NamedArray, least_bytes
from ckpttool.formats.npz_writer import write_npz
from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    from ckpttool.sources.base import Source
    from ckpttool.storage import NewFile

__all__ = ["FORMAT", "holds", "says", "write"]

FORMAT = "npz"


def holds(dtype: str) -> bool:
    """Whether NumPy has a type for it; strings become its ``S``."""
    return dtype == "string" or npy_descr(dtype) is not None


def write(arrays: Sequence[NamedArray], file: NewFile, about: Mapping[str, str]) -> None:
    """Write the archive.

    An archive has no metadata. So nothing is said about the arrays but what their bytes
    cannot be read without, in a member of its own.

    Raises:
        CkpttoolError: as ``write_npz``.
    """
    said = [_text(RAW, about[RAW])] if RAW in about else []
    file.reserve(least_bytes(arrays))
    write_npz([*arrays, *said], file.write)


def says(result: Source, about: Mapping[str, str]) -> bool:
    """Whether the member that `write` added is what it was given; the step is in none."""
    said = result.lookup(RAW) if RAW in about else None
    if said is None:
        return RAW not in about
    is_text = said.dtype == "string" and said.shape == ()
    return is_text and result.strings(said, Selection.whole(())) == [about[RAW].encode()]


def _text(name: str, value: str) -> NamedArray:
    return NamedArray(name, "string", (), lambda: (), lambda: [value.encode()])
