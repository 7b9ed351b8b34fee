"""A function that takes batches of one size only, run on any number of rows: piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.conversion.ports import Port

if TYPE_CHECKING:
    import numpy as np

__all__ = ["is_filled_up", "run_in_batches"]


def run_in_batches(
    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    ports: Sequence[Port],
    feeds: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Run a function once, or where its ports fix the first dimension once a batch.

    Args:
        run: the function.
        ports: its inputs.
        feeds: every input by name; where the first dimension is fixed, as many rows of all
            inputs alike, which need be no multiple of it: the last batch is filled up with
            the last row, and what comes of these is left out. An input without dimensions is
            the same for every batch.

    Returns:
        The outputs, those of the batches one after the other; of an output without
        dimensions one number a batch.
    """
    import numpy as np

    cut = _cut(ports, feeds)
    if cut is None:
        return run(feeds)
    size, count, names = cut
    parts = []
    for start in range(0, count, size):
        piece = {
            name: _filled(array[start : start + size], size) if name in names else array
            for name, array in feeds.items()
        }
        parts.append(run(piece))
    added = -count % size
    parts[-1] = {name: _without(array, added, size) for name, array in parts[-1].items()}
    return {name: np.concatenate([np.atleast_1d(one[name]) for one in parts]) for name in parts[0]}


def is_filled_up(ports: Sequence[Port], feeds: Mapping[str, np.ndarray]) -> bool:
    """Whether rows are added to the last batch, so that it has the size that is taken."""
    cut = _cut(ports, feeds)
    return cut is not None and cut.rows % cut.size > 0


class _Cut(NamedTuple):
    """Batches of ``size`` out of ``rows`` of the inputs that have these names."""

    size: int
    rows: int
    names: set[str]


def _cut(ports: Sequence[Port], feeds: Mapping[str, np.ndarray]) -> _Cut | None:
    """How inputs are to be cut; None where they go in as they are."""
    import numpy as np

    batched = [port for port in ports if np.ndim(feeds[port.name])]
    fixed = {port.shape[0] for port in batched if port.shape and port.shape[0] is not None}
    rows = {len(feeds[port.name]) for port in batched}
    if len(fixed) != 1 or len(rows) != 1:
        return None
    (size,), (count,) = fixed, rows
    if not size or not count or count == size:
        return None
    return _Cut(size, count, {port.name for port in batched})


def _filled(array: np.ndarray, size: int) -> np.ndarray:
    import numpy as np

    missing = size - len(array)
    return np.concatenate([array, *[array[-1:]] * missing]) if missing else array


def _without(output: np.ndarray, added: int, size: int) -> np.ndarray:
    """An output without what was computed of added rows, of each of which it has as much."""
    if not added or not output.ndim or len(output) % size:
        return output
    return output[: len(output) - added * (len(output) // size)]
