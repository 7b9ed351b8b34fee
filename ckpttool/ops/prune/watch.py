"""Pruning again and again beside a trainer, until asked to stop.

Each round plans and applies as one prune does; a round that cannot be done (the directory
is locked, or cannot be read for a while) is reported, and the next one tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    NotFoundError,
    StorageError,
)
from ckpttool.limits import Limits
from ckpttool.ops.prune.execute import PruneResult, apply_plan
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan, plan_prune

__all__ = ["Round", "watch"]

#: What may be otherwise in the next round, beside a trainer that writes.
_PASSING = (ChangedError, CorruptError, NotFoundError, StorageError)


@dataclass(frozen=True, slots=True)
class Round:
    """One round: when, and what it did, planned or met with."""

    time: float
    plan: PrunePlan | None = None
    result: PruneResult | None = None
    error: CkpttoolError | None = None


def watch(
    path: str,
    request: Request,
    *,
    trash: bool,
    wait: Callable[[], bool],
    limits: Limits | None = None,
) -> Iterator[Round]:
    """Prune, give the round, wait, prune again.

    Args:
        path: the run directory; it may not have a checkpoint yet.
        request: what to keep.
        trash: move into the trash instead of deleting.
        wait: called between rounds; true ends the watch.
        limits: bounds on what files may claim.

    Raises:
        UsageError, RefusedError, PermissionDeniedError: what waiting does not cure.
    """
    while True:
        now = time.time()
        try:
            plan = plan_prune(path, request, limits=limits)
            if plan.empty:
                yield Round(now, plan)
            else:
                result = apply_plan(plan, trash=trash, limits=limits)
                yield Round(now, result.plan, result)
        except _PASSING as error:
            yield Round(now, error=error)
        if wait():
            return
