"""Several files that appear together: whole under their names, or not at all.

No file system renames many files at once, so the new files are first written beside the
old ones under names of our own, then a journal says what is to be moved and removed, and
then that is done. A process that dies before the journal stands has changed nothing; one
that dies later has left a journal, and ``finish_interrupted`` does the rest. While that
is outstanding the *last* file (a checkpoint's index) is absent, so that nothing half
replaced ever looks whole.

A new file can be given a *recipe*: what its bytes are made of. Its name of our own is then
made of that. It gets this name once its bytes are durable and not before, so one that a
killed run left under it is finished, and the next run with the same recipe takes it in.

Order of the durable states: new files; journal; the old last file goes; the other old
ones; new files get their names, the last one last; files of no more use go; the journal.
The caller holds the directory's lock all the while.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple, Self

from ckpttool.errors import CkpttoolError, CorruptError, RefusedError
from ckpttool.storage.base import Directory, FileStat, NewFile
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import OWN_PREFIX, unfinished
from ckpttool.storage.system import exists_error, raise_os_error

__all__ = ["COMMIT_JOURNAL", "NEW_PREFIX", "FileSet", "Recipe", "finish_interrupted"]

COMMIT_JOURNAL = f"{OWN_PREFIX}commit"
#: What every file is called before it has its name.
NEW_PREFIX = f"{OWN_PREFIX}new-"
_JOURNAL_BYTES = 64 * 2**20
_SCHEMA = "ckpttool.commit/1"


class Recipe(NamedTuple):
    """What a new file is made of: a digest of that, and how many bytes it makes."""

    digest: str
    nbytes: int

    @property
    def temporary(self) -> str:
        """The name of our own that the finished file has."""
        return f"{NEW_PREFIX}{self.digest}"

    def is_made(self, directory: Directory) -> bool:
        """Whether the finished file lies there."""
        found = directory.stat(self.temporary)
        return found is not None and (found.kind, found.size) == ("file", self.nbytes)


class FileSet:
    """Files being written into a directory; leaving the block without commit drops them.

    Several threads may create files at the same time.

    Args:
        directory: where they go; locked by the caller.
        overwrite: whether names that are taken are replaced.
    """

    def __init__(self, directory: LocalDirectory, *, overwrite: bool = False) -> None:
        self._directory = directory
        self._overwrite = overwrite
        self._token = os.urandom(6).hex()
        self._numbers = count()
        #: Final name → temporary name.
        self._files: dict[str, str] = {}
        self._has_journal = False

    @property
    def directory(self) -> LocalDirectory:
        """Where they go."""
        return self._directory

    def create(self, name: str, recipe: Recipe | None = None) -> NewFile:
        """Start a file that will be called ``name``.

        Its own ``commit`` makes its bytes durable, nothing more.

        Raises:
            RefusedError: id ``exists``: the name is taken and is not to be replaced.
            NotFoundError: the name is longer than the file system allows.
        """
        temporary = self._free(name) if recipe is None else recipe.temporary
        self._files[name] = temporary
        return self._directory.create(temporary)

    def take_in(self, name: str, recipe: Recipe) -> bool:
        """Whether a killed run has made this file already; it then becomes ``name``.

        Raises:
            RefusedError: id ``exists``: the name is taken and is not to be replaced.
        """
        self._free(name)
        if not recipe.is_made(self._directory):
            return False
        self._files[name] = recipe.temporary
        return True

    def _free(self, name: str) -> str:
        """Look whether a name may be used; returns a new one of our own.

        That the name is too long would else be found when the journal stands, and then
        nobody could carry it out.
        """
        if len(os.fsencode(name)) > self._directory.longest_name:
            too_long = OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            raise_os_error(too_long, f"cannot write {self._directory.path}/{name}")
        if not self._overwrite and self._directory.stat(name) is not None:
            raise exists_error(f"{self._directory.path}/{name}")
        return f"{NEW_PREFIX}{self._token}-{next(self._numbers)}"

    def link(self, name: str, source: Directory, expected: FileStat) -> None:
        """Take in an existing file of the same file system under another name, uncopied.

        Its bytes are made durable: whoever wrote it may not have.

        Raises:
            RefusedError: id ``exists``: the name is taken and is not to be replaced.
            ChangedError, StorageError, PermissionDeniedError: as ``Directory.link``.
        """
        temporary = self._free(name)
        self._files[name] = temporary
        try:
            source.link(expected, self._directory, temporary)
            with closing(self._directory.open(temporary)) as file:
                file.sync()
        except CkpttoolError:  # the caller may copy it instead
            self._drop(temporary)
            del self._files[name]
            raise

    def commit(self, last: str, remove: Sequence[str] = ()) -> None:
        """Give every file its name, ``last`` at the end, then remove other files.

        Args:
            last: the name without which the others mean nothing.
            remove: names in the directory of files that are of no more use.
        """
        order = [*sorted(self._files.keys() - {last}), last]
        taken = [name for name in order if self._directory.stat(name) is not None]
        if taken and not self._overwrite:
            raise exists_error(f"{self._directory.path}/{taken[0]}")
        journal = {
            "schema": _SCHEMA,
            "move": [[self._files[name], name] for name in order],
            "replace": taken,
            "remove": [name for name in remove if name not in self._files],
        }
        with self._directory.create(COMMIT_JOURNAL) as file:
            self._has_journal = True
            file.write(json.dumps(journal).encode())
            file.commit()
        files, self._files = self._files, {}
        try:
            _carry_out(self._directory, journal)
        except CkpttoolError:
            if _is_untouched(self._directory, journal):
                self._files = files  # dropped with the journal, which nobody could carry out
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._files and self._has_journal:
            # It may stand although its commit failed or was interrupted. Then it goes first: it
            # must not outlive the files that it would put in the place of the old ones.
            self._drop(COMMIT_JOURNAL)
            self._directory.sync()
        for temporary in self._files.values():
            self._drop(temporary)
            # A signal may have come between the making of a file and its first `with`.
            self._drop(unfinished(temporary))
        self._files = {}

    def _drop(self, name: str) -> None:
        found = self._directory.stat(name)
        if found is not None:
            self._directory.remove(found)


def finish_interrupted(
    directory: LocalDirectory, ours: Callable[[str], bool], wanted: Iterable[Recipe] = ()
) -> bool:
    """Do what a killed commit left undone, and remove files that never were committed.

    Args:
        directory: locked by the caller, so that whoever left these is dead.
        ours: whether a commit can concern a file of this name; a journal that names
            another was not written by us.
        wanted: finished files that are of use to whoever asks stay.

    Returns:
        Whether a commit was finished.

    Raises:
        CorruptError: id ``commit-journal``: the journal is not one of ours, or a name that
            was free then is taken by now.
    """
    journal = _read_journal(directory, ours)
    if journal is not None:
        try:
            _carry_out(directory, journal)
        except RefusedError as error:
            raise CorruptError(
                f"an interrupted write in {directory.path} cannot be finished",
                why=error.what,
                hint=f"it was not there when {COMMIT_JOURNAL} was written: "
                "move it elsewhere, then run the command again",
                id="commit-journal",
            ) from None
    kept = {recipe.temporary for recipe in wanted if recipe.is_made(directory)}
    for found in list(directory.scan()):
        half_written = found.name == unfinished(COMMIT_JOURNAL)
        left_over = found.name.startswith(NEW_PREFIX) and found.name not in kept
        if (half_written or left_over) and found.kind != "directory":
            directory.remove(found)
    return journal is not None


def _carry_out(directory: LocalDirectory, journal: dict[str, Any]) -> None:
    """The moves and removals of a journal; each is skipped where it is done already."""
    last = journal["move"][-1][1]
    waiting = []
    for temporary, name in journal["move"]:
        found = directory.stat(temporary)
        if found is not None:
            waiting.append((found, name))
    for _, name in waiting:
        if name not in journal["replace"] and directory.stat(name) is not None:
            raise exists_error(f"{directory.path}/{name}")  # it came after we had looked
    for _, name in reversed(waiting):  # the last one's old file goes first
        old = directory.stat(name)
        if old is None:
            continue
        directory.remove(old)
        if name == last:
            directory.sync()
    for found, name in waiting:
        if name == last:
            directory.sync()  # the others have their names before the last one has
        directory.move(found, directory, name)
    directory.sync()
    for name in journal["remove"]:
        old = directory.stat(name)
        if old is not None:
            directory.remove(old)
    done = directory.stat(COMMIT_JOURNAL)
    if done is not None:
        directory.remove(done)
    directory.sync()


def _is_untouched(directory: LocalDirectory, journal: dict[str, Any]) -> bool:
    """Whether nothing of a journal was done."""
    names = [*(temporary for temporary, _ in journal["move"]), *journal["replace"]]
    return all(directory.stat(name) is not None for name in names)


def _read_journal(directory: LocalDirectory, ours: Callable[[str], bool]) -> dict[str, Any] | None:
    if directory.stat(COMMIT_JOURNAL) is None:
        return None
    file = directory.open(COMMIT_JOURNAL)
    try:
        if file.stat.size > _JOURNAL_BYTES:
            raise _not_ours(file.path, f"it has {file.stat.size} bytes")
        data = file.pread(0, file.stat.size)
        path = file.path
    finally:
        file.close()
    try:
        journal = json.loads(data)
        moves, removals = journal["move"], journal["remove"]
        replaced = [name for name in journal["replace"] if isinstance(name, str)]
        for temporary, name in moves:
            if not temporary.startswith(NEW_PREFIX) or "/" in temporary or not ours(name):
                raise _not_ours(path, f"it would move {temporary!r} to {name!r}")
        for name in removals:
            if not ours(name):
                raise _not_ours(path, f"it would remove {name!r}")
        if journal["schema"] != _SCHEMA or not moves:
            raise _not_ours(path, f"its schema is {journal['schema']!r}")
    except CkpttoolError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _not_ours(path, f"{type(error).__name__}: {error}") from None
    return {"schema": _SCHEMA, "move": moves, "replace": replaced, "remove": removals}


def _not_ours(path: str, why: str) -> CorruptError:
    return CorruptError(
        f"{path} is no journal of an interrupted write",
        why=why,
        hint="look at the file, and remove it if nothing is being written here",
        id="commit-journal",
    )
