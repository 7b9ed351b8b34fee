"""Where in the name of a slot, or of an average, that of its variable stands.

``w/Adam``, ``w/part_0/Ftrl``, ``OptimizeLoss/w/Momentum``, ``training/Adagrad/w/accumulator``,
``w/ExponentialMovingAverage``, ``w_slot_vr``. Pure; which names are slots at all is
``sources/kinds.py``'s.
"""

from __future__ import annotations

import re
from collections.abc import Container

__all__ = ["base_of_slot"]

_PART = re.compile(r"/part_[0-9]{1,6}$")
_MESH = "_slot_"


def base_of_slot(name: str, names: Container[str]) -> tuple[int, int] | None:
    """Where in a slot's name that of its variable stands; None where no variable fits.

    The longest name that exists is taken, so ``a/w/Adam`` belongs to ``a/w`` and not to
    ``w``.
    """
    stop = name.rfind("/")
    if stop < 0:
        stop = name.rfind(_MESH)
        return (0, stop) if stop > 0 and name[:stop] in names else None
    mesh = name.rfind(_MESH)
    stops = [mesh] if mesh > stop else [stop]
    part = _PART.search(name, 0, stop)
    if part is not None:
        stops.append(part.start())
    for end in stops:
        start = 0
        while start < end:
            if name[start:end] in names:
                return start, end
            slash = name.find("/", start, end)
            if slash < 0:
                break
            start = slash + 1
    return None
