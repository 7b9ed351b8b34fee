"""The target safetensors: every variable as it is; bfloat16 and float8 stay what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.formats.safetensors_dtypes import BY_TENSORFLOW
from ckpttool.formats.safetensors_writer import write_safetensors
from ckpttool.sources.safetensors import SafetensorsSource

if TYPE_CHECKING:
    from ckpttool.formats.named_array import NamedArray
    from ckpttool.sources.base import Source
    from ckpttool.storage import NewFile

__all__ = ["FORMAT", "holds", "says", "write"]

FORMAT = "safetensors"
#: What readers of the metadata ask for.
_ALWAYS = {"format": "tf"}


def holds(dtype: str) -> bool:
    """Whether the format has a type for it."""
    return dtype in BY_TENSORFLOW


def write(arrays: Sequence[NamedArray], file: NewFile, about: Mapping[str, str]) -> None:
    """Write the file, with what is said as its metadata.

    Raises:
        CkpttoolError: as ``write_safetensors``.
    """
    write_safetensors(arrays, file.write, {**_ALWAYS, **about}, file)


def says(result: Source, about: Mapping[str, str]) -> bool:
    """Whether the metadata of a file are what `write` was given."""
    return isinstance(result, SafetensorsSource) and result.metadata == {**_ALWAYS, **about}
