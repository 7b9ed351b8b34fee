"""Text on a terminal: how wide it is, its middle cut, its lines broken."""

from __future__ import annotations

import pytest

from ckpttool.cli.fitting import columns_of, flowed, shortened, wrapped


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("kernel", 6), ("größe", 5), ("重み", 4), ("\uff4b", 2), ("e\u0301", 1), ("🙂", 2)],
)
def test_columns(text, columns) -> None:
    assert columns_of(text) == columns


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("dense/kernel/Adam", 17, "dense/kernel/Adam"),
        ("dense/kernel/Adam", 11, "dense…/Adam"),
        ("dense/kernel/Adam", 10, "dens…/Adam"),
        ("dense/kernel/Adam", 2, "de"),
        ("層/重み/名前/核", 10, "層/…前/核"),
        ("abcdef\u0301\u0301ghi", 6, "ab…ghi"),
    ],
)
def test_names_lose_their_middle(text, columns, cut) -> None:
    assert shortened(text, columns) == cut
    assert columns_of(cut) <= columns


def test_an_ascii_terminal_has_dots() -> None:
    assert shortened("dense/kernel/Adam", 11, "...") == "dens...Adam"


def test_lines_break_at_spaces_and_hang() -> None:
    assert wrapped("short enough", 12, 2) == "short enough"
    assert wrapped("error: this is too long", 12, 7) == "error: this\n  is too\n  long"
    assert wrapped("error: all this is too long", 22, 7) == "error: all this is too\n       long"
    assert wrapped("  two words, indented", 14, 4) == "  two words,\n    indented"


def test_a_size_stays_together() -> None:
    assert (
        wrapped("what it holds (2.0 KiB) and 7 B.", 20, 2) == "what it holds\n  (2.0 KiB) and 7 B."
    )
    assert wrapped("one two three Bob", 13, 0) == "one two three\nBob"


def test_styles_take_no_room() -> None:
    text = "\x1b[31merror\x1b[0m is one two"
    assert wrapped(text, 16, 2) == text
    assert wrapped(text, 12, 2) == "\x1b[31merror\x1b[0m is one\n  two"


def test_a_word_that_fits_nowhere_stays_whole() -> None:
    path = "/a/very/long/path/to/somewhere"
    assert wrapped(f"error: {path} is gone", 20, 7) == f"error: {path}\n  is gone"


def test_wide_characters_count_twice() -> None:
    assert wrapped("層層 層層 層層", 9, 0) == "層層 層層\n層層"


def test_items_stay_whole() -> None:
    assert flowed(["min 0", "max 10", "mean 3"], 13) == "min 0  max 10\nmean 3"
    assert flowed([], 10) == ""
