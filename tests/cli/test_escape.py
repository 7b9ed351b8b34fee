"""Nothing that a file can hold reaches a terminal as it is (F10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpttool.cli.escape import clip, escape


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain/kernel:0", "plain/kernel:0"),
        ("größe/重み", "größe/重み"),
        ("a\\b", "a\\b"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x00\x7f", r"\x00\x7f"),
        ("\x9b31m", r"\u009b31m"),
        ("gpj\u202egnp", r"gpj\u202egnp"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\u2028line", r"\u2028line"),
        ("\U000e0041tag", r"\U000e0041tag"),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), r"caf\xe9"),
        ("\ud800", r"\ud800"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_what_comes_out_is_printable_on_one_line(text: str) -> None:
    shown = escape(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    assert escape(shown) == shown


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_printable_text_stays(text: str) -> None:
    assert escape(text) == text


def test_a_message_of_megabytes_is_shown_by_its_ends() -> None:
    assert clip("a" * 2000) == "a" * 2000
    shown = clip("a" * 10**6 + "b" * 10**6)
    assert len(shown) < 2100
    assert shown.startswith("aaa")
    assert shown.endswith("bbb")
    assert "(2000000 characters)" in shown
