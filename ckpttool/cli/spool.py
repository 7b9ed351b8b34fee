"""Text that is held back until it is complete, in memory or, past a size, on disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Self

from ckpttool.errors import NoSpaceError

__all__ = ["Spool"]

_READ = 2**20


class Spool:
    """Pieces of text, given back in order; a context manager that drops the file."""

    def __init__(self, in_memory: int) -> None:
        self._in_memory = in_memory
        self._pieces: list[str] = []
        self._size = 0
        self._file: IO[str] | None = None

    def add(self, piece: str) -> None:
        """Append.

        Raises:
            NoSpaceError: id ``no-space``: the temporary directory is full.
        """
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._in_memory:
            self._to_disk()

    def _to_disk(self) -> None:
        import tempfile

        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile("w+", encoding="ascii", prefix="ckpttool-")  # noqa: SIM115 - closed in __exit__
            self._file.writelines(self._pieces)
        except OSError as error:
            raise NoSpaceError(
                f"cannot hold the JSON document in {tempfile.gettempdir()}",
                why=error.strerror or str(error),
                hint="set TMPDIR to a directory with space, or use --ndjson",
            ) from error
        self._pieces = []
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        if self._file is not None:
            self._file.seek(0)
            while piece := self._file.read(_READ):
                yield piece
        yield from self._pieces

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
