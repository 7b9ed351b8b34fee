"""Data files that stay as they are, taken in by a hard link instead of copied.

A link is one file under two names: what is written into it under one of them changes under
the other. Nothing of TensorFlow's or ours writes into a data file that stands, but a plain
``cp`` over it does, so this is only done where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ckpttool.errors import PermissionDeniedError, StorageError
from ckpttool.formats.bundle_writer import patch_entry
from ckpttool.formats.dtypes import STRING, VARIANT
from ckpttool.ops.rewrite.part_sums import check_opaque, check_whole
from ckpttool.ops.rewrite.tensors import Stored, Tensor
from ckpttool.sources.shard_files import ShardFiles
from ckpttool.storage.fileset import FileSet

__all__ = ["WholeFile", "linked_entries", "take_in", "whole_file"]


class WholeFile(NamedTuple):
    """A stored data file, number ``shard`` of ``files``."""

    files: ShardFiles
    shard: int


def whole_file(tensors: Sequence[Tensor]) -> WholeFile | None:
    """The stored data file that has exactly these entries' bytes, in this order; or None.

    Raises:
        IncompleteError: it is missing.
    """
    following = 0
    found: WholeFile | None = None
    for tensor in tensors:
        content = tensor.content
        if not isinstance(content, Stored) or not content.is_whole or not tensor.raw:
            return None
        where = WholeFile(content.files, content.shard)
        if content.offset != following or (found is not None and found != where):
            return None
        found = where
        following += content.nbytes
    if found is None:
        return None
    name = tensors[0].variable.decode("utf-8", "surrogateescape")
    return found if found.files.open(found.shard, name).stat.size == following else None


def take_in(files: FileSet, name: str, whole: WholeFile) -> bool:
    """Link a file under a new name; false where the file system does not allow it.

    Raises:
        ChangedError: it was replaced or written to.
    """
    try:
        files.link(name, whole.files.directory, whole.files.open(whole.shard, name).stat)
    except (StorageError, PermissionDeniedError):
        return False
    return True


def linked_entries(
    tensors: Sequence[Tensor], shard: int, *, check: bool, big_endian: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The key and the message of every entry of a file that has become number ``shard``.

    Raises:
        CorruptError: id ``checksum-mismatch``, with ``check``.
    """
    for tensor in tensors:
        content = tensor.content
        assert isinstance(content, Stored), "what is linked is stored"
        if check and tensor.dtype in {STRING, VARIANT}:
            check_opaque(content, tensor, big_endian=big_endian)
        elif check:
            check_whole(content, tensor)
        yield tensor.key, patch_entry(tensor.raw, shard=shard, offset=content.offset)
