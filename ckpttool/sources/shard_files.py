"""The data files of one V2 checkpoint: opened when needed, few at a time, read by range.

Turns what goes wrong in a file into an error that names the variable, the shard and the
offset. Knows file names and ranges, nothing of what the bytes mean.
"""

from __future__ import annotations

from collections import OrderedDict

from ckpttool.errors import CkpttoolError, IncompleteError, NotFoundError
from ckpttool.sources.filenames import join, shard_name, split_part
from ckpttool.storage.base import Directory, FileStat, ReadableFile

__all__ = ["MISSING_NAMED", "ShardFiles", "about"]

#: Missing data files that are named; an index may claim 99,999, and none of them be there.
MISSING_NAMED = 100

#: Open data files; the one that was used longest ago is closed for the next.
_OPEN_AT_MOST = 32
#: A Git-LFS pointer is shorter than this.
_POINTER_BYTES = 1024


class ShardFiles:
    """The data files ``PREFIX.data-00000-of-NNNNN`` in a directory.

    Args:
        directory: where they lie; it stays the caller's.
        prefix: the checkpoint's name in it.
        count: how many there are, as the header of the index says.
    """

    def __init__(self, directory: Directory, prefix: str, count: int) -> None:
        self._directory = directory
        self._prefix = prefix
        self._count = count
        self._open: OrderedDict[int, ReadableFile] = OrderedDict()
        #: What each file was when it was first opened: one that is closed for others and
        #: opened again has to be the same.
        self._first: dict[int, FileStat] = {}
        self._replaced = False

    @property
    def for_threads(self) -> bool:
        """Whether several threads may open and read at the same time.

        That is where none is ever closed for another, which a thread might be reading.
        """
        return self._count <= _OPEN_AT_MOST

    @property
    def directory(self) -> Directory:
        """Where they lie."""
        return self._directory

    def path(self, shard: int) -> str:
        """The path of a data file, whether it exists or not."""
        return join(self._directory.path, shard_name(self._prefix, shard, self._count))

    def on_disk(self) -> dict[int, FileStat]:
        """The data files that exist, by number; one pass over the directory."""
        found = {}
        for entry in self._directory.scan():
            part = split_part(entry.name)
            if part and (part.prefix, part.kind, part.shards) == (
                self._prefix,
                "shard",
                self._count,
            ):
                found[part.shard] = entry
        return found

    def open(self, shard: int, name: str) -> ReadableFile:
        """A data file, open until some others have been opened after it.

        Args:
            shard: its number.
            name: the variable that is read, for messages.

        Raises:
            IncompleteError: id ``shard-missing``.
            CkpttoolError: as ``Directory.open``.
        """
        file = self._open.get(shard)
        if file is not None:
            self._open.move_to_end(shard)
            return file
        try:
            file = self._directory.open(shard_name(self._prefix, shard, self._count))
        except NotFoundError as error:
            raise IncompleteError(
                f"the values of {name} cannot be read",
                why=f"they lie in shard {shard} of {self._count}, and there is no "
                f"{self.path(shard)}",
                hint="copy the missing file beside the others; ckpttool list works without it",
                id="shard-missing",
            ) from error
        except CkpttoolError as error:
            raise about(error, name) from error
        if len(self._open) >= _OPEN_AT_MOST:
            self._open.popitem(last=False)[1].close()
        kept = self._open.setdefault(shard, file)
        if kept is not file:  # another thread was first
            file.close()
            return kept
        if self._first.setdefault(shard, file.stat) != file.stat:
            self._replaced = True
        return file

    def read(self, shard: int, offset: int, size: int, name: str) -> bytes:
        """Exactly ``size`` bytes of a data file.

        Raises:
            IncompleteError: id ``shard-missing`` or ``shard-short``.
            ForeignFormatError: id ``git-lfs-pointer``.
            CkpttoolError: as the storage says, with the variable's name.
        """
        file = self._open.get(shard) or self.open(shard, name)
        self.require(file, shard, offset, size, name)
        try:
            return file.pread(offset, size)
        except IncompleteError as error:
            raise self._short(file, shard, offset, size, name, why=error.why) from error
        except CkpttoolError as error:
            raise about(error, name) from error

    def require(self, file: ReadableFile, shard: int, offset: int, size: int, name: str) -> None:
        """Check that a range lies inside an open data file; raises as ``read``."""
        if offset + size <= file.stat.size:
            return
        if file.stat.size < _POINTER_BYTES:
            from ckpttool.formats.sniff import sniff_file

            sniffed = sniff_file(file)
            if sniffed.kind == "git-lfs":
                raise sniffed.error(file.path)
        raise self._short(file, shard, offset, size, name)

    def _short(
        self, file: ReadableFile, shard: int, offset: int, size: int, name: str, *, why: str = ""
    ) -> IncompleteError:
        return IncompleteError(
            f"the values of {name} cannot be read: its shard is cut off",
            why=f"shard {shard} ({file.path}): "
            + (
                why
                or f"{size} bytes are wanted at offset {offset}, "
                f"and the file has {file.stat.size} bytes"
            ),
            hint="copy the file again from where it is whole; ckpttool verify shows what is lost",
            id="shard-short",
        )

    def opened(self) -> list[ReadableFile]:
        """The data files that are open now."""
        return list(self._open.values())

    def changed(self) -> bool:
        """Whether any open data file was changed or replaced since it was first opened."""
        return self._replaced or any(file.changed() for file in self._open.values())

    def close(self) -> None:
        """Close what is open; the next read opens it anew."""
        while self._open:
            self._open.popitem()[1].close()


def about(error: CkpttoolError, name: str) -> CkpttoolError:
    """The same error, saying which variable it concerns."""
    why = f"{error.what}: {error.why}" if error.why else error.what
    what = f"the values of {name} cannot be read"
    return type(error)(what, why=why, hint=error.hint, id=error.id)
