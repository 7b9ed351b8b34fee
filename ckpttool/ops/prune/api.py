"""``plan_prune`` as Python calls it: the command's options as keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from ckpttool.limits import Limits
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan
from ckpttool.ops.prune.plan import plan_prune as plan_request
from ckpttool.policy.facts import Order, Retention
from ckpttool.sources.address import Address
from ckpttool.sources.filenames import STATE_FILE

__all__ = ["make_request", "plan_prune"]


def make_request(
    *,
    policy: Literal["manager", "saver"] = "manager",
    scope: Literal["listed", "all"] = "listed",
    max_to_keep: int | None = None,
    keep_every_n_hours: float | None = None,
    since: float | None = None,
    keep_every_n_steps: int | None = None,
    keep_within: float | None = None,
    keep_best: Sequence[str] = (),
    pin: Sequence[str] = (),
    max_total_size: int | None = None,
    broken: bool = False,
    include_preserved: bool = False,
    min_age: float = 60.0,
    order: Order | None = None,
    state_name: str = STATE_FILE,
) -> Request:
    """What to keep, under the names of the command's options; see ``plan_prune``."""
    return Request(
        Retention(
            style=policy,
            scope=scope,
            max_to_keep=max_to_keep,
            every_n_hours=keep_every_n_hours,
            since=since,
            every_n_steps=keep_every_n_steps,
            within=keep_within,
            max_total_bytes=max_total_size,
            broken=broken,
            include_preserved=include_preserved,
            min_age=min_age,
            order=order,
        ),
        tuple(pin),
        tuple(keep_best),
        state_name,
    )


def plan_prune(
    directory: Address,
    *,
    policy: Literal["manager", "saver"] = "manager",
    scope: Literal["listed", "all"] = "listed",
    max_to_keep: int | None = None,
    keep_every_n_hours: float | None = None,
    since: float | None = None,
    keep_every_n_steps: int | None = None,
    keep_within: float | None = None,
    keep_best: Sequence[str] = (),
    pin: Sequence[str] = (),
    max_total_size: int | None = None,
    broken: bool = False,
    include_preserved: bool = False,
    min_age: float = 60.0,
    order: Order | None = None,
    limits: Limits | None = None,
) -> PrunePlan:
    """Plan the pruning of a run directory; ``.apply()`` carries it out. Reads only.

    Keep rules unite; a rule that is not given keeps nothing. ``docs/prune.md`` has them all.

    Args:
        directory: the run directory: a ``str``, ``bytes`` or a path object.
        policy: whose word ``max_to_keep`` and ``keep_every_n_hours`` are: what this class of
            TensorFlow (CheckpointManager, Saver) would have left.
        scope: what the state file lists, or all checkpoints of the directory.
        max_to_keep: the newest stay.
        keep_every_n_hours: of those that ``max_to_keep`` lets go, one every so often stays.
        since: with the Saver's policy: when it was built, in seconds since the epoch.
        keep_every_n_steps: the first from each multiple on stays.
        keep_within: those at most this many seconds older than the newest stay.
        keep_best: ``FILE:METRIC:min|max:N``.
        pin: names or patterns of checkpoints that stay.
        max_total_size: bytes; of what stays, the oldest go until the rest fits.
        broken: incomplete checkpoints and leftovers of saves go too.
        include_preserved: with ``scope="all"``, also what TensorFlow may have preserved.
        min_age: seconds; what changed later is left alone. 0 lifts that.
        order: what says which is older: ``state``, ``name``, ``step`` or ``time``.
        limits: bounds on what files may claim.

    Raises:
        UsageError: id ``no-policy``: nothing says what may go.
        RefusedError: ids ``policy-keeps-nothing``, ``order-disagrees``, ``order-unknown``,
            ``metrics-match-nothing``.
        NotFoundError, CorruptError, LimitError, PermissionDeniedError, StorageError: the
            directory, its state file or a metrics file cannot be read.
    """
    request = make_request(
        policy=policy,
        scope=scope,
        max_to_keep=max_to_keep,
        keep_every_n_hours=keep_every_n_hours,
        since=since,
        keep_every_n_steps=keep_every_n_steps,
        keep_within=keep_within,
        keep_best=keep_best,
        pin=pin,
        max_total_size=max_total_size,
        broken=broken,
        include_preserved=include_preserved,
        min_age=min_age,
        order=order,
    )
    return plan_request(os.fsdecode(directory), request, limits=limits)
