"""Limits: the defaults, and how a person changes one."""

from __future__ import annotations

import pytest

from ckpttool.errors import UsageError
from ckpttool.limits import Limits, default_limits, parse_size


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("17", 17), ("8M", 8 * 2**20), (" 1g ", 2**30), ("2KiB", 2048), ("3tb", 3 * 2**40)],
)
def test_sizes(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "M", "1.5G", "-1", "1MM", "٣", "1 M M", "0x10"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_the_environment_changes_single_limits(monkeypatch):
    monkeypatch.setenv("CKPTTOOL_LIMITS", "key_bytes=8M, rank=300,")
    assert default_limits() == Limits(key_bytes=8 * 2**20, rank=300)
    monkeypatch.setenv("CKPTTOOL_LIMITS", "")
    assert default_limits() == Limits()


@pytest.mark.parametrize("setting", ["nonsense=1", "rank", "rank=many"])
def test_a_setting_that_cannot_be_used_says_which(monkeypatch, setting):
    monkeypatch.setenv("CKPTTOOL_LIMITS", setting)
    with pytest.raises(UsageError, match="CKPTTOOL_LIMITS") as caught:
        default_limits()
    assert "key_bytes" in caught.value.hint
