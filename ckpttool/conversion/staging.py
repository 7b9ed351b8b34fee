"""Where a result is made before it stands at its destination, whole.

A directory of our own beside the destination, on the same file system: what is made there
is moved at the end, companions first, the artefact itself last, and what belonged to the
former one goes. A failure leaves nothing, a killed process a directory that the next
conversion beside it removes. Errors name the destination, not this place. Knows no target.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from stat import S_ISREG
from types import TracebackType
from typing import Literal, Self

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    NotFoundError,
    RefusedError,
    UsageError,
)
from ckpttool.storage import FileStat, open_directory, require_directory
from ckpttool.storage.base import KIND_WORDS
from ckpttool.storage.exchange import exchange
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import OWN_PREFIX
from ckpttool.storage.lock import DirectoryLock
from ckpttool.storage.system import exists_error, fsync, raise_os_error

__all__ = ["Output", "Staging", "require_free"]

_PREFIX = f"{OWN_PREFIX}convert-"
#: Seconds after which a place has its lock.
_JUST_NOW = 60
_RESULT = "result"
_SCRATCH = "scratch"
#: In there: what a new result takes the place of, while it does.
_FORMER = ".ckpttool-former"


@dataclass(frozen=True, slots=True)
class Output:
    """A file of the result: its final path, and its bytes."""

    path: str
    nbytes: int


def require_free(
    destination: str,
    form: Literal["file", "directory"],
    marks: Sequence[str],
    *,
    overwrite: bool,
) -> None:
    """Check that a result may stand at a destination.

    A directory is replaced only where it is a former result of the same kind, or empty: a
    slip of the pen must not cost anybody a directory of other things.

    Args:
        destination: the path.
        form: what is to stand there.
        marks: files one of which a directory of this kind has.
        overwrite: whether a former result may be replaced.

    Raises:
        UsageError: ids ``empty-address``, ``destination-form``.
        NotFoundError: id ``destination-directory``: there is no directory to write into.
        RefusedError: ids ``exists``, ``destination-other``.
    """
    folder, base = _split(destination)
    require_directory(folder, destination)
    with open_directory(folder) as directory:
        there = directory.stat(base)
        if there is None:
            return
        if there.kind != form:
            raise UsageError(
                f"cannot write {destination}",
                why=f"the result is a {form}, and {KIND_WORDS[there.kind]} is there",
                hint="give another name",
                id="destination-form",
            )
        if not overwrite:
            raise exists_error(destination)
        if form == "directory":
            with directory.directory(base) as old:
                names = [entry.name for entry in old.scan()]
            if names and not set(names) & set(marks):
                raise RefusedError(
                    f"{destination} is not replaced",
                    why=f"none of what it holds is {' or '.join(marks)}, so it is no former result",
                    hint="give another name, or remove it yourself",
                    id="destination-other",
                )


class Staging:
    """The place where a result is made; leaving the block without ``commit`` drops it.

    Args:
        destination: where the result is to stand.
        overwrite: whether what stands there may be replaced.

    Attributes:
        artefact: the path at which the result is to be written, a file or a directory,
            with the destination's own base name. Companions of a file lie beside it, with
            names that begin with its own.
        scratch: the path of a directory for whatever else is needed meanwhile.
        replaced: names beside the artefact that are replaced whatever ``overwrite`` says.
        outdated: names beside the artefact that go with what it replaces, unless the new
            result has them too.
    """

    artefact: str
    scratch: str
    replaced: set[str]
    outdated: set[str]

    def __init__(self, destination: str, *, overwrite: bool) -> None:
        self._folder, self._base = _split(destination)
        self._overwrite = overwrite
        self._name = f"{_PREFIX}{os.urandom(6).hex()}"
        self._stack = ExitStack()
        self.replaced = set()
        self.outdated = set()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self._directory = stack.enter_context(open_directory(self._folder))
            _remove_dead(self._directory)
            stack.callback(self._remove)  # first: a signal may come at any moment
            place = stack.enter_context(self._directory.directory(self._name, create=True))
            stack.enter_context(DirectoryLock(place))
            for part in (_RESULT, _SCRATCH):
                place.directory(part, create=True).close()
            root = os.path.join(self._folder, self._name)
            self.artefact = os.path.join(root, _RESULT, self._base)
            self.scratch = os.path.join(root, _SCRATCH)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(value, CkpttoolError):
            self._name_destination(value)
        self._stack.close()

    def _name_destination(self, error: CkpttoolError) -> None:
        """Let an error name the path that a person gave: this place is gone when it is read."""
        made = os.path.join(os.path.dirname(self.artefact), "")
        shown = "" if self._folder == "." else os.path.join(self._folder, "")
        names = {
            os.path.abspath(made) + os.sep: os.path.join(os.path.abspath(self._folder), ""),
            made: shown,
            os.path.dirname(made): self._folder,
            os.path.abspath(self.scratch): os.path.abspath(self._folder),
        }
        for place, own in names.items():
            error.what = error.what.replace(place, own)
            error.why = error.why.replace(place, own)
            error.hint = error.hint.replace(place, own)

    def _remove(self) -> None:
        place = os.path.join(self._folder, self._name)
        try:
            shutil.rmtree(place, ignore_errors=True)
        except BaseException:  # the signal that ends us; a second one ends us at once
            shutil.rmtree(place, ignore_errors=True)
            raise

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The files of the result as they are now, under their final paths, by path."""
        root = os.path.dirname(self.artefact)
        found = []
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                final = os.path.join(self._folder, os.path.relpath(path, root))
                found.append(Output(os.path.normpath(final), os.lstat(path).st_size))
        return tuple(sorted(found, key=lambda one: one.path))

    def staged(self, output: Output) -> str:
        """Where a file of ``outputs`` lies until ``commit``."""
        inside = os.path.relpath(output.path, self._folder)
        return os.path.join(os.path.dirname(self.artefact), inside)

    def commit(self) -> tuple[str, ...]:
        """Make the result durable and move it to its destination.

        What fails or is interrupted before the artefact stands there is undone. A killed
        process leaves no artefact rather than a former one beside new companions.

        Returns:
            names of ``outdated`` that could not be removed.

        Raises:
            RefusedError: id ``exists``: something stands there, or came meanwhile.
            ChangedError: id ``destination-changed``.
            NoSpaceError, PermissionDeniedError, StorageError: as the system says.
        """
        root = os.path.dirname(self.artefact)
        _make_durable(root)
        with (
            open_directory(root) as made,
            open_directory(self.scratch) as aside,
            DirectoryLock(self._directory),
        ):
            entries = sorted(made.scan(), key=lambda entry: entry.name == self._base)
            there = {entry.name for entry in entries if self._is_replaced(entry)}
            with ExitStack() as undo:
                if there - self.replaced - {self._base}:
                    self._take_aside(aside, undo)
                for entry in entries:  # the artefact comes last
                    self._place(made, entry, undo)
                undo.pop_all()
            stay = self._remove_outdated({entry.name for entry in entries})
            self._directory.sync()
        return stay

    def _is_replaced(self, entry: FileStat) -> bool:
        """Whether something of this name goes; raises where it may not."""
        there = self._directory.stat(entry.name)
        if there is None:
            return False
        former = entry.name == self._base or entry.name in self.outdated
        if not (self._overwrite and former) and entry.name not in self.replaced:
            raise exists_error(self._shown(entry.name))
        if there.kind != entry.kind:
            raise ChangedError(
                f"{self._shown(entry.name)} is not what it was",
                why=f"it is {KIND_WORDS[there.kind]} now",
                hint="look at it, then run the command again",
                id="destination-changed",
            )
        return True

    def _shown(self, name: str) -> str:
        return os.path.normpath(os.path.join(self._folder, name))

    def _take_aside(self, aside: LocalDirectory, undo: ExitStack) -> None:
        """Take the former artefact away before its companions change."""
        former = self._directory.stat(self._base)
        if former is not None:
            undo.callback(_move_back, aside, _FORMER, self._directory, self._base)
            self._directory.move(former, aside, _FORMER)

    def _place(self, made: LocalDirectory, entry: FileStat, undo: ExitStack) -> None:
        if self._is_replaced(entry):
            exchange(made, self._directory, entry.name)
            undo.callback(exchange, made, self._directory, entry.name)
        else:
            undo.callback(_move_back, self._directory, entry.name, made, entry.name)
            made.move(entry, self._directory, entry.name)

    def _remove_outdated(self, made: set[str]) -> tuple[str, ...]:
        """The result stands by now: what cannot be removed is no failure."""
        stay = []
        for name in sorted(self.outdated - made):
            try:
                former = self._directory.stat(name)
                if former is not None:
                    self._directory.remove(former)
            except CkpttoolError:
                stay.append(name)
        return tuple(stay)


def _split(destination: str) -> tuple[str, str]:
    """The directory that a destination lies in, and its name there."""
    folder, base = os.path.split(destination.rstrip("/"))
    if not base or base in {".", ".."}:
        raise UsageError(
            f"cannot write {destination!r}",
            why="a result needs a name of its own",
            hint="give a path such as export/model",
            id="empty-address",
        )
    return folder or ("/" if destination.startswith("/") else "."), base


def _move_back(one: LocalDirectory, name: str, other: LocalDirectory, to: str) -> None:
    """Undo a move, if it was done."""
    moved = one.stat(name)
    if moved is not None and other.stat(to) is None:
        one.move(moved, other, to)


def _remove_dead(directory: LocalDirectory) -> None:
    """Remove what killed conversions have left: places whose lock nobody holds.

    One that was made just now may still be without its lock.
    """
    before = (time.time() - _JUST_NOW) * 1e9
    for entry in list(directory.scan()):
        ours = entry.kind == "directory" and entry.name.startswith(_PREFIX)
        if not ours or entry.mtime_ns > before:
            continue
        try:
            with directory.directory(entry.name) as place, DirectoryLock(place):
                shutil.rmtree(os.path.join(directory.path, entry.name), ignore_errors=True)
        except (ChangedError, NotFoundError):
            continue  # somebody is at work there, or has just finished


def _make_durable(root: str) -> None:
    for folder, _, names in os.walk(root, topdown=False):
        for name in (*names, "."):
            path = os.path.join(folder, name)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                descriptor = os.open(path, flags)
                try:
                    mode = os.fstat(descriptor).st_mode
                    if S_ISREG(mode) or name == ".":
                        fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise_os_error(error, f"cannot make {path} durable")
