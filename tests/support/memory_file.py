"""A ``ReadableFile`` of bytes in memory, for readers of formats."""

from __future__ import annotations

from ckpttool.errors import IncompleteError
from ckpttool.storage.base import FileStat

__all__ = ["MemoryFile"]


class MemoryFile:
    """Bytes that are read by range; ``reads`` counts the calls."""

    def __init__(self, data: bytes, path: str = "memory") -> None:
        self.data = data
        self.path = path
        self.stat = FileStat(path, "file", len(data), 0, 0, 0)
        self.reads = 0

    def pread(self, offset: int, size: int) -> bytes:
        """Exactly these bytes."""
        self.reads += 1
        if offset + size > len(self.data):
            raise IncompleteError(f"{self.path} ends too early", id="short-read")
        return self.data[offset : offset + size]

    def fileno(self) -> int | None:
        """There is none."""
        return None

    def changed(self) -> bool:
        """Memory does not change."""
        return False

    def close(self) -> None:
        """Nothing to release."""
