"""String and variant payloads: what TensorFlow's are is in test_bundle_tensorflow.py."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import (
    CkpttoolError,
    CorruptError,
    IncompleteError,
    LimitError,
    UnsupportedError,
)
from ckpttool.formats import crc32c, tensor_bytes
from ckpttool.formats.tensor_bytes import (
    read_strings,
    require_bounded,
    string_checksum,
    variant_checksum,
)
from ckpttool.formats.wire import encode_varint
from ckpttool.limits import Limits
from tests.support.handmade import masked_crc, string_payload, varint
from tests.support.memory_file import MemoryFile

BEFORE = b"other bytes"
STRINGS = st.lists(st.one_of(st.binary(max_size=5), st.binary(min_size=120, max_size=300)))


def placed(data: bytes) -> tuple[MemoryFile, int, int]:
    return MemoryFile(BEFORE + data + b"more"), len(BEFORE), len(data)


@given(STRINGS)
def test_strings_and_their_checksum(values: list[bytes]) -> None:
    data, crc = string_payload(values)
    assert read_strings(*placed(data), len(values)) == (values, crc)
    assert string_checksum(*placed(data), len(values)) == crc


def test_no_strings_at_all() -> None:
    assert string_payload([])[0] == bytes.fromhex("d8ea82a2")
    assert read_strings(*placed(bytes.fromhex("d8ea82a2")), 0)[0] == []


@given(STRINGS)
def test_a_big_endian_file(values: list[bytes]) -> None:
    words = b"".join(struct.pack(">I", len(value)) for value in values)
    checksum = struct.pack(">I", masked_crc(words))
    joined = b"".join(values)
    data = b"".join(varint(len(value)) for value in values) + checksum + joined
    found = read_strings(*placed(data), len(values), big_endian=True)
    assert found == (values, masked_crc(words + checksum + joined))
    if any(values):
        with pytest.raises(CorruptError) as caught:
            string_checksum(*placed(data), len(values))
        assert caught.value.id == "strings-checksum"


@pytest.mark.parametrize("piece", [20, 33, 1000])
def test_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(tensor_bytes, "_PIECE", piece)
    monkeypatch.setattr(tensor_bytes, "_AT_ONCE", 3)
    values = [bytes([number % 256]) * (number * 7 % 400) for number in range(200)]
    data, crc = string_payload(values)
    assert read_strings(*placed(data), 200) == (values, crc)
    assert string_checksum(*placed(data), 200) == crc
    variants, crc = variant_payload(values)
    assert variant_checksum(*placed(variants), 200) == crc


def test_checking_takes_no_memory_for_the_strings() -> None:
    data, crc = string_payload([bytes(5 * 2**20), b"x"])
    file = MemoryFile(data)
    assert string_checksum(file, 0, len(data), 2) == crc
    assert file.reads > 5


def test_lengths_past_four_bytes_are_summed_in_eight() -> None:
    words = tensor_bytes._words([5, 2**32, 2**32 - 1], "little")
    assert words == struct.pack("<IQI", 5, 2**32, 2**32 - 1)
    assert tensor_bytes._words([2**32], "big") == struct.pack(">Q", 2**32)


def damaged(data: bytes, count: int) -> str:
    with pytest.raises(CorruptError) as caught:
        string_checksum(*placed(data), count)
    with pytest.raises(CorruptError) as again:
        read_strings(*placed(data), count)
    assert str(again.value) == str(caught.value)
    assert str(len(BEFORE)) in caught.value.why
    return caught.value.id


def test_what_does_not_fit() -> None:
    data, _ = string_payload([b"ab", b"c" * 200])
    assert damaged(data, 1) == "strings-malformed"
    assert damaged(data, 3) == "strings-malformed"
    assert damaged(data, 2**40) == "strings-malformed"
    assert damaged(data[:-1], 2) == "strings-malformed"
    assert damaged(data + b"x", 2) == "strings-malformed"
    assert damaged(data[:2], 2) == "strings-malformed"
    assert damaged(b"", 0) == "strings-malformed"
    assert damaged(b"\xff" * 30, 1) == "strings-malformed"
    assert damaged(b"\xff" * 9 + b"\x7f" + bytes(30), 1) == "strings-malformed"
    assert damaged(b"\xff" * 40, 1) == "strings-malformed"
    assert damaged(b"\x80" * 5 + b"\x00", 1) == "strings-malformed"


def test_lengths_that_were_changed_among_themselves() -> None:
    data, _ = string_payload([b"ab", b"c"])
    assert damaged(b"\x01\x02" + data[2:], 2) == "strings-checksum"


def test_a_changed_byte_changes_the_checksum() -> None:
    data, crc = string_payload([b"ab", b"c"])
    assert string_checksum(*placed(data[:-1] + b"d"), 2) != crc


def test_a_file_that_ends_before() -> None:
    data, _ = string_payload([b"ab", b"c"])
    with pytest.raises(IncompleteError):
        string_checksum(MemoryFile(data[:-1]), 0, len(data), 2)


def test_the_limits_on_what_is_held() -> None:
    limits = Limits(string_elements=2, string_bytes=10)
    require_bounded("it", 2, 10, limits)
    for count, size, id in ((3, 10, "limit-string-elements"), (2, 11, "limit-string-bytes")):
        with pytest.raises(LimitError) as caught:
            require_bounded("it", count, size, limits)
        assert caught.value.id == id


def test_nothing_is_held_that_is_not_what_was_expected() -> None:
    """A file may claim more than the memory has, and none of it be there."""
    for values in ([b"a", b"bc"], [bytes(30 * 2**20)], [bytes(2**20 - 1)] * 30):
        data, crc = string_payload(values)
        file = MemoryFile(data)
        whole = (file, 0, len(data), len(values))
        assert read_strings(*whole, expected=crc) == (values, crc)
        tracemalloc.start()
        try:
            assert read_strings(*whole, expected=crc ^ 1) == ([], crc)
            assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
        finally:
            tracemalloc.stop()


def test_one_long_string_is_in_memory_once() -> None:
    data, crc = string_payload([bytes(64 * 2**20)])
    file = MemoryFile(data)
    tracemalloc.start()
    try:
        (value,), found = read_strings(file, 0, len(data), 1, expected=crc)
        assert tracemalloc.get_traced_memory()[1] < 70 * 2**20
    finally:
        tracemalloc.stop()
    assert (len(value), found) == (64 * 2**20, crc)


# Variants ------------------------------------------------------------------------------


def variant_payload(values: list[bytes]) -> tuple[bytes, int]:
    """As WriteVariantTensor of tensor_bundle.cc describes it."""
    data, summed = b"", b""
    for value in values:
        summed += struct.pack("<Q", len(value)) + value
        checksum = struct.pack("<I", masked_crc(summed))
        summed += checksum
        data += encode_varint(len(value)) + value + checksum
    return data, masked_crc(summed)


@given(STRINGS)
def test_variants(values: list[bytes]) -> None:
    data, crc = variant_payload(values)
    assert variant_checksum(*placed(data), len(values)) == crc


def test_no_variants_at_all() -> None:
    assert variant_checksum(*placed(b""), 0) == crc32c.mask(0)


@pytest.mark.parametrize(
    ("change", "count", "id"),
    [
        (lambda data: data, 1, "variants-malformed"),
        (lambda data: data, 3, "variants-malformed"),
        (lambda data: data, 2**50, "variants-malformed"),
        (lambda data: data[:-1], 2, "variants-malformed"),
        (lambda data: b"\x7f" + data[1:], 2, "variants-malformed"),
        (lambda data: data[:2] + b"?" + data[3:], 2, "variants-checksum"),
        (lambda data: data[:-1] + b"?", 2, "variants-checksum"),
    ],
)
def test_variants_that_are_damaged(change, count: int, id: str) -> None:
    data, _ = variant_payload([b"abc", b"d" * 100])
    with pytest.raises(CorruptError) as caught:
        variant_checksum(*placed(change(data)), count)
    assert caught.value.id == id


def test_variants_of_a_big_endian_file() -> None:
    with pytest.raises(UnsupportedError) as caught:
        variant_checksum(*placed(b""), 0, big_endian=True)
    assert caught.value.id == "variants-big-endian"


# Any bytes at all ----------------------------------------------------------------------


@given(st.binary(max_size=60), st.integers(0, 20))
def test_any_bytes_are_read_or_are_an_error(data: bytes, count: int) -> None:
    for read in (string_checksum, variant_checksum):
        try:
            assert 0 <= read(*placed(data), count) < 2**32
        except CkpttoolError:
            pass
