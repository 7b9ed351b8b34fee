"""The bytes of a ``Content`` in pieces of one size, checked against their checksums.

For commands that compute with values: they read several contents side by side, a piece of
each at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckpttool.formats.crc32c import extend, mask
from ckpttool.ops.rewrite.part_sums import check_whole, mismatch
from ckpttool.ops.rewrite.tensors import Computed, Content, Joined, Stored, Tensor

__all__ = ["stream"]


def stream(content: Content, tensor: Tensor, piece: int) -> Iterator[bytes]:
    """All bytes of a content, ``piece`` at a time (the last may be shorter).

    Raises:
        CorruptError: id ``checksum-mismatch``, at the latest behind the last piece.
        IncompleteError: ids ``shard-missing``, ``shard-short``.
    """
    waiting = bytearray()
    for data in _raw(content, tensor, piece):
        if not waiting and len(data) == piece:
            yield data
            continue
        waiting += data
        while len(waiting) >= piece:
            yield bytes(waiting[:piece])
            del waiting[:piece]
    if waiting:
        yield bytes(waiting)


def _raw(content: Content, tensor: Tensor, piece: int) -> Iterator[bytes]:
    if isinstance(content, Computed):
        yield from content.chunks()
    elif isinstance(content, Joined):
        for stored in content.pieces:
            yield from _stored(stored, tensor, piece)
    else:
        yield from _stored(content, tensor, piece)


def _stored(content: Stored, tensor: Tensor, piece: int) -> Iterator[bytes]:
    name = tensor.variable.decode("utf-8", "surrogateescape")
    if not content.is_whole:
        check_whole(content.whole(), tensor)
    value = 0
    for start in range(0, content.nbytes, piece):
        size = min(piece, content.nbytes - start)
        data = content.files.read(content.shard, content.offset + start, size, name)
        value = extend(value, data)
        yield data
    if content.is_whole and content.crc32c is not None and mask(value) != content.crc32c:
        raise mismatch(content, tensor, mask(value))
