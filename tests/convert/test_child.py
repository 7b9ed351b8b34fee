"""The child process of a conversion: answers, deaths, limits, and who is left afterwards.

FAULTS 21: it aborts, hangs, is killed for memory, writes to stdout.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ckpttool.conversion.child import Bounds, last_lines, run_task
from ckpttool.errors import (
    CkpttoolError,
    ConversionError,
    ConverterMissingError,
    LimitError,
    NoSpaceError,
    UnsupportedError,
)
from ckpttool.limits import Limits
from tests.support.command import ROOT, clean_environment

TASK = "tests.support.child_tasks"
PLENTY = Bounds(seconds=120, memory=2**40)


def run(folder: Path, do: str, bounds: Bounds = PLENTY, **more: str) -> dict[str, Any]:
    answers = folder / "answers"
    answers.mkdir()
    try:
        return run_task(
            TASK, {"do": do, **more}, folder=str(answers), log=str(folder / "log"), bounds=bounds
        )
    finally:
        assert list(answers.iterdir()) == []


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_answer_and_what_was_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = "a name\n'\udcff' of any bytes"
    assert run(tmp_path, "answer", path=path)["echo"]["path"] == path
    assert set(last_lines(str(tmp_path / "log"))) == {
        "on python's stdout",
        "on descriptor 1",
        "on descriptor 2",
    }
    assert capfd.readouterr() == ("", "")


def test_an_error_of_ours_keeps_its_class_and_words(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        run(tmp_path, "refuse")
    error = caught.value
    assert (error.what, error.why, error.hint) == ("no such thing", "1 of 2", "try")
    assert (error.id, error.exit_code) == ("dtype-unsupported", 12)


def test_any_other_error_is_a_failed_conversion(tmp_path: Path) -> None:
    with pytest.raises(ConversionError) as caught:
        run(tmp_path, "fail")
    assert caught.value.why.startswith("ValueError: first line second line (child_tasks.py:")
    assert str(tmp_path / "log") in caught.value.hint
    assert "Traceback" in (tmp_path / "log").read_text()


def test_a_library_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(ConverterMissingError) as caught:
        run(tmp_path, "missing")
    assert caught.value.exit_code == 50
    assert caught.value.hint == "pip install tf2onnx"


@pytest.mark.parametrize(
    ("do", "more", "said"),
    [
        ("abort", {}, "SIGABRT"),
        ("signal", {"number": str(int(signal.SIGSEGV))}, "SIGSEGV"),
        ("signal", {"number": str(int(signal.SIGKILL))}, "no memory left"),
        pytest.param(
            "signal",
            {"number": "40"},
            "died of signal 40",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="no real-time signals"),
        ),
        ("exit", {}, "exit code 7"),
        ("long", {}, "more than 64 MiB"),
    ],
)
def test_a_child_that_dies(do: str, more: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError) as caught:
        run(tmp_path, do, PLENTY, **more)
    assert (caught.value.exit_code, caught.value.id) == (51, "converter-died")
    assert said in caught.value.why
    assert "on descriptor 2" in (tmp_path / "log").read_text()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("do", ["full", "unanswered"])
def test_a_disk_that_is_full(do: str, tmp_path: Path) -> None:
    """Also where no answer fits there: before, that was a child that died (51)."""
    with pytest.raises(NoSpaceError) as caught:
        run(tmp_path, do)
    assert (caught.value.exit_code, caught.value.id) == (41, "no-space")


@pytest.mark.parametrize("answer", ['{"value": {"a"', "[1]", "{}", '{"other": 1}', "\xff"])
def test_an_answer_that_is_none_of_ours(answer: str, tmp_path: Path) -> None:
    """A model's code that writes to the file of the answer."""
    with pytest.raises(ConversionError) as caught:
        run(tmp_path, "forges", answer=answer)
    assert (caught.value.exit_code, caught.value.id) == (51, "converter-died")


def test_a_child_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(ConversionError) as caught:
        run(tmp_path, "hang", Bounds(seconds=5, memory=2**40), pids=str(pids))
    assert caught.value.id == "converter-timeout"
    started = map(int, pids.read_text().split()) if pids.exists() else ()
    for pid in started:  # on a slow machine it may have started nothing yet
        wait_until(partial(is_gone, pid))


def test_a_child_that_ends_well_leaves_nothing_that_it_started(tmp_path: Path) -> None:
    pid = run(tmp_path, "leaves")["pid"]
    wait_until(partial(is_gone, pid))


def test_code_that_exits_is_a_failed_conversion(tmp_path: Path) -> None:
    with pytest.raises(ConversionError) as caught:
        run(tmp_path, "sys.exit")
    assert (caught.value.exit_code, caught.value.id) == (51, "conversion")
    assert "SystemExit" in caught.value.why


def test_a_child_that_prints_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpttool.conversion.child._LOG_BYTES", 2**20)
    with pytest.raises(ConversionError) as caught:
        run(tmp_path, "prints")
    assert caught.value.why == "it printed more than 1 MiB"


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is watched on Linux")
def test_a_child_that_takes_too_much_memory(tmp_path: Path) -> None:
    with pytest.raises(LimitError) as caught:
        run(tmp_path, "memory", Bounds(seconds=120, memory=100 * 2**20))
    assert (caught.value.exit_code, caught.value.id) == (21, "converter-memory")


PARENT = """
import sys
from ckpttool.cli.signals import Stopped, stoppable
from ckpttool.conversion.child import Bounds, run_task
try:
    with stoppable():
        run_task("tests.support.child_tasks", {"do": "hang", "pids": sys.argv[1]},
                 folder=sys.argv[2], log=sys.argv[3], bounds=Bounds(600, 2**40))
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_parent_is_stopped_and_nothing_is_left(number: signal.Signals, tmp_path: Path) -> None:
    """Also where it is killed and can do nothing: the child's stdin ends."""
    pids = tmp_path / "pids"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(pids), str(tmp_path), str(tmp_path / "log")],
        env=clean_environment(),
        cwd=ROOT,
    ) as parent:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        parent.send_signal(number)
        code = parent.wait(60)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    child, grandchild = map(int, pids.read_text().split())
    wait_until(lambda: not is_alive(child) and not is_alive(grandchild))


def test_the_bounds_come_from_the_limits_unless_asked_for() -> None:
    limits = Limits(convert_seconds=7, convert_memory_bytes=9)
    assert Bounds.of(limits, None, None) == Bounds(7, 9)
    assert Bounds.of(limits, 3.5, 10) == Bounds(3.5, 10)


def test_every_error_class_crosses_the_border() -> None:
    from ckpttool.conversion.child import Failure

    for kind in CkpttoolError.__subclasses__():
        if kind.__module__ == "ckpttool.errors":
            error = Failure.of(kind("what", why="why", hint="hint", id="some")).error()
            assert type(error) is kind
            assert error.as_dict() == kind("what", why="why", hint="hint", id="some").as_dict()
