"""Keys of parts: TensorFlow's own bytes, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.errors import CorruptError
from ckpttool.formats.ordered_code import FULL, decode_slice_key, encode_slice_key
from tests.support import handmade

NAMES = st.lists(st.sampled_from([b"\x00", b"\x01", b"\xff", b"a", b"/"]), max_size=8).map(b"".join)
NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-70, 200))
SLICES = st.lists(st.tuples(NUMBERS, st.one_of(st.just(FULL), NUMBERS)), max_size=6)


@given(NAMES, SLICES)
def test_decoding_is_the_inverse(name: bytes, slices: list[tuple[int, int]]) -> None:
    assert decode_slice_key(encode_slice_key(name, slices)) == (name, slices)


@given(NAMES, SLICES)
def test_encodes_as_the_other_implementation(name: bytes, slices: list[tuple[int, int]]) -> None:
    spelled = [(start, None if length == FULL else length) for start, length in slices]
    assert encode_slice_key(name, slices) == handmade.slice_key(name, spelled)


@pytest.mark.parametrize(
    ("value", "coded"),
    [
        (0, "80"),
        (63, "bf"),
        (64, "c040"),
        (8191, "dfff"),
        (8192, "e02000"),
        (2**31, "f880000000"),
        (2**62, "ffc04000000000000000"),
        (-64, "40"),
        (-65, "3fbf"),
    ],
)
def test_signed_numbers_as_tensorflow_codes_them(value: int, coded: str) -> None:
    key = encode_slice_key(b"", [(value, FULL)])
    assert key.hex() == "00" + "0001" + "0101" + coded + "7f"


@given(st.lists(NUMBERS, min_size=2, max_size=8))
def test_keys_sort_as_their_numbers(numbers: list[int]) -> None:
    keys = [encode_slice_key(b"w", [(number, 1)]) for number in sorted(numbers)]
    assert keys == sorted(keys)


def test_a_whole_dimension_has_two_spellings() -> None:
    assert encode_slice_key(b"w", [(0, FULL)]).endswith(bytes.fromhex("807f"))
    assert encode_slice_key(b"w", [(0, 2)]).endswith(bytes.fromhex("8082"))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (b"", "ends before a number"),
        (b"w", "claims 119 bytes"),
        (b"\x01\x05w\x00\x01\x00", "number 5"),
        (b"\x00w", "no end"),
        (b"\x00w\x00\x02", "no escape"),
        (b"\x00w\xff\x01", "no escape"),
        (b"\x00w\x00\x01", "ends before a number"),
        (b"\x00w\x00\x01\x01\x01\x80", "claims 16 bytes"),
        (b"\x00w\x00\x01\x01\x01\x80\x81\x00", "1 bytes follow"),
        (b"\x00w\x00\x01\x04\xff\xff\xff\xff", "4294967295 dimensions"),
        (b"\x00w\x00\x01\x01\x01" + b"\xff" * 20, "claims 16 bytes"),
    ],
)
def test_a_key_that_is_none(key: bytes, why: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_slice_key(key)
    assert why in caught.value.why
    assert caught.value.id == "slice-key-malformed"


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_an_error(data: bytes) -> None:
    try:
        decode_slice_key(b"\x00" + data)
    except CorruptError:
        pass
