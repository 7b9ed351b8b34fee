"""Runs many command lines in one child process, each within bounds of memory and time.

As a script it is that child: it reads command lines as JSON from stdin, limits its own
address space, runs each through ``ckpttool.cli.main.main`` and prints an `Outcome` a
line. A command that hangs or kills the process is named by the parent.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

__all__ = ["Outcome", "run_confined"]

#: What the interpreter and the imports of all commands take of address space, in MiB,
#: measured in the child before the first command; this much more is allowed.
ALLOWANCE_MB = 100
#: Wall time after which a command hangs. CPU time is what the tests judge.
_HANGS_AFTER = 30


@dataclass(frozen=True)
class Outcome:
    """What one command line did.

    ``cpu`` is in seconds; ``grown_mb`` is how far resident memory rose above what it was
    before, at the highest.
    """

    argv: list[str]
    code: int
    stdout: str
    stderr: str
    cpu: float
    grown_mb: float


def run_confined(commands: Iterable[Sequence[str]]) -> list[Outcome]:
    """Run command lines in one child; the child is started anew after one that ends it."""
    import pytest

    from tests.support.command import ROOT, clean_environment

    if not os.path.exists("/proc/self/clear_refs"):
        pytest.skip("memory is measured through /proc, which this system does not have")
    outcomes: list[Outcome] = []
    pending = [list(argv) for argv in commands]
    while pending:
        child = subprocess.run(
            [sys.executable, "-m", "tests.faults.confined"],
            input=json.dumps(pending),
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            env=clean_environment({"CKPTTOOL_LIMITS": None, "PYTHONSAFEPATH": None}),
            check=False,
        )
        done = [Outcome(**json.loads(line)) for line in child.stdout.splitlines()]
        outcomes += done
        culprit = pending[len(done) : len(done) + 1]
        if not culprit:
            return outcomes
        what = "hung" if child.returncode == 99 else f"ended the process ({child.returncode})"
        raise AssertionError(f"{' '.join(culprit[0])} {what}: {child.stderr[-2000:]}")
    return outcomes


def _peak_mb(*, reset: bool = False) -> float:
    """The highest resident memory since it was last reset."""
    if reset:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    raise AssertionError("the kernel says nothing of VmHWM")


def _run(argv: list[str]) -> Outcome:
    from ckpttool.cli.main import main

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    standard = sys.stdout, sys.stderr
    gc.collect()
    before = _peak_mb(reset=True)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(99))
    signal.alarm(_HANGS_AFTER)
    started = time.process_time()
    sys.stdout, sys.stderr = streams
    try:
        code = main(argv)
    finally:
        sys.stdout, sys.stderr = standard
        signal.alarm(0)
    cpu = time.process_time() - started
    grown = _peak_mb() - before
    stdout, stderr = map(_text, streams)
    return Outcome(argv, code, stdout, stderr, cpu, grown)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.detach()
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8", "backslashreplace")


def _child() -> None:
    commands = json.load(sys.stdin)
    report = sys.stdout
    # The first run imports what a command needs; memory is counted from there.
    for argv in {argv[0]: argv for argv in commands}.values():
        _run([argv[0], "--help"])
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    allowed = taken + ALLOWANCE_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    for argv in commands:
        report.write(json.dumps(asdict(_run(argv))) + "\n")
        report.flush()


if __name__ == "__main__":
    _child()
