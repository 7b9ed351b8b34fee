"""State files besides the run's own: which files are one, and which checkpoints they name.

Whatever one of them names stays, so one that cannot be read is not passed over: it is
handed out with its error, and who removes anything refuses. Any file may be one
(``latest_filename``); they are known by their first bytes, or by a name like
``best_checkpoint``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ckpttool.errors import CkpttoolError, CorruptError, UnsafeError
from ckpttool.formats.sniff import Sniffed
from ckpttool.limits import Limits
from ckpttool.ops.prune.file_kinds import kind_of
from ckpttool.sources.filenames import STATE_FILE, join, split_number
from ckpttool.sources.run import StateFile, read_state_file
from ckpttool.sources.state_paths import Located, StatePaths
from ckpttool.storage import open_directory, stat_path
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory

__all__ = ["is_state", "linked_state", "may_be_state", "names_in", "refuse_unreadable", "states_in"]


def may_be_state(name: str) -> bool:
    """Whether a file of this name is taken for a state file even if it cannot be read."""
    if split_number(name)[1] is not None:
        return False
    return "checkpoint" in name or "." not in name.lstrip(".")


def is_state(name: str, kind: Sniffed) -> bool:
    """Whether a file is a state file, a damaged one too."""
    return kind.kind == "state" or (name.endswith(STATE_FILE) and not kind.named)


def linked_state(directory: LocalDirectory, name: str, own: str) -> StateFile | None:
    """A link that may stand for a state file, as one that cannot be read; else None.

    ``own`` is the name of the run's own state file, which may have several names.
    """
    path = join(directory.path, name)
    target = stat_path(path)
    here = directory.stat(own)
    if not may_be_state(name) or (target is not None and target.kind != "file"):
        return None
    if target is None and not name.endswith(STATE_FILE):
        return None
    if target is not None and here is not None and target.inode == here.inode:
        return None
    real = os.path.realpath(path)
    try:
        with open_directory(os.path.dirname(real)) as there:
            base = os.path.basename(real)
            if not is_state(name, kind_of(there, base)):
                return None
    except CkpttoolError:
        pass  # what it stands for cannot be read
    return StateFile(
        name,
        path,
        None,
        UnsafeError(f"{path} is a symbolic link", why=f"it leads to {real}", id="unsafe-link"),
    )


def states_in(directory: LocalDirectory, limits: Limits) -> Iterator[StateFile]:
    """The state files of a directory of which nothing else is of interest."""
    for entry in directory.scan():
        if not may_be_state(entry.name) or entry.kind not in {"file", "link"}:
            continue
        if entry.kind == "link":
            state = linked_state(directory, entry.name, STATE_FILE)
        else:
            try:
                if not is_state(entry.name, kind_of(directory, entry.name)):
                    continue
            except CkpttoolError as error:
                path = join(directory.path, entry.name)
                yield StateFile(entry.name, path, None, error)
                continue
            state = read_state_file(directory, limits, entry.name)
        if state is not None:
            yield state


def names_in(directory: LocalDirectory, state_file: StateFile, run: FileStat) -> set[str]:
    """The prefixes in the directory ``run`` that a state file of ``directory`` names."""
    if state_file.state is None:
        return set()
    paths = StatePaths(directory, state_file.name)
    state = state_file.state
    named = set()
    for stored in filter(None, [state.model_checkpoint_path, *state.all_model_checkpoint_paths]):
        place = paths.find(stored)
        if not isinstance(place, Located):
            continue
        there = stat_path(place.directory or ".")
        if there is not None and (there.device, there.inode) == (run.device, run.inode):
            named.add(place.prefix)
    return named


def refuse_unreadable(state_file: StateFile) -> None:
    """Refuse to go on where it is not known what a state file names.

    Raises:
        CorruptError: id ``state-unreadable``.
    """
    if state_file.error is not None:
        raise CorruptError(
            f"what {state_file.path} names is not known",
            why=str(state_file.error),
            hint="whatever a state file names stays: mend that one, or move it away",
            id="state-unreadable",
        )
