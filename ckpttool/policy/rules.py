"""The keep rules beyond TensorFlow's: within a time, every N steps, best, a total size.

Each is a pure function over the checkpoints of one series, oldest first, and answers
with a reason for every prefix that it keeps (the size bound: for every one it gives up).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ckpttool.policy.facts import BestRule, CheckpointFacts, Reason
from ckpttool.policy.words import duration, size

__all__ = ["keep_best", "keep_every_n_steps", "keep_within", "over_total"]


def keep_within(ordered: Sequence[CheckpointFacts], within: float, now: float) -> dict[str, Reason]:
    """Those saved at most ``within`` seconds before the newest that is not in the future."""
    sane = [item.time for item in ordered if item.time <= now]
    if not sane:
        return {}
    newest = max(sane)
    return {
        item.prefix: Reason(
            "keep-within",
            f"{duration(newest - item.time)} before the newest (--keep-within {duration(within)})"
            if item.time < newest
            else f"the newest that --keep-within {duration(within)} counts from",
        )
        for item in ordered
        if newest - within <= item.time <= now
    }


def keep_every_n_steps(ordered: Sequence[CheckpointFacts], steps: int) -> dict[str, Reason]:
    """The first at or after each multiple of ``steps``; those without a step match nothing."""
    first: dict[int, CheckpointFacts] = {}
    for item in ordered:
        if item.position is None:
            continue
        bucket = item.position // steps
        held = first.get(bucket)
        if held is None or item.position < (held.position or 0):
            first[bucket] = item
    return {
        item.prefix: Reason(
            "keep-every-n-steps",
            f"step {item.position} is the first from {bucket * steps} on "
            f"(--keep-every-n-steps {steps})",
        )
        for bucket, item in first.items()
    }


def keep_best(ordered: Sequence[CheckpointFacts], rule: BestRule) -> dict[str, Reason]:
    """The ``rule.count`` best; of equal ones the newer. Without a number none is kept."""
    scored = [
        (rule.scores[item.prefix], age, item)
        for age, item in enumerate(ordered)
        if not math.isnan(rule.scores.get(item.prefix, math.nan))
    ]
    sign = 1.0 if rule.mode == "min" else -1.0
    scored.sort(key=lambda entry: (sign * entry[0], -entry[1]))
    return {
        item.prefix: Reason(
            "keep-best", f"{rule.label}: {score:g}, number {place} of the best {rule.count}"
        )
        for place, (score, _, item) in enumerate(scored[: rule.count], start=1)
    }


def over_total(
    kept: Sequence[CheckpointFacts], safe: Mapping[str, object], limit: int
) -> dict[str, Reason]:
    """Those of ``kept``, oldest first, that must go until the rest fits into ``limit`` bytes.

    What is in ``safe`` never goes, so the rest may still not fit.
    """
    total = sum(item.nbytes for item in kept)
    given_up: dict[str, Reason] = {}
    for item in kept:
        if total <= limit:
            break
        if item.prefix in safe:
            continue
        given_up[item.prefix] = Reason(
            "max-total-size",
            f"the oldest of {size(total)} that are kept (--max-total-size {size(limit)})",
        )
        total -= item.nbytes
    return given_up
