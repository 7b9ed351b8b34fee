"""Storage: where files lie. One interface (`base`), one implementation so far (`local`)."""

from __future__ import annotations

from ckpttool.storage.base import Directory, FileStat, NewFile, ReadableFile
from ckpttool.storage.local import open_directory, require_directory, stat_path

__all__ = [
    "Directory",
    "FileStat",
    "NewFile",
    "ReadableFile",
    "open_directory",
    "require_directory",
    "stat_path",
]
