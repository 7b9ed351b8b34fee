"""Checkpoints that TensorFlow may have preserved for ever: what it preserves it takes off its list.

So "unlisted" can mean "protected". What is preserved is older than all that is listed; a
copied file's time does not show that, but its number does.
"""

from __future__ import annotations

from collections.abc import Mapping

from ckpttool.errors import CkpttoolError
from ckpttool.formats.bundle import OBJECT_GRAPH_KEY, BundleIndex
from ckpttool.limits import Limits
from ckpttool.ops.prune.survey import Stored, Survey
from ckpttool.sources.filenames import index_name
from ckpttool.storage.local import LocalDirectory

__all__ = ["preserved"]

_WHY = "unlisted and older than what is listed: TensorFlow may have preserved it"


def preserved(
    directory: LocalDirectory,
    found: Survey,
    listed: Mapping[str, object],
    last_preserved: float | None,
    limits: Limits,
) -> dict[str, str]:
    """Unlisted checkpoints that may be preserved, each with why.

    ``last_preserved`` is the time in a CheckpointManager's state file; None for a state file
    without times, which a Saver wrote (``keep_checkpoint_every_n_hours``), or Keras.
    """
    here = [found.stored[name] for name in listed if name in found.stored]
    if last_preserved is None and not here:
        return {}
    series = {stored.series for stored in here}
    lowest: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for stored in here:
        kind = stored.series
        oldest[kind] = min(stored.saved_ns, oldest.get(kind, stored.saved_ns))
        if stored.number is not None:
            lowest[kind] = min(stored.number, lowest.get(kind, stored.number))
    kept = {}
    for name, stored in found.stored.items():
        if name in listed or (series and stored.series not in series):
            continue
        early = stored.number is not None and stored.number < lowest.get(stored.series, 0)
        if last_preserved is not None:
            early = early or stored.saved_ns / 1e9 <= last_preserved + 1
        elif stored.number is None:
            early = stored.saved_ns < oldest[stored.series]
        if not early:
            continue
        # tf.train.Checkpoint.save and Keras list the newest alone, and preserve nothing.
        alone = last_preserved is None and len(found.run.listed) == 1
        if alone and _is_object_based(directory, stored, limits):
            continue
        kept[name] = _WHY
    return kept


def _is_object_based(directory: LocalDirectory, stored: Stored, limits: Limits) -> bool:
    """Whether tf.train.Checkpoint or Keras wrote it: it has an object graph and no ``.meta``."""
    if stored.v2 is None or stored.v2.has_graph:
        return False
    try:
        file = directory.open(index_name(stored.prefix))
        try:
            return BundleIndex(file, limits).get(OBJECT_GRAPH_KEY.encode()) is not None
        finally:
            file.close()
    except CkpttoolError:
        return False
