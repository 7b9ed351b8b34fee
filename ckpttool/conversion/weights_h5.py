"""The target HDF5: a dataset each, in groups by the slashes of its name.

Not Keras's own layout, which only Keras can tell: with ``--model`` and a destination that
ends in ``.weights.h5`` that is written by ``worker/to_keras_weights.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.formats.elements import npy_descr
from ckpttool.formats.hdf5_writer import write_hdf5
from ckpttool.formats.named_array import least_bytes
from ckpttool.sources.keras_h5 import KerasH5Source

if TYPE_CHECKING:
    from ckpttool.formats.named_array import NamedArray
    from ckpttool.sources.base import Source
    from ckpttool.storage import NewFile

__all__ = ["FORMAT", "holds", "says", "write"]

FORMAT = "h5"


def holds(dtype: str) -> bool:
    """Whether HDF5, as NumPy sees it, has a type for it."""
    return dtype == "string" or npy_descr(dtype) is not None


def write(arrays: Sequence[NamedArray], file: NewFile, about: Mapping[str, str]) -> None:
    """Write the file; what is said about it are attributes of its root.

    Raises:
        CkpttoolError: as ``write_hdf5``.
    """
    file.reserve(least_bytes(arrays))
    with file.seekable() as stream:
        write_hdf5(arrays, stream, about)


def says(result: Source, about: Mapping[str, str]) -> bool:
    """Whether the attributes of a file's root are what `write` was given."""
    return isinstance(result, KerasH5Source) and all(
        result.attribute(name) == text for name, text in about.items()
    )
