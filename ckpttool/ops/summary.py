"""The figures of what `load` shows, where numpy is there to compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ckpttool.ops.figures.model import Figures
    from ckpttool.ops.load import Loaded

__all__ = ["summarise"]


def summarise(loaded: Loaded, number: int) -> Figures | None:
    """The figures of an item, without a histogram; None for strings, and without numpy.

    Reads every element of the item, in pieces.

    Raises:
        CkpttoolError: as ``Loaded.chunks``.
    """
    item = loaded.items[number]
    if item.dtype == "string":
        return None
    try:
        from ckpttool.ops.figures.running import compute
    except ImportError:
        return None
    try:
        return compute(lambda: loaded.chunks(number), item.dtype, histogram=False)
    except ModuleNotFoundError:
        return None  # ml_dtypes is not installed
