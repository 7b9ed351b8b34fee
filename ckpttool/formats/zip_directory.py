"""The directory of a zip archive, checked as a whole before any member is read.

Nothing is unpacked to a file here: a member is a range of bytes of the archive, stored
plainly or deflated. What another program could be led astray by is refused: names that
leave the folder, two members of one name, members that overlap, encryption, links.
Bounded by limits; reads through ``ReadableFile``. Facts: PKWARE's APPNOTE 6.3.10.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ckpttool.errors import CorruptError, LimitError, UnsafeError, UnsupportedError

if TYPE_CHECKING:
    from ckpttool.limits import Limits
    from ckpttool.storage.base import ReadableFile

__all__ = ["STORED", "ZipMember", "read_directory", "read_member"]

STORED, DEFLATED = 0, 8

_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x06"
_LOCATOR_64 = b"PK\x06\x07"
_ENTRY = b"PK\x01\x02"
_LOCAL = b"PK\x03\x04"
#: Bytes of the end record, and of the comment that may follow it.
_END_BYTES, _COMMENT_BYTES = 22, 65535
_LOCAL_BYTES = 30
#: Of an entry of the directory, up to its name.
_ENTRY_FIELDS = struct.Struct("<4s6H3I3H2H2I")
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF
_ENCRYPTED, _UTF_8 = 0x1, 0x800
#: Who wrote an entry, and what kind of file its mode says that it is.
_UNIX, _FORMAT, _LINK = 3, 0o170000, 0o120000


class ZipMember(NamedTuple):
    """A member: where its bytes lie, as stored and unpacked, and their checksum."""

    name: str
    offset: int
    stored: int
    nbytes: int
    method: int
    crc32: int


def read_directory(file: ReadableFile, limits: Limits) -> list[ZipMember]:
    """The members of an archive, in the order of its directory; folders are left out.

    Raises:
        CorruptError: id ``zip-malformed``.
        LimitError: id ``limit-zip``: more members, or a larger directory, than allowed.
        UnsafeError: id ``zip-unsafe``.
        UnsupportedError: id ``zip-method``: compressed otherwise than by deflate.
    """
    count, start, size = _end(file)
    most = limits.zip_members
    if count > most or size > most * 256:
        raise LimitError(
            f"{file.path} has too many members",
            why=f"its directory claims {count} in {size} bytes, and the limit is {most}",
            hint=f"CKPTTOOL_LIMITS=zip_members={max(count, size // 256 + 1)} allows them",
            id="limit-zip",
        )
    if start + size > file.stat.size:
        _malformed(file, f"its directory claims bytes {start} to {start + size}")
    data = file.pread(start, size)
    members: list[ZipMember] = []
    at = 0
    for _ in range(count):
        if data[at : at + 4] != _ENTRY or len(data) < at + _ENTRY_FIELDS.size:
            _malformed(file, f"entry {len(members)} of its directory is none")
        member, at = _entry(file, data, at)
        if member is not None:
            members.append(member)
    _require_apart(file, members, start)
    return members


def read_member(file: ReadableFile, member: ZipMember, most: int) -> bytes:
    """A whole member, unpacked and checked.

    Args:
        file: the archive.
        member: as `read_directory` gave it.
        most: bytes that it may have.

    Raises:
        LimitError: id ``limit-zip``: it has more.
        CorruptError: id ``zip-malformed``: it cannot be unpacked, or its checksum differs.
    """
    if max(member.nbytes, member.stored) > most:
        raise LimitError(
            f"{member.name} in {file.path} is too large",
            why=f"{member.nbytes} bytes, and the limit is {most}",
            id="limit-zip",
        )
    data = file.pread(member.offset, member.stored)
    if member.method == DEFLATED:
        try:
            data = zlib.decompressobj(-15).decompress(data, member.nbytes + 1)
        except zlib.error as error:
            _malformed(file, f"{member.name} cannot be unpacked: {error}")
    if len(data) != member.nbytes or zlib.crc32(data) != member.crc32:
        _malformed(file, f"{member.name} does not match its checksum")
    return data


def _end(file: ReadableFile) -> tuple[int, int, int]:
    """The number of entries of the directory, where it starts, its bytes."""
    size = file.stat.size
    tail_bytes = min(size, _END_BYTES + _COMMENT_BYTES)
    tail = file.pread(size - tail_bytes, tail_bytes)
    at = tail.rfind(_END)
    if at < 0 or at + _END_BYTES > len(tail):
        _malformed(file, "its end record is missing: it may be cut off")
    disk, _, _, count, length, start, _ = struct.unpack_from("<4H2IH", tail, at + 4)
    if disk not in (0, _FULL_16):
        _malformed(file, "it is one of several parts")
    if count == _FULL_16 or _FULL_32 in (length, start):
        where = size - tail_bytes + at - 20
        if where >= 0 and file.pread(where, 4) == _LOCATOR_64:
            (record,) = struct.unpack("<Q", file.pread(where + 8, 8))
            if record + 56 > size or file.pread(record, 4) != _END_64:
                _malformed(file, f"there is no end record at {record}")
            count, length, start = struct.unpack("<QQQ", file.pread(record + 32, 24))
    return count, start, length


def _entry(file: ReadableFile, data: bytes, at: int) -> tuple[ZipMember | None, int]:
    """The entry of the directory at ``at`` (None: a folder), and where the next one is."""
    fields = _ENTRY_FIELDS.unpack_from(data, at)
    _, made, _, flags, method, _, _, crc32, stored, nbytes, *lengths, disk, _, mode, offset = fields
    name_bytes, extra_bytes, comment_bytes = lengths
    name_at = at + _ENTRY_FIELDS.size
    extra_at = name_at + name_bytes
    following = extra_at + extra_bytes + comment_bytes
    if following > len(data) or disk not in (0, _FULL_16):
        _malformed(file, "an entry of its directory claims more than there is")
    raw = data[name_at:extra_at]
    name = raw.decode("utf-8" if flags & _UTF_8 else "cp437", "surrogateescape")
    extra = data[extra_at : extra_at + extra_bytes]
    nbytes, stored, offset = _wide(file, extra, nbytes, stored, offset)
    if flags & _ENCRYPTED:
        _unsafe(file, name, "it is encrypted")
    if made >> 8 == _UNIX and (mode >> 16) & _FORMAT == _LINK:
        _unsafe(file, name, "it is a link")
    if name.startswith("/") or "\\" in name or "\0" in name or ".." in name.split("/"):
        _unsafe(file, name, "its name leads out of the archive")
    if name.endswith("/"):
        return None, following
    if method not in (STORED, DEFLATED):
        raise UnsupportedError(
            f"{name} in {file.path} cannot be read",
            why=f"it is compressed by method {method}; stored and deflated members are read",
            hint="write the archive again with deflate",
            id="zip-method",
        )
    if method == STORED and stored != nbytes:
        _malformed(file, f"{name} is stored plainly, and its two sizes differ")
    start = _data_offset(file, name, raw, offset)
    return ZipMember(name, start, stored, nbytes, method, crc32), following


def _wide(
    file: ReadableFile, extra: bytes, nbytes: int, stored: int, offset: int
) -> tuple[int, int, int]:
    """The three sizes, with those that did not fit into 32 bits from the extra field."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            wide = iter(extra[at + 4 + i : at + 12 + i] for i in range(0, length, 8))
            sizes = [
                int.from_bytes(next(wide, b""), "little") if size == _FULL_32 else size
                for size in (nbytes, stored, offset)
            ]
            return sizes[0], sizes[1], sizes[2]
        at += 4 + length
    if _FULL_32 in (nbytes, stored, offset):
        _malformed(file, "a size of 4 GiB or more is missing")
    return nbytes, stored, offset


def _data_offset(file: ReadableFile, name: str, raw: bytes, offset: int) -> int:
    """Where the bytes of a member start: behind its own header, which says the name again."""
    if offset + _LOCAL_BYTES > file.stat.size:
        _malformed(file, f"{name} claims to begin at {offset}")
    header = file.pread(offset, _LOCAL_BYTES)
    name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
    start = offset + _LOCAL_BYTES + name_bytes
    if header[:4] != _LOCAL or start > file.stat.size:
        _malformed(file, f"there is no member at {offset}, where {name} should be")
    if file.pread(offset + _LOCAL_BYTES, name_bytes) != raw:
        _malformed(file, f"{name} has another name where its bytes are")
    return int(start + extra_bytes)


def _require_apart(file: ReadableFile, members: list[ZipMember], end: int) -> None:
    """Check that members have names of their own and bytes of their own."""
    names: set[str] = set()
    reached, before = 0, ""
    for member in members:
        if member.name in names:
            _unsafe(file, member.name, "the archive has it twice")
        names.add(member.name)
    for member in sorted(members, key=lambda member: member.offset):
        if member.offset < reached:
            _unsafe(file, member.name, f"it shares bytes with {before}")
        reached, before = member.offset + member.stored, member.name
    if reached > end:
        _malformed(file, f"{before} claims bytes up to {reached}, and the directory is at {end}")


def _malformed(file: ReadableFile, why: str) -> NoReturn:
    raise CorruptError(
        f"{file.path} is a damaged zip archive",
        why=why,
        hint="copy the file again from where it is whole",
        id="zip-malformed",
    )


def _unsafe(file: ReadableFile, name: str, why: str) -> NoReturn:
    raise UnsafeError(
        f"{file.path} is not read: {name} is suspect",
        why=why,
        hint="take the file from where you trust it",
        id="zip-unsafe",
    )
