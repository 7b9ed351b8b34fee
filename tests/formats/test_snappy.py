"""Snappy blocks: what is right is expanded, what claims too much costs no memory."""

from __future__ import annotations

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CkpttoolError, CorruptError, LimitError
from ckpttool.formats.snappy import decompress
from tests.support import handmade

LIMIT = 2**20


def compress(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@given(st.binary(max_size=3000), st.integers(1, 300))
def test_expands_what_was_compressed(data: bytes, times: int) -> None:
    assert decompress(compress(data * times), LIMIT) == data * times


def test_the_densest_stream_there_is() -> None:
    # One literal byte, then copies of 64 bytes, three bytes each: 64/3 is the most.
    stream = handmade.varint(1 + 64 * 1000) + b"\x00a" + b"\xfe\x01\x00" * 1000
    assert decompress(stream, LIMIT) == b"a" * 64001


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\xff\x01a",
        handmade.varint(2**32 - 2),
        handmade.varint(2**30) + b"\x00a",
        compress(b"hello world")[:-1],
        compress(b"hello world") + b"x",
        handmade.varint(11) + compress(b"hello")[1:],
    ],
)
def test_a_stream_that_lies(data: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        decompress(data, 2**40)
    assert caught.value.id == "snappy-malformed"


def test_a_limit() -> None:
    data = compress(bytes(5000))
    assert decompress(data, 5000) == bytes(5000)
    with pytest.raises(LimitError) as caught:
        decompress(data, 4999)
    assert caught.value.id == "limit-block"


@given(st.binary(max_size=50))
def test_any_bytes_expand_or_are_an_error(data: bytes) -> None:
    try:
        assert len(decompress(data, LIMIT)) <= LIMIT
    except CkpttoolError:
        pass
