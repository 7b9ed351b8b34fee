"""JSON of files that nobody vouches for; names with an emoji are text, half of one is none."""

from __future__ import annotations

import pytest

from ckpttool.errors import CorruptError
from ckpttool.formats.json_text import parse_json


@pytest.mark.parametrize(
    "text",
    [
        b'"\\ud83d"',
        b'{"a": ["b", {"\\uDC00": 1}]}',
        b'{"a": {"b": ["\\udcff"]}}',
        b'"\\ud83d\\ud83d\\ude00"',
    ],
)
def test_half_a_character_is_no_text(text: bytes) -> None:
    with pytest.raises(CorruptError, match="malformed") as caught:
        parse_json(text, "x")
    assert caught.value.id == "json-malformed"


def test_whole_characters_are_text_however_they_are_written() -> None:
    written = '["\\ud83d\\ude00", "😀", "\\\\ud83d", {"\\u00e9": "é"}]'.encode()
    assert parse_json(written, "x") == ["😀", "😀", "\\ud83d", {"é": "é"}]


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"Infinity", b"NaN", b"9" * 5000])
def test_numbers_are_finite(number: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_json(b'{"a": %s}' % number, "x")
    assert parse_json(b'{"a": 1e308}', "x") == {"a": 1e308}
