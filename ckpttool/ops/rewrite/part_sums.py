"""Checks the source of entries that are cut into parts, without reading it twice.

The parts get checksums of their own while they are written. Put together they have to give
the checksum of the entry they were cut from; where not all of it was written, the entry is
read once more.
"""

from __future__ import annotations

from itertools import accumulate

from ckpttool.errors import CorruptError
from ckpttool.formats.crc32c import combine, extend, mask
from ckpttool.formats.dtypes import STRING
from ckpttool.formats.tensor_bytes import string_checksum, variant_checksum
from ckpttool.model import numel
from ckpttool.ops.rewrite.tensors import Stored, Tensor

__all__ = ["PartSums", "check_opaque", "check_whole", "mismatch"]

_WINDOW = 2**20


class PartSums:
    """The checksums of parts, by the entry that they were cut from; any thread may add one."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        self._entries: dict[tuple[int, int, int], tuple[Stored, Tensor]] = {}

    def add(self, part: Stored, tensor: Tensor, value: int) -> None:
        """Note the checksum (not masked) of a part that was written."""
        entry = part.whole()
        key = (id(part.files), entry.shard, entry.offset)
        self._entries[key] = (entry, tensor)
        self._parts.setdefault(key, []).append((part.skipped, part.nbytes, value))

    def check(self) -> None:
        """Compare every entry with its stored checksum.

        Raises:
            CorruptError: id ``checksum-mismatch``.
        """
        for key, (entry, tensor) in self._entries.items():
            if entry.crc32c is None:
                continue
            parts = sorted(self._parts[key])
            starts = [0, *accumulate(size for _, size, _ in parts)]
            if [start for start, _, _ in parts] == starts[:-1] and starts[-1] == entry.nbytes:
                found = 0
                for _, size, value in parts:
                    found = combine(found, value, size)
            else:
                found = _read(entry, tensor)
            if mask(found) != entry.crc32c:
                raise mismatch(entry, tensor, mask(found))


def check_opaque(content: Stored, tensor: Tensor, *, big_endian: bool) -> None:
    """Check an entry of strings or variants, whose checksum is not that of its bytes.

    Raises:
        CorruptError: id ``checksum-mismatch``, or what is wrong with its lengths.
    """
    name = tensor.variable.decode("utf-8", "surrogateescape")
    file = content.files.open(content.shard, name)
    content.files.require(file, content.shard, content.offset, content.nbytes, name)
    checksum = string_checksum if tensor.dtype == STRING else variant_checksum
    count = numel(tensor.shape or ())
    found = checksum(file, content.offset, content.nbytes, count, big_endian=big_endian)
    if content.crc32c is not None and found != content.crc32c:
        raise mismatch(content, tensor, found)


def mismatch(content: Stored, tensor: Tensor, found: int) -> CorruptError:
    """The error of bytes that do not give their stored checksum."""
    name = tensor.variable.decode("utf-8", "surrogateescape")
    return CorruptError(
        f"the values of {name} are damaged",
        why=f"shard {content.shard} ({content.files.path(content.shard)}), bytes "
        f"{content.offset} to {content.offset + content.nbytes}: checksum {found:08x}, and "
        f"{content.crc32c:08x} is stored",
        hint="take the file from another copy; ckpttool verify lists all that is damaged",
        id="checksum-mismatch",
    )


def check_whole(content: Stored, tensor: Tensor) -> None:
    """Read a whole entry and compare it with its stored checksum.

    Raises:
        CorruptError: id ``checksum-mismatch``.
    """
    if content.crc32c is not None:
        found = mask(_read(content, tensor))
        if found != content.crc32c:
            raise mismatch(content, tensor, found)


def _read(entry: Stored, tensor: Tensor) -> int:
    name = tensor.variable.decode("utf-8", "surrogateescape")
    value = 0
    for start in range(0, entry.nbytes, _WINDOW):
        size = min(_WINDOW, entry.nbytes - start)
        value = extend(value, entry.files.read(entry.shard, entry.offset + start, size, name))
    return value
