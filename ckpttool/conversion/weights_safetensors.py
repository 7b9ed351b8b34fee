"""The target safetensors: every variable as it is; bfloat16 and float8 stay what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.formats.safetensors_dtypes import BY_TENSORFLOW
from ckpttool.formats.safetensors_writer import write_safetensors

if TYPE_CHECKING:
    from ckpttool.formats.named_array import NamedArray
    from ckpttool.storage import NewFile

__all__ = ["FORMAT", "holds", "write"]

FORMAT = "safetensors"


def holds(dtype: str) -> bool:
    """Whether the format has a type for it."""
    return dtype in BY_TENSORFLOW


def write(arrays: Sequence[NamedArray], file: NewFile, about: Mapping[str, str]) -> None:
    """Write the file; ``format`` is what readers of its metadata ask for.

    Raises:
        CkpttoolError: as ``write_safetensors``.
    """
    write_safetensors(arrays, file.write, {"format": "tf", **about}, file)
