"""SIGINT 130, SIGTERM 143, the second one at once; with clean-up, without traceback (F19)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.support.command import ROOT, clean_environment
from tests.support.stand_in import stand_in

#: Says that it is ready, waits, and says when it was allowed to clean up.
WORK = """
    with open(arguments[-1], "w") as log:
        try:
            print("ready", file=log, flush=True)
            time.sleep(60)
        finally:
            print("cleaned", file=log, flush=True)
"""
STUBBORN = """
    with open(arguments[-1], "w") as log:
        try:
            print("ready", file=log, flush=True)
            time.sleep(60)
        finally:
            print("cleaning", file=log, flush=True)
            time.sleep(60)
"""
#: Is told to end by a destructor, and by the callback of a weak reference.
DESTRUCTOR = """
    import signal
    class Last:
        def __del__(self):
            signal.raise_signal(signal.{name})
    with open(arguments[-1], "w") as log:
        try:
            print("ready", file=log, flush=True)
            Last()
            time.sleep(60)
        finally:
            print("cleaned", file=log, flush=True)
"""
WEAK_REFERENCE = """
    import signal, weakref
    class Last:
        pass
    last = Last()
    seen = weakref.ref(last, lambda _: signal.raise_signal(signal.{name}))
    with open(arguments[-1], "w") as log:
        try:
            print("ready", file=log, flush=True)
            del last
            time.sleep(60)
        finally:
            print("cleaned", file=log, flush=True)
"""
#: Finishes what it does, and says how it was asked to; then waits to be asked once more.
FINISHING = """
    from ckpttool.cli.signals import finishing
    with open(arguments[-1], "w") as log, finishing() as wait:
        print("ready", file=log, flush=True)
        while not wait(60):
            pass
        time.sleep(0.1)  # a second one right behind the first
        print("asked", file=log, flush=True)
        time.sleep({more})
    return 0
"""


def start(body: str, log, *options: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        stand_in(body, *options, str(log)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    wait_for(log, "ready")
    return process


def wait_for(log, word: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if log.exists() and word in log.read_text():
            return
        time.sleep(0.02)
    pytest.fail(f"the child never said {word!r}")


@pytest.mark.parametrize(
    ("number", "code", "id"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_cleans_up_and_says_what_it_was(number, code, id, tmp_path) -> None:
    log = tmp_path / "log"
    process = start(WORK, log)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert log.read_text() == "ready\ncleaned\n"
    assert err.startswith(f"error: stopped by {signal.Signals(number).name}\n")
    assert err.endswith(f"[{id}]\n")
    assert len(err.splitlines()) == 3


@pytest.mark.parametrize("body", [DESTRUCTOR, WEAK_REFERENCE], ids=["destructor", "weakref"])
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_where_python_drops_exceptions_is_not_lost(body, name, code, tmp_path) -> None:
    """The import system has such a callback: a conversion that was starting went on."""
    log = tmp_path / "log"
    process = start(body.format(name=name), log)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert log.read_text() == "ready\ncleaned\n"
    assert err.startswith(f"error: stopped by {name}\n")
    assert len(err.splitlines()) == 3


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_the_second_signal_ends_it_at_once(number, code, tmp_path) -> None:
    log = tmp_path / "log"
    process = start(STUBBORN, log)
    process.send_signal(signal.SIGINT)
    wait_for(log, "cleaning")
    began = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode == code


def test_with_json_a_signal_is_an_error_object(tmp_path) -> None:
    process = start(WORK, tmp_path / "log", "--json")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert json.loads(err)["code"] == 130
    assert json.loads(err)["id"] == "interrupted"


def test_an_ignored_interrupt_stays_ignored(tmp_path) -> None:
    """A shell starts `command &` in a script with SIGINT ignored."""
    log = tmp_path / "log"
    body = WORK.replace("time.sleep(60)", "time.sleep(1.5)") + "\n    return 0"
    argv = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *stand_in(body, str(log))]
    process = subprocess.Popen(argv, env=clean_environment())
    wait_for(log, "ready")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


def test_a_writer_that_waits_for_its_reader_can_be_interrupted(tmp_path) -> None:
    """What is still in the buffers is dropped, not waited for."""
    log = tmp_path / "log"
    body = """
        open(arguments[-1], "w").write("ready")
        while True:
            out.write("x" * 65536)
    """
    process = start(body, log)
    time.sleep(0.5)  # until the pipe is full
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.communicate()


def test_an_interrupt_while_modules_are_imported_is_as_quiet(tmp_path) -> None:
    """Whatever moment it hits, there is never a traceback of ours past the first imports."""
    seen = set()
    for delay in (0.02, 0.03, 0.04, 0.06, 1.0, 3.0):
        if delay >= 1.0 and 130 in seen:
            break  # the long ones are for machines on which a start takes long
        process = subprocess.Popen(
            stand_in("import click, rich.table, rich.markdown, json, decimal; time.sleep(9)"),
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        time.sleep(delay + 0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        seen.add(process.returncode)
        if process.returncode == 130:
            assert "Traceback" not in err
    assert 130 in seen


#: Sends itself a signal when a module is looked for, and then runs the console script.
_AT_IMPORT = """
import os, signal, sys

class Signal:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            for number in {numbers!r}:
                os.kill(os.getpid(), number)

sys.meta_path.insert(0, Signal())
sys.argv[1:] = {argv!r}
from ckpttool.__main__ import run
run()
"""


def at_import(module: str, *numbers: int, argv: tuple[str, ...] = ("list", "x")):
    """What becomes of a process that gets signals while it imports a module."""
    code = _AT_IMPORT.format(module=module, numbers=list(map(int, numbers)), argv=list(argv))
    environment = clean_environment({"PYTHONPATH": str(ROOT)})
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@pytest.mark.parametrize("module", ["ckpttool.cli.main", "ckpttool.cli.output", "click"])
@pytest.mark.parametrize(
    ("number", "code", "id"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_before_the_command_line_is_read(module, number, code, id) -> None:
    """The first tens of milliseconds, when most of ckpttool is not yet imported."""
    done = at_import(module, number)
    assert done.returncode == code
    assert done.stderr.startswith(f"error: stopped by {signal.Signals(number).name}\n")
    assert done.stderr.endswith(f"[{id}]\n")
    assert len(done.stderr.splitlines()) == 3
    done = at_import(module, number, argv=("list", "--json", "x"))
    assert (json.loads(done.stderr)["code"], done.stdout) == (code, "")


def test_two_signals_before_the_command_line_is_read_end_it_at_once() -> None:
    done = at_import("ckpttool.cli.main", signal.SIGINT, signal.SIGTERM)
    assert (done.returncode, done.stderr) == (143, "")


def test_next_to_nothing_is_imported_before_signals_are_held() -> None:
    """Until then an interrupt is Python's own: a traceback."""
    code = "import sys; before = set(sys.modules)\n"
    code += "import signal; import ckpttool.__main__\n"
    code += "print(*sorted(name for name in set(sys.modules) - before if 'ckpttool' in name))\n"
    code += "print('typing' in sys.modules)"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    command = [sys.executable, "-S", "-c", code]  # without what `site` imports
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    names, typing = done.stdout.splitlines()
    assert names.split() == [
        "ckpttool",
        "ckpttool.__main__",
        "ckpttool.cli",
        "ckpttool.cli.early",
        "ckpttool.version",
    ]
    assert typing == "False"


def test_a_signal_right_behind_another_is_the_same_wish_to_finish(tmp_path) -> None:
    """It ended a cluster at once where the first was answered before the second came."""
    log = tmp_path / "log"
    process = start(FINISHING.format(more=0), log)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert log.read_text() == "ready\nasked\n"


def test_a_later_signal_does_not_wait_for_the_finish(tmp_path) -> None:
    log = tmp_path / "log"
    process = start(FINISHING.format(more=60), log)
    process.send_signal(signal.SIGTERM)
    wait_for(log, "asked")
    time.sleep(1.2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
