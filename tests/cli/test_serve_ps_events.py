"""What ``serve-ps up`` prints while it runs."""

from __future__ import annotations

import json

import pytest

from ckpttool.cli.commands.ps.shared import tell
from ckpttool.cli.output import Output, Settings
from ckpttool.ps.events import Event

FAILING = Event("live-failing", "a snapshot failed: x; more in logs/chief-0.log", warns=True)


def test_a_person_is_warned_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A new user's find: only a log said that every snapshot failed."""
    tell(Output(Settings()), FAILING, "run")
    assert capsys.readouterr() == ("", f"warning: {FAILING.text}\n")


def test_other_events_are_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Output(Settings()), Event("stopping", "stopping"), "run")
    assert capsys.readouterr() == ("stopping\n", "")


def test_a_program_gets_both_as_records(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Output(Settings(ndjson=True)), FAILING, "run")
    said, warned = capsys.readouterr()
    assert (json.loads(said)["kind"], warned) == ("live-failing", "")
