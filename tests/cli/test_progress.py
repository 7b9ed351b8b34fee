"""Progress: silent when short, a line on a terminal, JSON lines for machines."""

from __future__ import annotations

import json

import pytest

from ckpttool.cli.output import Output, Settings
from ckpttool.cli.progress import Progress
from ckpttool.cli.screen import Screen


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def make(style, *, width: int = 80, unit: str = "bytes", unicode: bool = True):
    written: list[str] = []
    screen = Screen(width, color=False, unicode=unicode)
    return Progress("verify", unit, style, screen, written.append), written


def test_the_first_half_second_shows_nothing(clock) -> None:
    progress, written = make("bar")
    with progress:
        clock.now += 0.49
        progress(1, 2)
    assert written == []


def test_a_bar_says_how_far_how_fast_and_how_long(clock) -> None:
    progress, written = make("bar")
    with progress:
        clock.now += 2
        progress(50 * 2**20, 200 * 2**20)
        expected = (
            f"\r\x1b[Kverify  {'━' * 6}{'─' * 18}   25%"
            "  50.0 MiB of 200.0 MiB  25.0 MiB/s  0:06 left"
        )
        assert written == [expected]
        clock.now += 0.05
        progress(51 * 2**20, 200 * 2**20)
        assert len(written) == 1, "at most ten times a second"
    assert written[-1] == "\r\x1b[K", "the line is gone at the end"


def test_a_narrow_ascii_terminal_gets_less(clock) -> None:
    progress, written = make("bar", width=40, unicode=False)
    clock.now += 1
    progress(1, 4)
    assert written == ["\r\x1b[Kverify   25%  1 B of 4 B"]


def test_an_unknown_total_and_other_units(clock) -> None:
    progress, written = make("bar", unit="variables")
    clock.now += 4000
    progress(8_000, 0)
    progress(8_000, 16_000)
    assert written == ["\r\x1b[Kverify  8,000  2/s"]
    clock.now += 4000
    progress(8_000, 40_000)
    assert written[-1].endswith("8,000 of 40,000  1/s  8:53:20 left")


def test_json_lines_come_every_half_second_and_at_the_end(clock) -> None:
    progress, written = make("json")
    with progress:
        for step in range(11):
            clock.now += 0.25
            progress(step, 10)
    lines = [json.loads(line) for line in written]
    assert [line["done"] for line in lines] == [1, 3, 5, 7, 9, 10]
    assert lines[0] == {
        "type": "progress",
        "label": "verify",
        "done": 1,
        "total": 10,
        "unit": "bytes",
        "seconds": 0.5,
    }


def test_no_terminal_no_bar(clock, capsys) -> None:
    with Output(Settings()).progress("verify") as report:
        clock.now += 10
        report(1, 2)
    assert capsys.readouterr().err == ""


def test_json_progress_goes_with_json_output(clock, capsys) -> None:
    with Output(Settings(json=True, progress="json")).progress("verify") as report:
        clock.now += 10
        report(1, 2)
    assert json.loads(capsys.readouterr().err.splitlines()[0])["done"] == 1


def test_a_warning_takes_the_bar_away_first(clock, capsys, monkeypatch) -> None:
    monkeypatch.setattr("ckpttool.cli.output._is_terminal", lambda stream: stream is not None)
    monkeypatch.setenv("NO_COLOR", "1")
    out = Output(Settings())
    with out.progress("verify") as report:
        clock.now += 1
        report(1, 2)
        out.warn("look")
    shown = capsys.readouterr().err
    assert "\r\x1b[Kwarning: look\n" in shown
    assert shown.endswith("\r\x1b[K")
