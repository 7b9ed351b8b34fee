"""The versions of an export: directories called by a number, each with the report of its check.

Knows a folder ``exports/NAME`` and what may go from it, not how a version is made. What is
removed is renamed first, so that whoever serves a version never sees a part of one.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

from ckpttool.conversion.report import is_report
from ckpttool.storage import open_directory
from ckpttool.storage.local_files import OWN_PREFIX
from ckpttool.storage.lock import LOCK_NAME, is_locked

__all__ = ["VersionFolder"]

_GONE = f"{OWN_PREFIX}gone-"


class VersionFolder:
    """A folder of versions, which need not be there.

    Args:
        path: absolute.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def make(self) -> None:
        """Make the folder where there is none, and remove what something killed has left."""
        os.makedirs(self._path, 0o700, exist_ok=True)
        self.tidy()

    def version(self, number: int) -> str:
        """Where a version is."""
        return os.path.join(self._path, str(number))

    def part(self, number: int) -> str:
        """Where a version is made."""
        return os.path.join(self._path, f"{OWN_PREFIX}{number}")

    def report(self, number: int) -> str:
        """The report of the check of a version."""
        return f"{self.version(number)}.json"

    @property
    def newest(self) -> int:
        """The highest number that anything there is called by; 0: none."""
        return max(_numbers(self._names()), default=0)

    def newest_savedmodel(self) -> str | None:
        """The newest version that is a SavedModel."""
        for number in sorted(_numbers(self._names()), reverse=True):
            if os.path.exists(os.path.join(self.version(number), "saved_model.pb")):
                return self.version(number)
        return None

    def tidy(self) -> None:
        """Remove what a failed or killed export, or removal, left."""
        for name in self._names():
            path = os.path.join(self._path, name)
            if name.startswith(OWN_PREFIX) and not _is_in_use(path):
                _remove(path)

    def keep(self, count: int) -> list[int]:
        """Let the oldest versions go and keep the newest so many; gives the numbers that went.

        Only directories that have a report are ours to remove, and of those not what a
        symbolic link in the folder, or beside it, leads to.
        """
        names = self._names()
        ours = sorted(number for number in _numbers(names) if self._is_ours(number))
        linked = {os.path.realpath(path) for path in self._links(names)}
        old = [
            number
            for number in ours[:-count]
            if not any(_is_inside(path, os.path.realpath(self.version(number))) for path in linked)
        ]
        for number in old:
            gone = os.path.join(self._path, f"{_GONE}{number}")
            os.rename(self.version(number), gone)
            os.rename(self.report(number), f"{gone}.json")
        if ours:
            self._remove_reports(names, min(set(ours) - set(old)))
        self.tidy()
        return old

    def _remove_reports(self, names: list[str], before: int) -> None:
        """Remove the reports of failed exports that are older than every version."""
        reports = _numbers([name.removesuffix(".json") for name in names if name.endswith(".json")])
        for number in reports:
            has_version = os.path.lexists(self.version(number))
            if number < before and not has_version and is_report(self.report(number)):
                os.unlink(self.report(number))

    def _is_ours(self, number: int) -> bool:
        try:
            mode = os.lstat(self.version(number)).st_mode
        except FileNotFoundError:
            return False
        return stat.S_ISDIR(mode) and is_report(self.report(number))

    def _links(self, names: list[str]) -> Iterator[str]:
        """The symbolic links in the folder, and in the one that holds it."""
        above = os.path.dirname(self._path)
        for path in (
            *(os.path.join(self._path, name) for name in names),
            *(os.path.join(above, name) for name in os.listdir(above)),
        ):
            if os.path.islink(path):
                yield path

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._path)
        except FileNotFoundError:
            return []


def _numbers(names: list[str]) -> list[int]:
    return [int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 16]


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _is_in_use(path: str) -> bool:
    """Whether a living process makes something there, or holds this lock."""
    folder = os.path.dirname(path) if os.path.basename(path) == LOCK_NAME else path
    if not os.path.isdir(folder) or os.path.islink(folder):
        return False
    with open_directory(folder) as directory:
        return is_locked(directory)


def _remove(path: str) -> None:
    """Remove a file or a whole directory; what cannot be removed is tried again next time."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            os.unlink(path)
        except OSError:
            pass
