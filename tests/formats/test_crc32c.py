"""CRC-32C against the vectors of RFC 3720, appendix B.4."""

from __future__ import annotations

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
