"""The elements that a source hands out as numpy arrays. Imports numpy; nothing else here does."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from itertools import chain

import numpy as np

from ckpttool.formats.dtypes import BY_NAME, numpy_dtype
from ckpttool.model import Variable, numel
from ckpttool.sources.base import Extent, Source
from ckpttool.sources.selection import Selection

__all__ = ["array_of", "array_of_pieces", "array_of_strings", "mapped"]


def array_of(
    source: Source, variable: Variable, selection: Selection, *, check: bool = True
) -> np.ndarray:
    """What ``Source.read`` gives, out of the source's pieces or strings."""
    if variable.dtype == "string":
        strings = source.strings(variable, selection, check=check)
        return array_of_strings(strings, selection.result_shape)
    pieces = source.chunks(variable, selection, check=check)
    return array_of_pieces(pieces, variable.dtype, selection.result_shape)


def array_of_pieces(pieces: Iterable[bytes], dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of elements that come in pieces, in C order."""
    element = numpy_dtype(dtype)
    pieces = iter(pieces)
    first = next(pieces, b"")  # a source that refuses does so before a claimed size is reserved
    result = np.empty(numel(shape) * BY_NAME[dtype].size, np.uint8)
    at = 0
    for piece in chain((first,), pieces):
        result[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    return result.view(element).reshape(shape)


def array_of_strings(strings: list[bytes], shape: tuple[int, ...]) -> np.ndarray:
    """An array of ``bytes`` objects, as TensorFlow's reader gives them."""
    result = np.empty(len(strings), object)
    result[:] = strings
    return result.reshape(shape)


def mapped(extent: Extent, dtype: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """The whole variable as a read-only array over its file; None where that cannot be.

    A program that truncates the file while the array is in use kills this process with
    SIGBUS: that is how memory maps are.
    """
    descriptor = extent.file.fileno()
    if descriptor is None or not extent.little_endian or not extent.nbytes:
        return None
    page = extent.offset % mmap.ALLOCATIONGRANULARITY
    start = extent.offset - page
    view = mmap.mmap(descriptor, page + extent.nbytes, access=mmap.ACCESS_READ, offset=start)
    flat = np.frombuffer(view, numpy_dtype(dtype), numel(shape), page)
    return flat.reshape(shape)
