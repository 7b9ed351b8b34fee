"""The trash of a run directory: whole checkpoints moved aside, with all that undo needs.

``.ckpttool-trash/<id>/`` holds the files of one removal and a manifest: what they were
called and what the state file said before and after. Undo moves data first and the index
last, and never over anything. Emptying removes what a manifest names, and nothing else.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Self

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    NotFoundError,
    RefusedError,
    UnsafeError,
)
from ckpttool.ops.prune.removal import (
    Removal,
    decode_json,
    encode_json,
    removals_from,
    removals_to,
)
from ckpttool.storage.base import FileStat
from ckpttool.storage.local import LocalDirectory
from ckpttool.storage.local_files import TEMPORARY_SUFFIX

__all__ = [
    "TRASH_NAME",
    "Restored",
    "SavedState",
    "StateNow",
    "Trash",
    "empty_trash",
    "finish_undo",
    "tidy",
    "trash_ids",
    "undo",
]

TRASH_NAME = ".ckpttool-trash"
_MANIFEST = "manifest.json"
_SCHEMA = "ckpttool.trash/1"


@dataclass(frozen=True, slots=True)
class SavedState:
    """The text of a state file before a removal and after it; None where it was removed."""

    name: str
    before: bytes
    after: bytes | None


#: What an undo made of the state file; ``changed``: another's word stands there.
StateNow = Literal["unchanged", "restored", "changed"]


@dataclass(slots=True)
class Restored:
    """What an undo came to: prefixes that are back, those that are not and why."""

    id: str
    state_now: StateNow = "unchanged"
    prefixes: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    nbytes: int = 0


class Trash:
    """One removal's place in the trash."""

    def __init__(self, id: str, home: LocalDirectory) -> None:
        self.id = id
        self._home = home

    @classmethod
    def new(
        cls, directory: LocalDirectory, removals: Sequence[Removal], state: SavedState | None
    ) -> Self:
        """Make a place for ``removals``; the manifest is durable before a file is moved."""
        now = time.time_ns()
        name = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 10**9)) + f".{now % 10**9:09d}Z"
        with directory.directory(TRASH_NAME, create=True) as trash:
            place = cls(name, trash.directory(name, create=True))
            place.record(removals, state)
            trash.sync()
        directory.sync()
        return place

    @classmethod
    def existing(cls, directory: LocalDirectory, id: str) -> Self:
        """The place of an earlier removal.

        Raises:
            NotFoundError: id ``trash-not-found``.
        """
        try:
            with directory.directory(TRASH_NAME) as trash:
                return cls(id, trash.directory(id))
        except (NotFoundError, UnsafeError):
            raise _no_such(directory, id) from None

    def record(
        self, removals: Sequence[Removal], state: SavedState | None, *, undoing: bool = False
    ) -> None:
        """Write the manifest: what is here, the state file before and after, what goes on.

        With ``undoing`` it says that files are being given back, so that whoever comes next
        finishes that if it is killed.
        """
        record = {
            "schema": _SCHEMA,
            "undoing": undoing,
            "removals": removals_to(removals),
            "state": state and [state.name, _encoded(state.before), _encoded(state.after)],
        }
        with self._home.create(_MANIFEST, overwrite=True) as file:
            file.write(encode_json(record))
            file.commit()

    def is_undoing(self) -> bool:
        """Whether an undo of it was begun and not finished."""
        file = self._home.open(_MANIFEST)
        try:
            record = decode_json(file.pread(0, file.stat.size), file.path, _SCHEMA)
        finally:
            file.close()
        return record.get("undoing") is True

    def manifest(self) -> tuple[tuple[Removal, ...], SavedState | None]:
        """What is here, and the state file.

        Raises:
            CorruptError: id ``record-corrupt``.
        """
        file = self._home.open(_MANIFEST)
        try:
            record = decode_json(file.pread(0, file.stat.size), file.path, _SCHEMA)
        finally:
            file.close()
        removals = removals_from(record.get("removals"), file.path)
        saved = record.get("state")
        if saved is None:
            return removals, None
        try:
            name, before, after = saved
            return removals, SavedState(str(name), _decoded(before) or b"", _decoded(after))
        except (ValueError, TypeError):
            raise CorruptError(
                f"{file.path} cannot be used", why="its state is odd", id="record-corrupt"
            ) from None

    def take(self, where: LocalDirectory, removal: Removal, file: FileStat) -> None:
        """Move one file in."""
        with self._inside(removal, create=True) as home:
            where.move(file, home, file.name)

    def give_back(self, directory: LocalDirectory, removal: Removal) -> int:
        """Move a checkpoint's files back, the index last; returns the bytes moved.

        Raises:
            RefusedError: id ``exists``: one of the names is taken again; id
                ``trash-incomplete``: a file is gone. Nothing is moved.
            ChangedError: what lies in the trash is not what was put there.
        """
        if removal.folder and self._home.stat(removal.folder) is None:
            return 0
        with self._inside(removal, create=False) as home, ExitStack() as stack:
            target = directory
            if removal.folder:
                target = stack.enter_context(directory.directory(removal.folder, create=True))
            here = [file for file in removal.files if home.stat(file.name) is not None]
            for file in removal.files:
                if file.name.endswith(TEMPORARY_SUFFIX):
                    continue  # our own, half-written: `tidy` takes such out of the trash
                there = target.stat(file.name)
                if file not in here and (there is None or there.inode != file.inode):
                    raise RefusedError(
                        f"{removal.prefix} is not complete any more",
                        why=f"{file.name} is neither in the trash nor back in its place",
                        hint="what is left of it stays in the trash",
                        id="trash-incomplete",
                    )
            for file in here:
                if target.stat(file.name) is not None:
                    raise RefusedError(
                        f"{file.name} is taken again",
                        why="something was saved under that name since",
                        hint="move it away, or leave this one in the trash",
                        id="exists",
                    )
            for file in reversed(here):
                home.move(file, target, file.name)
            target.sync()
            home.sync()
        if removal.folder:
            self._home.remove_directory(removal.folder)
        return sum(file.size for file in here)

    def clear(self, removals: Sequence[Removal]) -> int:
        """Remove for good what the manifest names; returns the bytes freed."""
        freed = 0
        for removal in removals:
            if removal.folder and self._home.stat(removal.folder) is None:
                continue  # it never came here, or was given back
            with self._inside(removal, create=False) as home:
                for file in removal.files:
                    if home.stat(file.name) is not None:
                        home.remove(file)
                        freed += file.size
            if removal.folder:
                self._home.remove_directory(removal.folder)
        return freed

    def close(self, directory: LocalDirectory) -> None:
        """Remove the manifest and the place, which is empty of checkpoints.

        Raises:
            RefusedError: id ``trash-not-empty``: something else lies there; all stays.
        """
        for entry in list(self._home.scan()):
            if entry.kind == "file" and entry.name.endswith(TEMPORARY_SUFFIX):
                self._home.remove(entry)  # a manifest that was being written by a killed process
            elif entry.name != _MANIFEST:
                raise RefusedError(
                    f"{self._home.path} has something in it that ckpttool did not put there",
                    why=f"{entry.name} is in no manifest",
                    hint="move it away, then run the command again",
                    id="trash-not-empty",
                )
        manifest = self._home.stat(_MANIFEST)
        if manifest is not None:
            self._home.remove(manifest)
        with directory.directory(TRASH_NAME) as trash:
            trash.remove_directory(self.id)
            if next(iter(trash.scan()), None) is None:
                directory.remove_directory(TRASH_NAME)
        directory.sync()

    def sync(self) -> None:
        """Make the moves durable."""
        self._home.sync()

    @contextmanager
    def _inside(self, removal: Removal, *, create: bool) -> Iterator[LocalDirectory]:
        """Where a removal's files lie."""
        if not removal.folder:
            yield self._home
            return
        with self._home.directory(removal.folder, create=create) as folder:
            yield folder


def trash_ids(directory: LocalDirectory) -> list[str]:
    """The removals in the trash, oldest first."""
    try:
        with directory.directory(TRASH_NAME) as trash:
            found = [entry.name for entry in trash.scan() if entry.kind == "directory"]
            return sorted(name for name in found if _has_manifest(trash, name))
    except NotFoundError:
        return []


def tidy(directory: LocalDirectory) -> None:
    """Remove what a kill left in the trash; the caller holds the lock.

    That is half-written manifests, and places without one: nothing is ever moved before the
    manifest is durable, nor is it removed before all is back.
    """
    try:
        trash = directory.directory(TRASH_NAME)
    except NotFoundError:
        return
    with trash:
        for place in [entry.name for entry in trash.scan() if entry.kind == "directory"]:
            with trash.directory(place) as home:
                inside = list(home.scan())
                for entry in inside:
                    if entry.kind == "file" and entry.name.endswith(TEMPORARY_SUFFIX):
                        home.remove(entry)
            if all(entry.name.endswith(TEMPORARY_SUFFIX) for entry in inside):
                trash.remove_directory(place)
        empty = next(iter(trash.scan()), None) is None
    if empty:
        directory.remove_directory(TRASH_NAME)


def _has_manifest(trash: LocalDirectory, name: str) -> bool:
    with trash.directory(name) as home:
        return home.stat(_MANIFEST) is not None


def undo(directory: LocalDirectory, id: str = "") -> Restored:
    """Give back what a removal put into the trash (default: the last one).

    The caller holds the lock. When all is back, so is the state file's text. One whose name
    is taken again stays in the trash, and so does the manifest then.

    Raises:
        NotFoundError: id ``trash-not-found``: nothing is there to be undone.
    """
    ids = trash_ids(directory)
    if id not in ids and (id or not ids):
        raise _no_such(directory, id)
    trash = Trash.existing(directory, id or ids[-1])
    removals, state = trash.manifest()
    restored = Restored(trash.id)
    trash.record(removals, state, undoing=True)
    left = []
    for removal in removals:
        try:
            moved = trash.give_back(directory, removal)
        except CkpttoolError as error:
            restored.refused.append((removal.prefix, str(error)))
            left.append(removal)
            continue
        if moved:
            restored.prefixes.append(removal.prefix)
            restored.nbytes += moved
    if restored.refused:
        trash.record(left, state)
        return restored
    if state is not None:
        restored.state_now = _restore_state(directory, state)
    trash.close(directory)
    return restored


def finish_undo(directory: LocalDirectory) -> list[Restored]:
    """Finish every undo that was killed, and say what came back; the caller holds the lock."""
    return [
        undo(directory, name)
        for name in trash_ids(directory)
        if Trash.existing(directory, name).is_undoing()
    ]


def _restore_state(directory: LocalDirectory, saved: SavedState) -> StateNow:
    """Give the state file its old text, if it still says what the removal wrote."""
    seen = directory.stat(saved.name)
    now = None
    if seen is not None:
        file = directory.open(saved.name)
        try:
            now = file.pread(0, file.stat.size)
        finally:
            file.close()
    if now == saved.before:
        return "unchanged"
    if now != saved.after:
        return "changed"
    try:
        with directory.create(saved.name, overwrite=seen is not None, expected=seen) as new:
            new.write(saved.before)
            new.commit()
    except (ChangedError, RefusedError):
        return "changed"
    return "restored"


def empty_trash(directory: LocalDirectory) -> tuple[list[str], int]:
    """Remove everything in the trash for good; returns the prefixes and the bytes freed.

    The caller holds the lock. What no manifest names is left, and is an error.
    """
    prefixes: list[str] = []
    freed = 0
    for name in trash_ids(directory):
        trash = Trash.existing(directory, name)
        removals, _ = trash.manifest()
        freed += trash.clear(removals)
        prefixes += [removal.prefix for removal in removals]
        trash.close(directory)
    return prefixes, freed


def _encoded(text: bytes | None) -> str | None:
    return None if text is None else b64encode(text).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _no_such(directory: LocalDirectory, id: str) -> NotFoundError:
    ids = trash_ids(directory)
    return NotFoundError(
        f"the trash of {directory.path} has no {id}" if id else f"{directory.path} has no trash",
        why=f"it has {', '.join(ids)}" if ids else "nothing was moved there, or it was emptied",
        hint=f"ckpttool prune {directory.path} --undo" if ids else "",
        id="trash-not-found",
    )
