"""Arrays as the writers take them."""

from __future__ import annotations

import numpy as np

from ckpttool.formats.named_array import NamedArray

__all__ = ["named", "named_strings"]


def named(name: str, array: np.ndarray, pieces: int = 1) -> NamedArray:
    """An array, whose elements come in so many pieces."""

    def chunks() -> list[bytes]:
        flat = array.ravel()
        return [part.tobytes() for part in np.array_split(flat, pieces)]

    return NamedArray(name, array.dtype.name, array.shape, chunks, list)


def named_strings(name: str, strings: list[bytes]) -> NamedArray:
    """A vector of strings."""
    return NamedArray(name, "string", (len(strings),), list, lambda: strings)
