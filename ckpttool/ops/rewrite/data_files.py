"""Makes the data files of a ``Bundle``: written, linked, or taken in from a killed run.

One after the other, or several at a time in threads: copying and summing happen outside of
Python's lock. What comes out is in the order of the files and the same either way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from ckpttool.errors import NoSpaceError
from ckpttool.ops.rewrite.linking import linked_entries, take_in, whole_file
from ckpttool.ops.rewrite.memory import keep_memory
from ckpttool.ops.rewrite.part_sums import PartSums
from ckpttool.ops.rewrite.recipes import recipes
from ckpttool.ops.rewrite.shard_writer import Reporter, ShardWriter
from ckpttool.ops.rewrite.tensors import Bundle, Tensor, for_threads
from ckpttool.ops.rewrite.threads import in_order
from ckpttool.sources.filenames import shard_name
from ckpttool.storage.base import NewFile
from ckpttool.storage.fileset import FileSet

__all__ = ["DataFiles", "Progress", "ShardWritten"]

Progress = Callable[[int, int], None]

#: Kept free beside what is written: the index, and what the file system needs itself.
_SPARE_PER_TENSOR = 200


class ShardWritten(NamedTuple):
    """A data file that was written, or would be."""

    name: str
    nbytes: int
    variables: int
    linked: bool = False


#: A data file, and the keys and messages of its entries.
_Made = tuple[ShardWritten, list[tuple[bytes, bytes]]]


class DataFiles:
    """The data files of a bundle that is being written.

    Args:
        bundle: its tensors are used up.
        files: where new files are made.
        prefix: of their names.
        check: compare everything that is read with its stored checksum.
        link: take in files that stay as they are by a hard link.
        progress: told of the bytes written and their total.

    Raises:
        NoSpaceError: they cannot fit.
    """

    def __init__(
        self,
        bundle: Bundle,
        files: FileSet,
        prefix: str,
        *,
        check: bool,
        link: bool,
        progress: Progress | None,
    ) -> None:
        self._files = files
        self._prefix = prefix
        self._check = check
        self._link = link
        self._shards = bundle.shards
        self._big_endian = bundle.big_endian
        self._sums = PartSums()
        total = bundle.nbytes
        self._report = Reporter(progress, total)
        self._spare = _SPARE_PER_TENSOR * len(bundle.tensors)
        known = recipes(bundle, prefix)
        #: Those that are made already.
        self._taken_in = {
            shard for shard, recipe in known.items() if files.take_in(self._name(shard), recipe)
        }
        self._recipes = known
        missing = total - sum(known[shard].nbytes for shard in self._taken_in)
        self._require_space(self._spare if link else missing + self._spare)
        self._for_threads = all(for_threads(tensor.content) for tensor in bundle.tensors)
        bundle.tensors.sort(key=attrgetter("shard"))
        self._tensors = {
            shard: list(group) for shard, group in groupby(bundle.tensors, attrgetter("shard"))
        }
        bundle.tensors = []

    def write(self, jobs: int) -> list[_Made]:
        """Make all files, ``jobs`` at a time; what was made, in their order.

        Raises:
            CorruptError: id ``checksum-mismatch``.
            CkpttoolError: as reading and writing files.
        """
        keep_memory()
        made = in_order(
            self._make,
            range(self._shards),
            jobs if self._for_threads else 1,
            self._report.stop,
        )
        self._sums.check()
        return made

    def _make(self, shard: int) -> _Made:
        name = self._name(shard)
        tensors = self._tensors.pop(shard, [])
        nbytes = sum(tensor.content.nbytes for tensor in tensors)
        written = ShardWritten(name, nbytes, len(tensors))
        if shard in self._taken_in:
            return written, self._entries(shard, None, tensors)
        whole = whole_file(tensors) if self._link else None
        if whole is not None and take_in(self._files, name, whole):
            entries = linked_entries(tensors, shard, check=self._check, big_endian=self._big_endian)
            self._report.add(nbytes)
            return written._replace(linked=True), list(entries)
        if self._link:
            self._require_space(nbytes + self._spare)
        with self._files.create(name, self._recipes.get(shard)) as file:
            file.reserve(nbytes)
            messages = self._entries(shard, file, tensors)
            file.commit()
        return written, messages

    def _entries(
        self, shard: int, file: NewFile | None, tensors: list[Tensor]
    ) -> list[tuple[bytes, bytes]]:
        """Write the bytes, if there is a file for them; the keys and messages of the entries."""
        writer = ShardWriter(
            file, shard, self._report, self._sums, self._big_endian, check=self._check
        )
        return list(writer.write(tensors))

    def _name(self, shard: int) -> str:
        return shard_name(self._prefix, shard, self._shards)

    def _require_space(self, needed: int) -> None:
        free = self._files.directory.free_bytes()
        if free < needed:
            raise NoSpaceError(
                f"{self._prefix} does not fit into {self._files.directory.path}",
                why=f"it needs {needed} bytes, and {free} are free",
                hint="free some space, or write to another disk",
            )
