"""What a state file has to say after checkpoints went, and writing it so that no writer loses.

TensorFlow rewrites the file at every save from what it has in memory, so ours is written
only while no save can be under way, and only over the very file that was read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ckpttool.errors import ChangedError
from ckpttool.formats.state import CheckpointState
from ckpttool.formats.state_writer import format_state
from ckpttool.ops.prune.facts import own_name
from ckpttool.policy.words import ago
from ckpttool.sources.filenames import STATE_FILE
from ckpttool.sources.run import ListedPath
from ckpttool.sources.state_paths import Lost
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory

__all__ = ["activity", "replace_state", "without"]


def without(
    state: CheckpointState,
    listed: Sequence[ListedPath],
    dropped: Collection[str],
    *,
    latest: str | None = None,
    last_preserved: float | None = None,
) -> CheckpointState:
    """The state without the paths of ``dropped`` checkpoints and of those that are gone.

    Args:
        state: what the file says.
        listed: where its list leads, one for each of its paths.
        dropped: names of checkpoints that go off the list.
        latest: the new latest path, where the old one goes.
        last_preserved: the new time of the last preserved checkpoint; None leaves it.
    """
    kept = [
        place
        for place, item in enumerate(listed)
        if not _is_gone(item) and own_name(item) not in dropped
    ]
    times = state.all_model_checkpoint_timestamps
    changed = replace(
        state,
        model_checkpoint_path=state.model_checkpoint_path if latest is None else latest,
        all_model_checkpoint_paths=tuple(state.all_model_checkpoint_paths[i] for i in kept),
        all_model_checkpoint_timestamps=tuple(times[i] for i in kept if i < len(times)),
    )
    if last_preserved is not None:
        changed = replace(changed, last_preserved_timestamp=last_preserved)
    return changed


def _is_gone(item: ListedPath) -> bool:
    """A plain name of this directory of which nothing is there any more."""
    return isinstance(item.found, Lost) and not item.found.foreign and "/" not in item.stored


def activity(state: FileStat, newest: float, min_age: float, now: float) -> str:
    """Why a writer may be alive, so that the state file is left alone; empty if it is not.

    ``newest`` is when anything of a checkpoint or a save changed last.
    """
    if min_age <= 0:
        return ""
    for what, when in (("the state file", state.mtime_ns / 1e9), ("a checkpoint", newest)):
        if now - when < min_age:
            return f"{what} changed {ago(now - when)} (--min-age {min_age:g})"
    return ""


def replace_state(
    directory: LocalDirectory, seen: FileStat | None, state: CheckpointState, name: str = STATE_FILE
) -> bytes:
    """Write the state file over the one that was ``seen`` (None: there was none).

    It keeps the old one's time, which says when a trainer saved last, and not when we tidied.

    Raises:
        ChangedError: id ``state-changed``: another program has written it meanwhile.
    """
    data = format_state(state)
    try:
        with directory.create(name, overwrite=seen is not None, expected=seen) as file:
            file.write(data)
            file.commit()
    except ChangedError as error:
        raise ChangedError(
            f"the state file in {directory.path} was written by another program meanwhile",
            why=error.why,
            hint="its word stands; run the command again",
            id="state-changed",
        ) from None
    return data
