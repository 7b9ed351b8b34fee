"""The target npz: NumPy's archive, not compressed, the same bytes for the same values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.conversion.weights import RAW
from ckpttool.formats.elements import npy_descr
from ckpttool.formats.named_array import NamedArray, least_bytes
from ckpttool.formats.npz_writer import write_npz

if TYPE_CHECKING:
    from ckpttool.storage import NewFile

__all__ = ["FORMAT", "holds", "write"]

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


def _text(name: str, value: str) -> NamedArray:
    return NamedArray(name, "string", (), lambda: (), lambda: [value.encode()])
