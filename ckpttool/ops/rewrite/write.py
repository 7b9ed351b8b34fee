"""Puts a ``Bundle`` on the disk: data files first, the index last, all of it or nothing.

Untouched bytes are copied by the kernel and keep their checksum, so damage stays visible;
joined ones get the combined checksum; where bytes are new, or are a part of what was one,
the checksum is computed on the way. With ``check`` every byte that is read is compared
with its stored checksum before anything appears under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from ckpttool.errors import NoSpaceError, RefusedError
from ckpttool.formats.bundle_writer import encode_entry, patch_entry, patch_header
from ckpttool.formats.crc32c import combine, extend, mask, unmask
from ckpttool.formats.dtypes import STRING, VARIANT
from ckpttool.formats.sstable import quote_key
from ckpttool.formats.table_writer import TableWriter
from ckpttool.ops.rewrite.part_sums import PartSums, check_opaque, mismatch
from ckpttool.ops.rewrite.tensors import Bundle, Computed, Joined, Stored, Tensor
from ckpttool.sources.filenames import index_name, shard_name
from ckpttool.sources.shard_files import ShardFiles
from ckpttool.storage.base import NewFile, ReadableFile
from ckpttool.storage.fileset import FileSet
from ckpttool.storage.local import LocalDirectory

__all__ = ["Progress", "ShardWritten", "duplicate_key", "planned_shards", "write_bundle"]

Progress = Callable[[int, int], None]

#: Bytes read at once where they pass through this process.
_WINDOW = 2**20
#: Kept free beside what is written: the index, and what the file system needs itself.
_SPARE_PER_TENSOR = 200
#: Bytes copied between two calls of ``progress``.
_REPORT = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ShardWritten:
    """A data file that was written, or would be."""

    name: str
    nbytes: int
    variables: int


def write_bundle(
    bundle: Bundle,
    directory: LocalDirectory,
    prefix: str,
    *,
    check: bool = False,
    overwrite: bool = False,
    remove: Sequence[str] = (),
    beside: Mapping[str, ReadableFile] | None = None,
    before_commit: Callable[[], None] | None = None,
    progress: Progress | None = None,
) -> list[ShardWritten]:
    """Write a checkpoint.

    Args:
        bundle: what it is made of; sorted by shard here if it is not.
        directory: where it goes; locked by the caller.
        prefix: its name there.
        check: compare everything that is read with its stored checksum.
        overwrite: replace a checkpoint of this name (the source itself too).
        remove: names of files that are of no more use once the new index stands.
        beside: files that are copied with it, by their new name.
        before_commit: called when all is written and nothing is in its place yet.
        progress: told of the bytes written and their total.

    Raises:
        NoSpaceError: also before anything is written, where it cannot fit.
        CorruptError: id ``checksum-mismatch``: bytes that were read are damaged.
        RefusedError: id ``exists``; id ``duplicate-key``: two tensors have one key.
    """
    planned_shards(bundle, prefix)
    total = bundle.nbytes
    _require_space(directory, prefix, total + _SPARE_PER_TENSOR * len(bundle.tensors))
    entries: list[tuple[bytes, bytes]] = [(b"", patch_header(bundle.header, bundle.shards))]
    entries += ((owner.key, owner.message()) for owner in bundle.owners.values())
    report = _Reporter(progress, total)
    sums = PartSums()
    ordered = sorted(bundle.tensors, key=attrgetter("shard"))
    by_shard = {shard: list(group) for shard, group in groupby(ordered, attrgetter("shard"))}
    written = []
    with FileSet(directory, overwrite=overwrite) as files:
        for shard in range(bundle.shards):
            name = shard_name(prefix, shard, bundle.shards)
            tensors = by_shard.get(shard, [])
            with files.create(name) as file:
                writer = _ShardWriter(file, shard, bundle, report, sums, check=check)
                entries += writer.write(tensors)
                file.commit()
            written.append(ShardWritten(name, writer.offset, len(tensors)))
        sums.check()
        for name, source in (beside or {}).items():
            with files.create(name) as file:
                file.copy(source, 0, source.stat.size)
                file.commit()
        _write_index(files, index_name(prefix), entries)
        if before_commit is not None:
            before_commit()
        files.commit(index_name(prefix), remove)
    return written


def planned_shards(bundle: Bundle, prefix: str) -> list[ShardWritten]:
    """The data files that writing a bundle makes; opens nothing.

    Raises:
        RefusedError: id ``duplicate-key``.
    """
    nbytes = [0] * bundle.shards
    count = [0] * bundle.shards
    seen = set(bundle.owners)
    for tensor in bundle.tensors:
        if tensor.key in seen:
            raise duplicate_key(tensor.key)
        seen.add(tensor.key)
        nbytes[tensor.shard] += tensor.content.nbytes
        count[tensor.shard] += 1
    return [
        ShardWritten(shard_name(prefix, shard, bundle.shards), nbytes[shard], count[shard])
        for shard in range(bundle.shards)
    ]


def _write_index(files: FileSet, name: str, entries: list[tuple[bytes, bytes]]) -> None:
    entries.sort()
    with files.create(name) as file:
        table = TableWriter(file.write)
        for key, raw in entries:
            table.add(key, raw)
        table.finish()
        file.commit()


def duplicate_key(key: bytes) -> RefusedError:
    """The refusal to write two entries under one key."""
    return RefusedError(
        f"two variables would have the key {quote_key(key)}",
        why="a checkpoint holds each key once",
        hint="rename one of them, or leave one out",
        id="duplicate-key",
    )


class _ShardWriter:
    """Writes one data file and makes the entries of what is in it."""

    def __init__(
        self,
        file: NewFile,
        shard: int,
        bundle: Bundle,
        report: _Reporter,
        sums: PartSums,
        *,
        check: bool,
    ) -> None:
        self._file = file
        self._shard = shard
        self._big_endian = bundle.big_endian
        self._check = check
        self._report = report
        self._sums = sums
        self.offset = 0
        #: A range that waits to be copied at once: files, shard, start, end.
        self._waiting: tuple[ShardFiles, int, int, int, str] | None = None

    def write(self, tensors: Sequence[Tensor]) -> Iterator[tuple[bytes, bytes]]:
        """The key and the message of every entry, each after its bytes."""
        for tensor in tensors:
            content = tensor.content
            if isinstance(content, Stored):
                crc32c = self._stored(content, tensor)
            elif isinstance(content, Joined):
                crc32c = self._joined(content, tensor)
            else:
                crc32c = self._computed(content)
            yield tensor.key, self._entry(tensor, crc32c)
            self.offset += content.nbytes
        self._flush()

    def _entry(self, tensor: Tensor, crc32c: int | None) -> bytes:
        shard, offset, size = self._shard, self.offset, tensor.content.nbytes
        if tensor.raw:
            return patch_entry(tensor.raw, shard=shard, offset=offset, size=size, crc32c=crc32c)
        if crc32c is None and isinstance(tensor.content, Stored):
            crc32c = tensor.content.crc32c
        return encode_entry(
            tensor.dtype, tensor.shape, shard=shard, offset=offset, size=size, crc32c=crc32c
        )

    def _stored(self, content: Stored, tensor: Tensor) -> int | None:
        if content.is_whole and not self._check:
            self._copy(content, tensor)
            return None  # the stored one stays, also when it is wrong
        if tensor.dtype in {STRING, VARIANT}:
            check_opaque(content, tensor, big_endian=self._big_endian)
            self._copy(content, tensor)
            return None
        found = self._summed(content, tensor)
        if not content.is_whole:
            self._sums.add(content, tensor, found)
        elif content.crc32c is not None and mask(found) != content.crc32c:
            raise mismatch(content, tensor, mask(found))
        return mask(found)

    def _joined(self, content: Joined, tensor: Tensor) -> int:
        """Copy the pieces and combine their checksums."""
        value = 0
        for piece in content.pieces:
            if self._check or piece.crc32c is None:
                found = self._summed(piece, tensor)
                if piece.crc32c is not None and mask(found) != piece.crc32c:
                    raise mismatch(piece, tensor, mask(found))
            else:
                self._copy(piece, tensor)
                found = unmask(piece.crc32c)
            value = combine(value, found, piece.nbytes)
        return mask(value)

    def _computed(self, content: Computed) -> int:
        self._flush()
        value = written = 0
        for chunk in content.chunks():
            self._file.write(chunk)
            value = extend(value, chunk)
            written += len(chunk)
            self._report.add(len(chunk))
        assert written == content.nbytes, "a computed tensor has the size that was planned"
        return mask(value) if content.crc32c is None else content.crc32c

    def _summed(self, content: Stored, tensor: Tensor) -> int:
        """Copy through this process; returns the checksum (not masked)."""
        self._flush()
        name = tensor.variable.decode("utf-8", "surrogateescape")
        value = done = 0
        while done < content.nbytes:
            size = min(_WINDOW, content.nbytes - done)
            data = content.files.read(content.shard, content.offset + done, size, name)
            self._file.write(data)
            value = extend(value, data)
            done += size
            self._report.add(size)
        return value

    def _copy(self, content: Stored, tensor: Tensor) -> None:
        """Leave a range to be copied, together with what follows it in the same file."""
        start, end = content.offset, content.offset + content.nbytes
        if self._waiting is not None:
            files, shard, first, last, name = self._waiting
            if files is content.files and shard == content.shard and last == start:
                self._waiting = (files, shard, first, end, name)
                return
        self._flush()
        name = tensor.variable.decode("utf-8", "surrogateescape")
        self._waiting = (content.files, content.shard, start, end, name)

    def _flush(self) -> None:
        if self._waiting is None:
            return
        files, shard, start, end, name = self._waiting
        self._waiting = None
        if start == end:
            return
        source = files.open(shard, name)
        files.require(source, shard, start, end - start, name)
        while start < end:
            size = min(_REPORT, end - start)
            self._file.copy(source, start, size)
            start += size
            self._report.add(size)


class _Reporter:
    """Passes on how much is done."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, nbytes: int) -> None:
        if self._progress is not None:
            self._done += nbytes
            self._progress(self._done, self._total)


def _require_space(directory: LocalDirectory, prefix: str, needed: int) -> None:
    free = directory.free_bytes()
    if free < needed:
        raise NoSpaceError(
            f"{prefix} does not fit into {directory.path}",
            why=f"it needs {needed} bytes, and {free} are free",
            hint="free some space, or write to another disk",
        )
