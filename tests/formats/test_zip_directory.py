"""The directory of a zip archive: what is read, and what is refused as a whole."""

from __future__ import annotations

import io
import random
import struct
import zipfile

import pytest

from ckpttool.errors import CkpttoolError, CorruptError, LimitError, UnsafeError, UnsupportedError
from ckpttool.formats.zip_directory import STORED, ZipMember, read_directory, read_member
from ckpttool.formats.zip_stream import unpacked
from ckpttool.limits import Limits
from tests.support.memory_file import MemoryFile


def archive(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return buffer.getvalue()


def members(data: bytes, limits: Limits | None = None) -> list[ZipMember]:
    return read_directory(MemoryFile(data), limits or Limits())


def info(name: str, **values: int) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    for key, value in values.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_what_zipfile_reads(method) -> None:
    contents = [("a", b"x" * 1000), ("folder/b", b""), ("é", bytes(range(256)))]
    data = archive(*contents, method=method)
    file = MemoryFile(data)
    found = read_directory(file, Limits())
    assert [(member.name, read_member(file, member, 2**20)) for member in found] == contents


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_comes_in_pieces_as_small_as_asked_for(method) -> None:
    contents = bytes(300_000)  # deflated, all of it comes out of some hundred bytes
    file = MemoryFile(archive(("a", contents), method=method))
    [member] = read_directory(file, Limits())
    pieces = list(unpacked(file, member, piece_bytes=1000))
    assert b"".join(pieces) == contents
    assert max(map(len, pieces)) == 1000


def test_folders_are_left_out_and_a_comment_is_no_matter() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.mkdir("folder")
        file.writestr("folder/x", b"1")
        file.comment = b"a comment" * 100
    assert [member.name for member in members(buffer.getvalue())] == ["folder/x"]


def test_sizes_of_64_bits() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file, file.open("x", "w", force_zip64=True) as member:
        member.write(b"abc")
    data = bytearray(buffer.getvalue())
    # As a large archive has it: 32 bits say "see the extra field", which holds the sizes.
    at = data.find(b"PK\x01\x02")
    extra = struct.pack("<HHQQQ", 1, 24, 3, 3, 0)
    data[at + 20 : at + 28] = b"\xff" * 8
    data[at + 42 : at + 46] = b"\xff" * 4
    data[at + 30 : at + 32] = struct.pack("<H", len(extra))
    data[at + 47 : at + 47] = extra
    end = data.find(b"PK\x05\x06")
    data[end + 12 : end + 16] = struct.pack("<I", end - at)
    file64 = MemoryFile(bytes(data))
    [found] = read_directory(file64, Limits())
    assert read_member(file64, found, 100) == b"abc"


def test_an_end_record_of_64_bits() -> None:
    data = archive(("x", b"abc"))
    at, end = data.find(b"PK\x01\x02"), data.find(b"PK\x05\x06")
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, end - at, at)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, end, 1)
    short = data[end : end + 8] + b"\xff" * 12 + data[end + 20 :]
    assert [found.name for found in members(data[:end] + record + locator + short)] == ["x"]


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../x", "a\\x", "..", "C:\\x", "a/.."]
)
def test_names_that_lead_out_are_refused(name) -> None:
    """FAULTS 20: a `.keras` with `../` (CVE-2025-12638)."""
    with pytest.raises(UnsafeError, match="suspect") as caught:
        members(archive(("fine", b"1"), (info(name), b"2")))
    assert (caught.value.exit_code, caught.value.id) == (22, "zip-unsafe")


def test_a_link_is_refused() -> None:
    link = info("x", external_attr=0o120777 << 16, create_system=3)
    with pytest.raises(UnsafeError, match="suspect") as caught:
        members(archive((link, b"/etc/passwd")))
    assert caught.value.why == "it is a link"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused() -> None:
    with pytest.raises(UnsafeError) as caught:
        members(archive(("x", b"1"), ("x", b"2")))
    assert "twice" in caught.value.why


def test_members_that_share_bytes_are_refused() -> None:
    """A bomb of overlapping members unpacks the same bytes again and again."""
    inner = archive(("b", b"2" * 50))
    cut, inner_end = inner.find(b"PK\x01\x02"), inner.find(b"PK\x05\x06")
    outer = archive(("a", inner[:cut]))
    end = outer.find(b"PK\x05\x06", outer.find(b"PK\x01\x02"))
    entry = bytearray(inner[cut:inner_end])
    entry[42:46] = struct.pack("<I", 31)  # where the bytes of `a` begin
    tail = bytearray(outer[end:])
    tail[8:12] = struct.pack("<HH", 2, 2)
    tail[12:16] = struct.pack("<I", 2 * len(entry))
    with pytest.raises(UnsafeError) as caught:
        members(outer[:end] + bytes(entry + tail))
    assert caught.value.why == "it shares bytes with a"


def test_an_encrypted_member_is_refused() -> None:
    data = bytearray(archive(("x", b"secret")))
    data[data.find(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(UnsafeError) as caught:
        members(bytes(data))
    assert caught.value.why == "it is encrypted"


def test_another_name_at_the_bytes_is_found() -> None:
    data = archive(("model.weights.h5", b"1"))
    with pytest.raises(CorruptError) as caught:
        members(data.replace(b"model.weights.h5", b"other.weights.h5", 1))
    assert "another name" in caught.value.why


def test_an_unusual_method_is_named() -> None:
    with pytest.raises(UnsupportedError) as caught:
        members(archive(("x", b"1" * 100), method=zipfile.ZIP_BZIP2))
    assert caught.value.id == "zip-method"


def test_a_member_may_not_unpack_to_more_than_it_claims() -> None:
    data = bytearray(archive(("x", bytes(2**24)), method=zipfile.ZIP_DEFLATED))
    at = data.find(b"PK\x01\x02")
    file = MemoryFile(bytes(data))
    [member] = read_directory(file, Limits())
    with pytest.raises(LimitError):
        read_member(file, member, 2**20)
    data[at + 24 : at + 28] = struct.pack("<I", 1000)
    file = MemoryFile(bytes(data))
    [member] = read_directory(file, Limits())
    with pytest.raises(CorruptError, match="damaged"):
        read_member(file, member, 2**20)


def test_the_number_of_members_is_bounded() -> None:
    data = archive(("a", b"1"), ("b", b"2"))
    with pytest.raises(LimitError) as caught:
        members(data, Limits(zip_members=1))
    assert caught.value.id == "limit-zip"


def test_a_damaged_archive_is_an_error_of_ours() -> None:
    data = archive(("a", b"1" * 30), ("b/c", b"2" * 30), method=zipfile.ZIP_DEFLATED)
    for size in range(len(data)):
        with pytest.raises(CkpttoolError):
            members(data[:size])
    generator = random.Random(1)
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            changed[generator.randrange(len(data))] = generator.choice((0, 1, 127, 128, 255))
        file = MemoryFile(bytes(changed))
        try:
            for member in read_directory(file, Limits()):
                read_member(file, member, 2**20)
        except CkpttoolError as error:
            assert error.exit_code in {12, 20, 21, 22}  # noqa: PT017 - any of several classes
