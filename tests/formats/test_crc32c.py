"""CRC-32C against the vectors of RFC 3720, appendix B.4, and against another implementation."""

from __future__ import annotations

import random

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.formats import crc32c


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_known_values(data: bytes, value: int) -> None:
    assert crc32c.crc(data) == value


def test_the_mask_of_nothing_is_what_tensorflow_stores_for_an_empty_variable() -> None:
    assert crc32c.mask(crc32c.crc(b"")) == 0xA282EAD8


@given(st.integers(0, 2**32 - 1))
def test_unmask_is_the_inverse(value: int) -> None:
    masked = crc32c.mask(value)
    assert 0 <= masked < 2**32
    assert masked != value
    assert crc32c.unmask(masked) == value


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_extending(first: bytes, second: bytes) -> None:
    assert crc32c.extend(crc32c.crc(first), second) == crc32c.crc(first + second)


@pytest.mark.parametrize("nbytes", [*range(0, 520, 7), 4095, 4097, 2**16 + 5, 2**19, 2**20 + 333])
def test_every_way_of_summing_gives_what_another_library_gives(nbytes: int) -> None:
    """Short and long ones are summed by other instructions; where they begin matters too."""
    data = random.Random(nbytes).randbytes(nbytes + 64)
    for start in (0, 1, 3, 8, 33):
        part = data[start : start + nbytes]
        assert crc32c.crc(part) == google_crc32c.value(part)
        assert crc32c.extend(0xDEADBEEF, part) == google_crc32c.extend(0xDEADBEEF, part)


def test_a_view_is_summed_where_it_lies() -> None:
    data = bytearray(random.Random(1).randbytes(1000))
    assert crc32c.crc(memoryview(data)[3:]) == google_crc32c.value(bytes(data[3:]))
