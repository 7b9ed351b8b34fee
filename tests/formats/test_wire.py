"""The protobuf wire reader: what it reads, and that it reads nothing past its bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CorruptError
from ckpttool.formats import wire
from tests.support import handmade


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_varint_is_read_where_it_stands(value: int, before: bytes, behind: bytes) -> None:
    coded = wire.encode_varint(value)
    assert coded == handmade.varint(value)
    data = before + coded + behind
    assert wire.read_varint(data, len(before), len(data)) == (value, len(before) + len(coded))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "runs past the end"),
        (b"\x80", "runs past the end"),
        (b"\xff" * 9, "runs past the end"),
        (b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x80" * 10 + b"\x00", "more than 64 bits"),
        (b"\xff" * 1000, "more than 64 bits"),
    ],
)
def test_a_varint_that_is_none(data: bytes, why: str) -> None:
    with pytest.raises(CorruptError) as caught:
        wire.read_varint(data, 0, len(data))
    assert why in caught.value.why


def test_a_varint_may_be_longer_than_it_needs_to_be() -> None:
    assert wire.read_varint(b"\x81\x80\x80\x00", 0, 4) == (1, 4)


def test_the_end_is_kept_though_the_data_goes_on() -> None:
    with pytest.raises(CorruptError):
        wire.read_varint(b"\x80\x01", 0, 1)
    with pytest.raises(CorruptError):
        list(wire.fields(b"\x0a\x02ab", 0, 3))


def test_fields_of_every_wire_type() -> None:
    data = b"\x08\x96\x01" + b"\x12\x02hi" + b"\x1d\x01\x00\x00\x80" + b"\x21" + b"\xff" * 8
    assert list(wire.fields(data)) == [
        (1, wire.VARINT, 150),
        (2, wire.LENGTH, (5, 7)),
        (3, wire.FIXED32, 0x80000001),
        (4, wire.FIXED64, 2**64 - 1),
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x01", "field number 0"),
        (b"\x08", "runs past the end"),
        (b"\x0a\x05abc", "claims 5 bytes, and 3 are left"),
        (b"\x0d\x00\x00\x00", "claims 4 bytes, and 3 are left"),
        (b"\x09" + bytes(7), "claims 8 bytes, and 7 are left"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x0e", "wire type 6"),
        (b"\x80\x80\x80\x80\x10\x01", "does not exist"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "claims 18446744073709551615 bytes"),
    ],
)
def test_a_message_that_is_none(data: bytes, why: str) -> None:
    with pytest.raises(CorruptError) as caught:
        list(wire.fields(data))
    assert why in caught.value.why
    assert caught.value.id == "message-malformed"


@given(st.binary(max_size=60))
def test_any_bytes_give_fields_within_them_or_an_error(data: bytes) -> None:
    try:
        for number, wire_type, value in wire.fields(data):
            assert number > 0
            if wire_type == wire.LENGTH:
                assert isinstance(value, tuple)
                assert 0 <= value[0] <= value[1] <= len(data)
    except CorruptError:
        pass


def test_numbers_with_a_sign() -> None:
    assert wire.signed64(2**64 - 1) == -1
    assert wire.signed64(2**63 - 1) == 2**63 - 1
    assert wire.signed32(2**64 - 5) == -5
    assert wire.signed32(2**31) == -(2**31)
    assert wire.signed32(7) == 7
