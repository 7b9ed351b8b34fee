"""Puts a ``Bundle`` on the disk: data files first, the index last, all of it or nothing.

Untouched bytes are copied by the kernel and keep their checksum, so damage stays visible;
joined ones get the combined checksum; where bytes are new, or are a part of what was one,
the checksum is computed on the way. With ``check`` every byte that is read is compared
with its stored checksum before anything appears under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ckpttool.errors import RefusedError
from ckpttool.formats.bundle_writer import patch_header
from ckpttool.formats.sstable import quote_key
from ckpttool.formats.table_writer import TableWriter
from ckpttool.ops.rewrite.data_files import DataFiles, Progress, ShardWritten
from ckpttool.ops.rewrite.tensors import Bundle
from ckpttool.sources.filenames import index_name, shard_name
from ckpttool.storage.base import ReadableFile
from ckpttool.storage.fileset import FileSet
from ckpttool.storage.local import LocalDirectory

__all__ = ["Progress", "ShardWritten", "duplicate_key", "planned_shards", "write_bundle"]


def write_bundle(
    bundle: Bundle,
    directory: LocalDirectory,
    prefix: str,
    *,
    check: bool = False,
    link: bool = False,
    overwrite: bool = False,
    jobs: int = 1,
    remove: Sequence[str] = (),
    beside: Mapping[str, ReadableFile] | None = None,
    before_commit: Callable[[], None] | None = None,
    progress: Progress | None = None,
) -> list[ShardWritten]:
    """Write a checkpoint.

    Data files that a killed run has finished, and ``finish_interrupted`` has left there by
    their ``recipes``, are taken in.

    Args:
        bundle: what it is made of; its tensors are used up, so that a million of them
            need not stay in memory until the end.
        directory: where it goes; locked by the caller.
        prefix: its name there.
        check: compare everything that is read with its stored checksum.
        link: take in data files that stay as they are by a hard link.
        overwrite: replace a checkpoint of this name (the source itself too).
        jobs: so many data files are written at the same time.
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
    entries: list[tuple[bytes, bytes]] = [(b"", patch_header(bundle.header, bundle.shards))]
    entries += _owners(bundle)
    written = []
    with FileSet(directory, overwrite=overwrite) as files:
        data = DataFiles(bundle, files, prefix, check=check, link=link, progress=progress)
        for shard, more in data.write(jobs):
            written.append(shard)
            entries += more
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


def _owners(bundle: Bundle) -> Iterator[tuple[bytes, bytes]]:
    """The key and the message of every partitioned variable."""
    first: dict[bytes, int] = {}
    if bundle.owners:
        for tensor in bundle.tensors:
            if tensor.variable in bundle.owners:
                shard = first.get(tensor.variable, tensor.shard)
                first[tensor.variable] = min(shard, tensor.shard)
    for owner in bundle.owners.values():
        yield owner.key, owner.message(first.get(owner.key, 0))


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
