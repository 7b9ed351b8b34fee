"""The contents of a member of a zip archive, unpacked piece by piece.

Whatever a member claims or unpacks to, a few MiB are held at a time: it is cut off where
it gives more than its directory says. Knows members (``zip_directory.py``), not what is
in them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, NoReturn

from ckpttool.errors import CorruptError
from ckpttool.formats.zip_directory import STORED, ZipMember
from ckpttool.storage.base import ReadableFile
from ckpttool.storage.system import raise_os_error

__all__ = ["MemberBytes", "unpacked"]

#: Bytes that are read or unpacked at once.
_PIECE_BYTES = 2**20


def unpacked(
    file: ReadableFile, member: ZipMember, *, check: bool = True, piece_bytes: int = _PIECE_BYTES
) -> Iterator[bytes]:
    """The contents of a member, in pieces.

    Args:
        file: the archive.
        member: as ``read_directory`` gave it.
        check: compare the checksum, at the end.
        piece_bytes: the most that is read, and unpacked, at once.

    Raises:
        CorruptError: id ``zip-malformed``: there is no deflate stream, or it has another
            length than the directory says; id ``zip-checksum``.
        IncompleteError: id ``short-read``.
    """
    crc = done = 0
    stored = _stored(file, member, piece_bytes)
    if member.method != STORED:
        stored = _inflated(file, member, stored, piece_bytes)
    for piece in stored:
        done += len(piece)
        if done > member.nbytes:
            _malformed(file, member, f"it unpacks to more than the {member.nbytes} bytes it claims")
        if check:
            crc = zlib.crc32(piece, crc)
        yield piece
    if done != member.nbytes:
        _malformed(file, member, f"it unpacks to {done} bytes, and claims {member.nbytes}")
    if check and crc != member.crc32:
        raise CorruptError(
            f"{member.name} in {file.path} is damaged",
            why=f"its checksum is {crc:08x}, and {member.crc32:08x} is stored",
            hint="take the file from another copy; load --no-check gives the bytes as they are",
            id="zip-checksum",
        )


class MemberBytes:
    """The contents of a compressed member, by range.

    Reading forward goes on unpacking; the first read back unpacks all of it, once, into a
    temporary file without a name.
    """

    def __init__(self, file: ReadableFile, member: ZipMember) -> None:
        self._file = file
        self._member = member
        self._pieces = unpacked(file, member, check=False)
        #: The last piece, and where it starts; what went before is gone.
        self._piece = b""
        self._at = 0
        self._spool: IO[bytes] | None = None

    def read(self, offset: int, size: int) -> bytes:
        """Exactly these bytes; raises as `unpacked`, and StorageError of the temporary file."""
        if offset < self._at and self._spool is None:
            self._spool = self._unpack_all()
        if self._spool is not None:
            self._spool.seek(offset)
            return self._spool.read(size)
        parts = []
        while size:
            within = offset - self._at
            if within < len(self._piece):
                part = self._piece[within : within + size]
                parts.append(part)
                offset += len(part)
                size -= len(part)
                continue
            self._at += len(self._piece)
            self._piece = next(self._pieces, b"")
            if not self._piece:
                _malformed(self._file, self._member, f"it ends at byte {self._at}")
        return b"".join(parts)

    def _unpack_all(self) -> IO[bytes]:
        try:
            spool = TemporaryFile()  # noqa: SIM115 - `close` does
            for piece in unpacked(self._file, self._member, check=False):
                spool.write(piece)
        except OSError as error:
            raise_os_error(error, f"cannot unpack {self._member.name} into a temporary file")
        return spool

    def close(self) -> None:
        """Release the temporary file."""
        if self._spool is not None:
            self._spool.close()


def _stored(file: ReadableFile, member: ZipMember, piece_bytes: int) -> Iterator[bytes]:
    for at in range(0, member.stored, piece_bytes):
        yield file.pread(member.offset + at, min(piece_bytes, member.stored - at))


def _inflated(
    file: ReadableFile, member: ZipMember, stored: Iterator[bytes], piece_bytes: int
) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for data in stored:
            pending = data
            while pending and not inflater.eof:
                if piece := inflater.decompress(pending, piece_bytes):
                    yield piece
                pending = inflater.unconsumed_tail
        while not inflater.eof:
            piece = inflater.decompress(b"", piece_bytes)
            if not piece:
                _malformed(file, member, "its compressed bytes have no end")
            yield piece
    except zlib.error as error:
        _malformed(file, member, f"it cannot be unpacked ({error})")


def _malformed(file: ReadableFile, member: ZipMember, why: str) -> NoReturn:
    raise CorruptError(
        f"{member.name} in {file.path} is damaged",
        why=why,
        hint="take the file from another copy",
        id="zip-malformed",
    )
