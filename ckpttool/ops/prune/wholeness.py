"""Whether checkpoints are whole: by their names for all, from the index for those that count.

Names alone tell that a shard is missing. That every shard is as long as the index says is
proven by reading the index, and only of the few checkpoints that a decision rests on.
"""

from __future__ import annotations

from ckpttool.limits import Limits
from ckpttool.ops.prune.survey import Stored
from ckpttool.sources.run import Checkpoint
from ckpttool.sources.whole import flaws
from ckpttool.storage.local import LocalDirectory

__all__ = ["missing", "missing_by_names"]


def missing_by_names(stored: Stored) -> bool:
    """Whether the names and sizes of its files leave it in doubt that it is whole."""
    if stored.v2 is None:
        return stored.nbytes == 0
    return not any(
        _is_complete(stored.v2, count) for count in {shard.shards for shard in stored.v2.shards}
    )


def missing(directory: LocalDirectory, stored: Stored, limits: Limits) -> str:
    """Why a checkpoint is not whole, with its index read; empty when it is.

    Reads no data: checksums are the affair of `verify`. Kinds other than V2 were recognised
    by their bytes, and say nothing more.
    """
    if stored.v2 is None:
        return "the file is empty" if stored.nbytes == 0 else ""
    found = flaws(directory, stored.prefix, limits)
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0]}{more}"


def _is_complete(checkpoint: Checkpoint, count: int) -> bool:
    return sum(1 for shard in checkpoint.shards if shard.shards == count) == count
