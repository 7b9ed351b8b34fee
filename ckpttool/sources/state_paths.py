"""Where a path that a state file stores leads today: as stored, from here, or moved.

A state file may hold a name, a path relative to itself or to where training ran, or the
absolute path of a machine that is gone, of Windows too. It is text that anybody may have
written, so a path is only ever looked for, and one that leads out of the state file's own
directory is used only where nothing in that directory fits, and is always said.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from ckpttool.errors import CkpttoolError
from ckpttool.sources.filenames import STATE_FILE, index_name, join
from ckpttool.sources.v1_files import V1Prefixes
from ckpttool.storage import Directory, open_directory, stat_path

__all__ = ["Located", "Lost", "StatePaths", "Version", "version_at"]

Version = Literal["v2", "v1"]
#: How the checkpoint was found; the first is how TensorFlow finds it.
How = Literal["stored", "cwd", "moved"]


@dataclass(frozen=True, slots=True)
class Located:
    """A checkpoint that a state file names and that is there.

    Attributes:
        directory: path of the directory it lies in.
        prefix: its base name there.
        version: which format its files have, by their names or first bytes.
        how: ``stored`` as joined to the state file's directory, ``cwd`` from the working
            directory, ``moved`` by its base name in the state file's directory.
        own: whether it lies in the state file's directory.
    """

    directory: str
    prefix: str
    version: Version
    how: How
    own: bool

    @property
    def path(self) -> str:
        """The prefix as a person would type it."""
        return join(self.directory, self.prefix)

    def note(self, stored: str) -> str:
        """What a person should know about it; empty where it lies where it should."""
        if self.how == "moved":
            return f"the state file says {stored}, which was found by its name as {self.path}"
        if self.how == "cwd":
            return f"the state file says {stored}, which was found from the working directory"
        return "" if self.own else f"the state file says {stored}, which is in another directory"


@dataclass(frozen=True, slots=True)
class Lost:
    """A path in a state file that leads to no checkpoint, and why."""

    why: str
    #: Whether it could never be one of this directory: a directory, a NUL, the file itself.
    foreign: bool = False


class StatePaths:
    """Looks up the paths of one state file.

    Args:
        directory: the open directory of the state file.
        state_name: the state file's name in it.
    """

    def __init__(self, directory: Directory, state_name: str = STATE_FILE) -> None:
        self._directory = directory
        self._state_name = state_name
        here = stat_path(directory.path or ".")
        self._identity = None if here is None else (here.device, here.inode)
        self._v1 = V1Prefixes()
        # State files of a thousand absolute paths have one directory.
        self._last: tuple[str, bool | None] = ("", True)
        self._elsewhere = ("", V1Prefixes())

    def find(self, stored: str) -> Located | Lost:
        """The checkpoint that ``stored`` means; never raises for what the text says."""
        if not stored:
            return Lost("an empty path", foreign=True)
        if "\0" in stored:
            return Lost("a path with a NUL byte, which no file can have", foreign=True)
        folder, base = os.path.split(stored)
        if base in {"", ".", ".."}:
            return Lost("a directory, not a checkpoint", foreign=True)
        if not folder and (version := self._own_version(base)):
            return Located(self._directory.path, base, version, "stored", own=True)
        return self._find_path(stored, folder, base)

    def _find_path(self, stored: str, folder: str, base: str) -> Located | Lost:
        joined = os.path.join(self._directory.path, folder)
        tries: list[tuple[How, str]] = [("stored", joined)]
        if folder and joined != folder:
            tries.append(("cwd", folder))
        outside: list[Located] = []
        for how, path in tries if folder else ():
            inside = self._is_own(path)
            if inside and (version := self._own_version(base)):
                return Located(self._directory.path, base, version, how, own=True)
            if inside is False and (version := self._version_in(path, base)):
                found = Located(path, base, version, how, own=False)
                if self._is_below(path):
                    return found
                outside.append(found)
        # Names from Windows: C:\models\run\model.ckpt-7, \\server\share\model.ckpt-7
        for name in dict.fromkeys((base, base.rpartition("\\")[2])):
            if name != stored and name and (version := self._own_version(name)):
                return Located(self._directory.path, name, version, "moved", own=True)
        if outside:
            return outside[0]
        return self._lost(stored, base)

    def _lost(self, stored: str, base: str) -> Lost:
        if stored == self._state_name:
            return Lost("the state file itself, not a checkpoint", foreign=True)
        try:
            target = stat_path(os.path.join(self._directory.path, stored))
        except CkpttoolError as error:
            return Lost(f"out of reach ({error.why}), and nothing of that name is here")
        if target is not None and target.kind == "directory":
            return Lost("a directory, not a checkpoint", foreign=True)
        if base == stored:
            return Lost("not there")
        return Lost("not there, nor anything of that name in the state file's directory")

    def _own_version(self, base: str) -> Version | None:
        return version_at(self._directory, base, self._state_name, self._v1)

    def _version_in(self, path: str, base: str) -> Version | None:
        """As `version_at`, of another directory."""
        try:
            directory = open_directory(path)
        except CkpttoolError:
            return None
        with directory:
            if self._elsewhere[0] != path:
                self._elsewhere = path, V1Prefixes()
            return version_at(directory, base, v1=self._elsewhere[1])

    def _is_own(self, path: str) -> bool | None:
        """Whether this is the state file's directory; None where none is there, or in reach.

        Training ran as another user, perhaps, in a home of which nothing may be seen.
        """
        if self._last[0] != path:
            try:
                there = stat_path(path)
            except CkpttoolError:
                there = None
            self._last = (
                path,
                None
                if there is None or there.kind != "directory"
                else (there.device, there.inode) == self._identity,
            )
        return self._last[1]

    def _is_below(self, path: str) -> bool:
        """Whether a directory is below the state file's, links resolved."""
        own = os.path.realpath(self._directory.path)
        return os.path.commonpath((own, os.path.realpath(path))) == own


def version_at(
    directory: Directory,
    base: str,
    state_name: str = STATE_FILE,
    v1: V1Prefixes | None = None,
) -> Version | None:
    """Which kind of checkpoint a prefix of a directory is; None where there is none.

    A V2 checkpoint is known by its index's name, whatever is in it. A V1 checkpoint is a
    table named by the prefix itself, or one of several shards; ``v1`` is what is known of
    those of the directory already.
    """
    try:
        if directory.stat(index_name(base)) is not None:
            return "v2"
        if base == state_name:
            return None
        return "v1" if (v1 or V1Prefixes()).has(directory, base) else None
    except CkpttoolError:
        return None  # not to be looked at: too long a name, a link, no permission
