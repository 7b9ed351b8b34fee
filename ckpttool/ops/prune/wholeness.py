"""Whether checkpoints are whole: by their names for all, from the index for those that count.

Names alone tell that a shard is missing. That every shard is as long as the index says is
proven by reading the index, and only of the few checkpoints that a decision rests on.
"""

from __future__ import annotations

from typing import NamedTuple

from ckpttool.limits import Limits
from ckpttool.ops.prune.survey import Stored
from ckpttool.sources.run import Checkpoint
from ckpttool.sources.whole import flaws
from ckpttool.storage.local import LocalDirectory

__all__ = ["Judgement", "judge", "missing", "missing_by_names"]


def missing_by_names(stored: Stored) -> bool:
    """Whether the names and sizes of its files leave it in doubt that it is whole."""
    if stored.v2 is None:
        return bool(stored.flaw)
    return not any(
        _is_complete(stored.v2, count) for count in {shard.shards for shard in stored.v2.shards}
    )


class Judgement(NamedTuple):
    """Why a checkpoint is proven not to be whole, or why that is not known; else both empty."""

    broken: str = ""
    unknown: str = ""


def judge(directory: LocalDirectory, stored: Stored, limits: Limits) -> Judgement:
    """Whether a checkpoint is whole, with its index read.

    Reads no data: checksums are the affair of `verify`. Of kinds other than V2 the ends were
    looked at when they were recognised.
    """
    if stored.v2 is None:
        return Judgement(broken=stored.flaw)
    found = flaws(directory, stored.prefix, limits)
    if not found:
        return Judgement()
    doubtful = [flaw for flaw in found if not flaw.certain]
    said = f"{(doubtful or found)[0]}"
    if len(found) > 1:
        said += f" (and {len(found) - 1} more)"
    return Judgement(unknown=said) if doubtful else Judgement(broken=said)


def missing(directory: LocalDirectory, stored: Stored, limits: Limits) -> str:
    """Why a checkpoint is not known to be whole; empty when it is."""
    judgement = judge(directory, stored, limits)
    return judgement.broken or judgement.unknown


def _is_complete(checkpoint: Checkpoint, count: int) -> bool:
    return sum(1 for shard in checkpoint.shards if shard.shards == count) == count
