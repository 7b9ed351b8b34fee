"""Taking a removal back, and emptying the trash: the trash's work under the run's lock.

The state file gets its old text back when it still says what our removal wrote; when
another program wrote it since, that program's word stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ckpttool.ops.prune.apply import finish_interrupted
from ckpttool.ops.prune.trash import StateNow, empty_trash, finish_undo, undo
from ckpttool.storage import open_directory
from ckpttool.storage.lock import DirectoryLock

__all__ = ["UndoResult", "empty", "take_back"]


@dataclass(slots=True)
class UndoResult:
    """What came back, what did not and why, and what became of the state file.

    ``emptied`` is true where the trash was emptied instead; then ``prefixes`` are gone.
    """

    directory: str
    id: str = ""
    emptied: bool = False
    prefixes: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    nbytes: int = 0
    state: StateNow = "unchanged"


def take_back(path: str, id: str = "") -> UndoResult:
    """Give back what the last removal (or the one called ``id``) moved into the trash.

    Raises:
        NotFoundError: id ``trash-not-found``. ChangedError: id ``locked``.
        CorruptError: id ``record-corrupt``.
    """
    with open_directory(path) as directory, DirectoryLock(directory):
        # An undo that was killed is what was asked for, and is finished; and a removal that
        # was interrupted is completed first, so that undo meets whole ones.
        resumed = finish_undo(directory)
        finish_interrupted(directory)
        restored = resumed[-1] if resumed and not id else undo(directory, id)
        return UndoResult(
            path,
            restored.id,
            prefixes=restored.prefixes,
            refused=restored.refused,
            nbytes=restored.nbytes,
            state=restored.state_now,
        )


def empty(path: str) -> UndoResult:
    """Remove everything in the trash for good.

    Raises:
        as ``take_back``; an empty trash is no error.
    """
    with open_directory(path) as directory, DirectoryLock(directory):
        finish_interrupted(directory)
        prefixes, freed = empty_trash(directory)
        return UndoResult(path, emptied=True, prefixes=prefixes, nbytes=freed)
