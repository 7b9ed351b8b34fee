"""docs/commands.md says what --help says."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tests.support import command_docs
from tests.support.command import ROOT


def pinned(name: str) -> str:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return next(
        line.partition("==")[2].split()[0] for line in lines if line.startswith(f"{name}==")
    )


def test_the_page_is_up_to_date() -> None:
    if version("click") != pinned("click"):
        pytest.skip("another click than the pinned one lays help out in other lines")
    assert command_docs.PATH.read_text("utf-8") == command_docs.text(), (
        "run: python -m tests.support.command_docs"
    )
