"""Removing checkpoints so that a kill at any moment leaves nothing half believed.

Order of the durable states: the journal; every index; every data file and graph; the state
file; the journal's end. Indexes go first, so whatever is left of a checkpoint never looks
whole; the journal lets the next run finish. A file is removed only while it is the very one
that was planned (name, inode, size, time).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    NoSpaceError,
    NotFoundError,
    UnsafeError,
)
from ckpttool.ops.prune.removal import (
    Removal,
    decode_json,
    encode_json,
    removals_from,
    removals_to,
)
from ckpttool.ops.prune.trash import Trash, finish_undo, tidy
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory

__all__ = ["JOURNAL_NAME", "Removed", "finish_interrupted", "interrupted", "remove"]

JOURNAL_NAME = ".ckpttool-journal"
_SCHEMA = "ckpttool.journal/1"


@dataclass(slots=True)
class Removed:
    """What a removal came to.

    Attributes:
        prefixes: those that are gone.
        freed: bytes of the files that are gone for good.
        trashed: bytes of those that lie in the trash.
        skipped: prefix and reason of those that were left because they had changed.
        failed: prefix and error of those that the system did not let go.
    """

    prefixes: list[str] = field(default_factory=list)
    freed: int = 0
    trashed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, CkpttoolError]] = field(default_factory=list)


def remove(
    directory: LocalDirectory,
    removals: Sequence[Removal],
    trash: Trash | None,
    finish: Callable[[Removed], None],
    progress: Callable[[int, int], None] | None = None,
) -> Removed:
    """Remove (or move into ``trash``) whole checkpoints; the caller holds the lock.

    ``finish`` is called when the files are gone and before the journal ends: it rewrites
    the state file. One that was changed since it was looked at is skipped; one that the
    system refuses is reported, and the others go on.
    """
    try:
        _write_journal(directory, removals, trash)
    except NoSpaceError:
        # A full disk is when one prunes. Without a journal a kill leaves data files without
        # an index, which look like nothing whole and are what --broken removes.
        if trash is not None:
            raise
    removed = _carry_out(directory, removals, trash, progress)
    finish(removed)
    if not removed.failed:
        _end_journal(directory)
    return removed


def interrupted(directory: LocalDirectory) -> tuple[Removal, ...]:
    """What a removal that was interrupted had planned; empty when there was none."""
    journal = _read_journal(directory)
    return journal[0] if journal else ()


def finish_interrupted(directory: LocalDirectory) -> list[str]:
    """Finish what an interrupted removal had begun; the caller holds the lock.

    Begun is what has lost its index. The rest is for the policy to decide anew: a person may
    have pinned it since, or a trainer may have gone back to it.

    Returns:
        The prefixes of which something was still there.

    Raises:
        CkpttoolError: the system does not let go of a file; the journal stays.
    """
    tidy(directory)
    finish_undo(directory)
    journal = _read_journal(directory)
    if journal is None:
        return []
    removals, trash_id = journal
    begun = [one for one in removals if _is_begun(directory, one)]
    trash = Trash.existing(directory, trash_id) if trash_id and begun else None
    removed = _carry_out(directory, begun, trash, None)
    if removed.failed:
        raise removed.failed[0][1]
    _end_journal(directory)
    return removed.prefixes


def _is_begun(directory: LocalDirectory, removal: Removal) -> bool:
    """Whether the first file is gone and another one is still there."""
    if not removal.files:
        return directory.stat(removal.folder) is not None
    first, *rest = removal.files
    if not removal.folder:
        return directory.stat(first.name) is None and any(
            directory.stat(file.name) is not None for file in rest
        )
    try:
        with directory.directory(removal.folder) as folder:
            return folder.stat(first.name) is None
    except (NotFoundError, UnsafeError):
        return False


def _carry_out(
    directory: LocalDirectory,
    removals: Sequence[Removal],
    trash: Trash | None,
    progress: Callable[[int, int], None] | None,
) -> Removed:
    removed = Removed()
    total = sum(removal.nbytes for removal in removals)
    # The first file decides: once the index is gone, the rest follows.
    going = [one for one in removals if _attempt(removed, directory, one, trash, 0)]
    directory.sync()
    done = 0
    for removal in going:
        if _attempt(removed, directory, removal, trash, 1):
            removed.prefixes.append(removal.prefix)
            if trash:
                removed.trashed += removal.nbytes
            else:
                removed.freed += removal.nbytes
        done += removal.nbytes
        if progress:
            progress(done, total)
    directory.sync()
    if trash:
        trash.sync()
    return removed


def _attempt(
    removed: Removed,
    directory: LocalDirectory,
    removal: Removal,
    trash: Trash | None,
    part: Literal[0, 1],
) -> bool:
    try:
        _remove_files(directory, removal, trash, part)
    except ChangedError as error:
        removed.skipped.append((removal.prefix, str(error)))
    except CkpttoolError as error:
        removed.failed.append((removal.prefix, error))
    else:
        return True
    return False


def _remove_files(
    directory: LocalDirectory, removal: Removal, trash: Trash | None, part: Literal[0, 1]
) -> None:
    """Part 0: the first file; part 1: the others, and the folder.

    A file that has gone already is no matter: an interrupted run got that far, or the
    trainer removes the same checkpoint.
    """
    files = removal.files[:1] if part == 0 else removal.files[1:]
    if not removal.folder:
        for file in files:
            _remove_file(directory, removal, file, trash)
        return
    try:
        folder = directory.directory(removal.folder)
    except NotFoundError:
        return
    with folder:
        for file in files:
            _remove_file(folder, removal, file, trash)
    if part == 1:
        directory.remove_directory(removal.folder)


def _remove_file(
    where: LocalDirectory, removal: Removal, file: FileStat, trash: Trash | None
) -> None:
    if where.stat(file.name) is None:
        return
    if trash:
        trash.take(where, removal, file)
    else:
        where.remove(file)


def _write_journal(
    directory: LocalDirectory, removals: Sequence[Removal], trash: Trash | None
) -> None:
    record = {
        "schema": _SCHEMA,
        "trash": trash.id if trash else "",
        "removals": removals_to(removals),
    }
    with directory.create(JOURNAL_NAME) as file:
        file.write(encode_json(record))
        file.commit()


def _read_journal(directory: LocalDirectory) -> tuple[tuple[Removal, ...], str] | None:
    if directory.stat(JOURNAL_NAME) is None:
        return None
    file = directory.open(JOURNAL_NAME)
    try:
        record = decode_json(file.pread(0, file.stat.size), file.path, _SCHEMA)
    finally:
        file.close()
    return removals_from(record.get("removals"), file.path), str(record.get("trash", ""))


def _end_journal(directory: LocalDirectory) -> None:
    found = directory.stat(JOURNAL_NAME)
    if found is not None:
        directory.remove(found)
        directory.sync()
