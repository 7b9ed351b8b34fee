"""Which checkpoint is older: by the state file, the number in the name, the step, the time.

Pure. Knows how orders can contradict each other; does not decide what follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ckpttool.errors import RefusedError
from ckpttool.policy.facts import CheckpointFacts, Order

__all__ = ["arrange", "choose_order", "inversion", "other_order"]

#: Times this close say nothing about an order: file systems count in up to 2 seconds, and
#: a copy gives all files nearly one time.
_SAME_TIME = 2.0


def choose_order(checkpoints: Sequence[CheckpointFacts], scope: str) -> Order:
    """The first order that is known for all: state file, number, step inside, file time."""
    if all(item.listed is not None for item in checkpoints) and (
        scope == "listed" or all(item.stamp is not None for item in checkpoints)
    ):
        return "state"
    if all(item.number is not None for item in checkpoints):
        return "name"
    if all(item.step is not None for item in checkpoints):
        return "step"
    return "time"


def arrange(checkpoints: Sequence[CheckpointFacts], order: Order) -> list[CheckpointFacts]:
    """Oldest first; ties are broken by number and name, so a plan is deterministic.

    Raises:
        RefusedError: id ``order-unknown``: the order does not say where one of them is.
    """
    keys: list[tuple[float, float, str]] = []
    for item in checkpoints:
        place: float | int | None
        if order == "state":
            place = item.listed
        elif order == "name":
            place = item.number
        elif order == "step":
            place = item.step
        else:
            place = item.time
        if place is None:
            raise RefusedError(
                f"{item.prefix} cannot be put in an order",
                why=f"--order {order} was asked for, and {_UNKNOWN[order]}",
                hint="choose another --order: state, name, step or time",
                id="order-unknown",
            )
        keys.append((place, -1 if item.number is None else item.number, item.prefix))
    ranked = sorted(zip(keys, checkpoints, strict=True), key=lambda pair: pair[0])
    return [item for _, item in ranked]


_UNKNOWN = {
    "state": "the state file does not list it",
    "name": "its name ends with no number",
    "step": "no step is stored in it",
}


def other_order(checkpoints: Sequence[CheckpointFacts], order: Order) -> Order | None:
    """The order that could contradict ``order``: steps against times; None if unknown."""
    if order in {"name", "step"}:
        return "time"
    if all(item.number is not None for item in checkpoints):
        return "name"
    if all(item.step is not None for item in checkpoints):
        return "step"
    return None


def inversion(
    checkpoints: Sequence[CheckpointFacts], order: Order, other: Order
) -> tuple[CheckpointFacts, CheckpointFacts] | None:
    """Two checkpoints that ``order`` and ``other`` put the opposite way round, if any.

    One of the two orders is of steps, the other of times (a state file's list is one).
    """
    by_step = arrange(checkpoints, order if order in {"name", "step"} else other)
    latest: CheckpointFacts | None = None
    for item in by_step:
        if latest is not None and item.time < latest.time - _SAME_TIME:
            return latest, item
        if latest is None or item.time > latest.time:
            latest = item
    return None
