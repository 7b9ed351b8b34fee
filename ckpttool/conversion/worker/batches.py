"""A function that takes batches of one size only, run on more rows: piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ckpttool.conversion.ports import Port

if TYPE_CHECKING:
    import numpy as np

__all__ = ["run_in_batches"]


def run_in_batches(
    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    ports: Sequence[Port],
    feeds: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Run a function once, or where its ports fix the first dimension once a batch.

    Args:
        run: the function.
        ports: its inputs.
        feeds: every input by name; where the first dimension is fixed, of all inputs alike,
            a multiple of it. An input without dimensions is the same for every batch.

    Returns:
        The outputs, those of the batches one after the other.
    """
    import numpy as np

    batched = [port for port in ports if np.ndim(feeds[port.name])]
    fixed = {port.shape[0] for port in batched if port.shape and port.shape[0] is not None}
    rows = {len(feeds[port.name]) for port in batched}
    if len(fixed) != 1 or len(rows) != 1:
        return run(feeds)
    (size,), (count,) = fixed, rows
    if not size or count <= size or count % size:
        return run(feeds)
    names = {port.name for port in batched}
    parts = [
        run(
            {
                name: array[start : start + size] if name in names else array
                for name, array in feeds.items()
            }
        )
        for start in range(0, count, size)
    ]
    return {name: np.concatenate([one[name] for one in parts]) for name in parts[0]}
