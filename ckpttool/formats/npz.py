"""The arrays of an ``.npz`` archive, or of one ``.npy`` file: what each is, and where.

The directory of the archive and the header of every member are checked against each other
when it is opened, so what an array claims is what its member has. Nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, CorruptError
from ckpttool.formats.bounds import require_count, require_shape
from ckpttool.formats.npy import (
    PREAMBLE_BYTES,
    NpyType,
    element_type,
    header_end,
    read_header,
)
from ckpttool.formats.zip_directory import STORED, ZipMember, read_directory
from ckpttool.formats.zip_stream import unpacked
from ckpttool.limits import Limits
from ckpttool.model import numel, shape_text
from ckpttool.storage.base import ReadableFile

__all__ = ["StoredArray", "read_npy", "read_npz"]

_ENDING = ".npy"
#: Bytes of a member that are read to see its header; most headers have 128.
_HEADER_PIECE = 1024
#: Deflate's best: 258 bytes for two bits, and the end of the last block.
_MOST_EXPANSION = 1032
_SOME_BYTES = 64


class StoredArray(NamedTuple):
    """An array in a member of an archive.

    Attributes:
        name: the member's, without ``.npy``.
        type: of its elements.
        shape: one size a dimension.
        fortran_order: whether the first index runs fastest (never of fewer than two axes).
        member: where its bytes are.
        header_bytes: how many of the member's bytes are its header.
        checksum: whether the member has one.
    """

    name: str
    type: NpyType
    shape: tuple[int, ...]
    fortran_order: bool
    member: ZipMember
    header_bytes: int
    checksum: bool

    @property
    def plain(self) -> bool:
        """Whether its elements lie in the file as they are, in C order."""
        return self.member.method == STORED and not self.fortran_order

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, unpacked."""
        return self.member.nbytes - self.header_bytes


def read_npz(file: ReadableFile, limits: Limits) -> tuple[list[StoredArray], list[str]]:
    """The arrays of an archive, and the names of its members that are none.

    Raises:
        CorruptError: id ``npy-malformed`` or ``size-mismatch``, naming the member; and as
            ``read_directory`` and ``unpacked``.
        LimitError: id ``limit-entries`` or ``limit-rank``; and as ``read_directory``.
        UnsafeError, UnsupportedError: as ``read_directory``; id ``npy-version``.
    """
    members = read_directory(file, limits)
    arrays = [member for member in members if member.name.endswith(_ENDING)]
    require_count(file.path, len(arrays), limits)
    others = [member.name for member in members if not member.name.endswith(_ENDING)]
    return [
        _array(file, member.name.removesuffix(_ENDING), member, limits, checksum=True)
        for member in arrays
    ], others


def read_npy(file: ReadableFile, name: str, limits: Limits) -> StoredArray:
    """The array of a ``.npy`` file, called ``name``; raises as `read_npz`."""
    require_count(file.path, 1, limits)
    size = file.stat.size
    whole = ZipMember(file.path, 0, size, size, STORED, 0)
    return _array(file, name, whole, limits, checksum=False)


def _array(
    file: ReadableFile, name: str, member: ZipMember, limits: Limits, *, checksum: bool
) -> StoredArray:
    try:
        if member.nbytes > member.stored * _MOST_EXPANSION + _SOME_BYTES:
            raise CorruptError(
                "its size is impossible",
                why=f"{member.stored} bytes cannot unpack to {member.nbytes}",
                id="zip-malformed",
            )
        header = read_header(_header_bytes(file, member))
        kind = element_type(header.descr)
        shape = require_shape("the array", header.shape, limits)
        elements = numel(shape) * kind.size
        if kind.size and header.nbytes + elements != member.nbytes:
            raise CorruptError(
                "its size does not fit its shape",
                why=f"{member.nbytes - header.nbytes} bytes are stored, and "
                f"{shape_text(shape)} elements of {kind.dtype} take {elements}",
                id="size-mismatch",
            )
    except CkpttoolError as error:
        where = member.name if member.name == file.path else f"{member.name} in {file.path}"
        if error.what.startswith(where):
            raise
        why = f"{error.what}: {error.why}" if error.why else error.what
        raise type(error)(
            f"{where} cannot be read",
            why=why,
            hint=error.hint or "take the file from another copy",
            id=error.id,
        ) from None
    fortran = header.fortran_order and len(shape) > 1
    return StoredArray(name, kind, shape, fortran, member, header.nbytes, checksum)


def _header_bytes(file: ReadableFile, member: ZipMember) -> bytes:
    pieces: Iterator[bytes] = unpacked(file, member, check=False, piece_bytes=_HEADER_PIECE)
    data = b""
    end = PREAMBLE_BYTES
    known = False
    while len(data) < end:
        piece = next(pieces, b"")
        if not piece:
            raise CorruptError(
                "its header is cut off",
                why=f"{len(data)} bytes are there, and it takes {end}",
                id="npy-malformed",
            )
        data += piece
        if not known and len(data) >= PREAMBLE_BYTES:
            end, known = header_end(data[:PREAMBLE_BYTES]), True
    return data[:end]
