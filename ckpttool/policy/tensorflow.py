"""What TensorFlow would have left of a series: its two policies, replayed, with reasons.

The arithmetic is in `tensorflow_manager.py` and `tensorflow_saver.py`; here it is fed with
the facts of a directory and put into words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ckpttool.policy.facts import CheckpointFacts, Reason, Retention, RunFacts
from ckpttool.policy.tensorflow_manager import ManagerReplay
from ckpttool.policy.tensorflow_saver import SaverReplay
from ckpttool.policy.words import duration, ordinal

__all__ = ["TensorflowKeeps", "tensorflow_keeps"]

#: TensorFlow's default of a Saver's keep_checkpoint_every_n_hours.
_SAVER_HOURS = 10000.0
_HOUR = 3600.0


@dataclass(slots=True)
class TensorflowKeeps:
    """What TensorFlow would keep and delete, by prefix.

    ``unlisted`` are those that it keeps for ever but takes off its list; ``unless`` says
    what would have kept a deleted one.
    """

    keep: dict[str, Reason] = field(default_factory=dict)
    drop: dict[str, Reason] = field(default_factory=dict)
    unless: dict[str, str] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    last_preserved: float = 0.0


def tensorflow_keeps(
    ordered: Sequence[CheckpointFacts], facts: RunFacts, retention: Retention, now: float
) -> TensorflowKeeps:
    """What the policy's TensorFlow class would have left of ``ordered`` (oldest first)."""
    result = TensorflowKeeps(last_preserved=facts.last_preserved)
    if not ordered:
        return result
    if retention.style == "saver":
        _saver(ordered, retention, result)
    else:
        _manager(ordered, facts, retention, now, result)
    _count(ordered, retention, result)
    return result


def _manager(
    ordered: Sequence[CheckpointFacts],
    facts: RunFacts,
    retention: Retention,
    now: float,
    result: TensorflowKeeps,
) -> None:
    *earlier, newest = ordered
    if retention.scope == "listed":
        # As if the manager had been built just before it saved the newest.
        stamped = earlier if facts.stamped else []
        replay = ManagerReplay.recovered(
            [item.prefix for item in stamped],
            [math.nan if item.stamp is None else item.stamp for item in stamped],
            facts.last_preserved,
            now,
        )
    else:
        # As if one manager had saved them all.
        replay = ManagerReplay.started(min(item.time for item in ordered))
        if facts.stamped:
            replay.last_preserved = facts.last_preserved
        for item in earlier:
            replay.save(item.prefix, item.time)
    replay.save(newest.prefix, min(newest.time, now))
    # The order asked for, where it is not the one that the state file has.
    replay.managed = {
        item.prefix: replay.managed[item.prefix]
        for item in ordered
        if item.prefix in replay.managed
    }
    for item in ordered:
        if item.prefix not in replay.managed:
            result.keep[item.prefix] = Reason("not-managed", _why_not_managed(item, facts))
    every = retention.every_n_hours
    for swept in replay.sweep(retention.max_to_keep, every):
        if swept.outcome == "preserved":
            result.keep[swept.prefix] = Reason(
                "keep-every-n-hours",
                f"{duration(swept.since_preserved)} after the last preserved",
            )
            result.unlisted.add(swept.prefix)
            continue
        text = f"older than the newest {retention.max_to_keep}"
        if every:
            text += f", only {duration(swept.since_preserved)} after the last preserved"
        result.drop[swept.prefix] = Reason("max-to-keep", text)
        # Rounded down, so that what is suggested suffices.
        hours = swept.since_preserved / _HOUR
        if every and 0.01 <= hours < math.inf:
            hours = math.floor(hours * 100) / 100
            result.unless[swept.prefix] = f"--keep-every-n-hours {hours:g}"
    if facts.stamped:
        result.last_preserved = replay.last_preserved


def _why_not_managed(item: CheckpointFacts, facts: RunFacts) -> str:
    if not facts.stamped:
        return (
            "the state file has no times (a Saver wrote it), and a CheckpointManager "
            "never deletes what such a file lists"
        )
    if item.stamp is None or math.isnan(item.stamp):
        return "the state file has no time for it, so a CheckpointManager would not manage it"
    return (
        "not younger than the last preserved checkpoint, so a CheckpointManager would not manage it"
    )


def _saver(
    ordered: Sequence[CheckpointFacts], retention: Retention, result: TensorflowKeeps
) -> None:
    hours = _SAVER_HOURS if retention.every_n_hours is None else retention.every_n_hours
    built = min(item.saved for item in ordered) if retention.since is None else retention.since
    replay = SaverReplay(retention.max_to_keep, hours, built)
    for item in ordered:
        evicted = replay.save(item.prefix, item.saved)
        if evicted is None:
            continue
        late = evicted.timestamp - evicted.grid_time
        if evicted.outcome == "preserved":
            result.keep[evicted.prefix] = Reason(
                "keep-every-n-hours",
                f"{duration(late)} past a time of the every-{hours:g}-hours grid",
            )
            result.unlisted.add(evicted.prefix)
            continue
        text = f"older than the newest {retention.max_to_keep}"
        if retention.every_n_hours is not None:
            text += (
                f", and {duration(-late)} before the next time of the every-{hours:g}-hours grid"
            )
        result.drop[evicted.prefix] = Reason("max-to-keep", text)


def _count(
    ordered: Sequence[CheckpointFacts], retention: Retention, result: TensorflowKeeps
) -> None:
    """Words for the active ones, and how large the quota would have to be for the others."""
    place = 0
    for item in reversed(ordered):
        prefix = item.prefix
        if prefix in result.keep:
            continue
        place += 1
        if prefix not in result.drop:
            which = "newest" if place == 1 else f"{ordinal(place)} newest"
            result.keep[prefix] = Reason("max-to-keep", f"the {which} of {retention.max_to_keep}")
            continue
        also = result.unless.get(prefix)
        enough = f"--max-to-keep {place}"
        result.unless[prefix] = f"{enough} or {also}" if also else enough
