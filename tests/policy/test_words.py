"""Durations and sizes in words, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.policy.words import (
    at_least,
    count,
    duration,
    ordinal,
    parse_duration,
    plural,
    size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("10m", 600), ("1.5h", 5400), ("7d", 604800), ("2w", 1209600), ("3 min", 180)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1", "1y", "1h30m", "1e9", "nan", "½"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@given(st.floats(0, 1e9))
def test_at_least_is_enough_and_is_read_back(seconds: float) -> None:
    enough = parse_duration(at_least(seconds))
    assert enough >= seconds
    assert enough <= seconds * 1.34 + 1


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.5, "0.5 s"), (90, "1.5 min"), (8280, "2.3 h"), (172800, "2 d")]
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_size_and_ordinal() -> None:
    assert [size(n) for n in (0, 1023, 1536, 3 * 2**40)] == ["0 B", "1023 B", "1.5 KiB", "3.0 TiB"]
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th",
    ]  # fmt: skip


def test_one_is_no_plural() -> None:
    assert [count(n, "name") for n in (0, 1, 2)] == ["0 names", "1 name", "2 names"]
    assert [f"{n:,} {plural(n, 'value')}" for n in (1, 1000)] == ["1 value", "1,000 values"]
