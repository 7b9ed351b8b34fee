"""Runs a command as a child and tells what it cost: CPU time, wall time, peak memory.

Uses `os.wait4`, which gives the child's own figures. On Linux the peak memory of a child
starts at that of the process that starts it, so this module and all that is imported
beside it stay small; data is made in children of its own (`data.py`).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

__all__ = ["ROOT", "Comparison", "Failed", "Sample", "alternate", "compare", "run", "show"]

ROOT = Path(__file__).resolve().parents[1]

#: Linux counts kibibytes, macOS bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Failed(Exception):
    """A command did not do its work; a benchmark without it would be a lie."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run cost: seconds of user and system time, seconds, bytes."""

    cpu: float
    wall: float
    rss: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Interleaved runs of two commands."""

    ours: tuple[Sample, ...]
    theirs: tuple[Sample, ...]

    @property
    def cpu(self) -> float:
        """Median CPU time of our runs."""
        return median(sample.cpu for sample in self.ours)

    @property
    def their_cpu(self) -> float:
        """Median CPU time of their runs."""
        return median(sample.cpu for sample in self.theirs)

    @property
    def times(self) -> float:
        """How many times as long they take: the median over the pairs."""
        return median(
            theirs.cpu / ours.cpu for ours, theirs in zip(self.ours, self.theirs, strict=True)
        )

    @property
    def rss(self) -> int:
        """Our largest peak memory."""
        return max(sample.rss for sample in self.ours)

    @property
    def their_rss(self) -> int:
        """Their largest peak memory."""
        return max(sample.rss for sample in self.theirs)


def _environment() -> dict[str, str]:
    """The same for both sides: this tree importable, byte code kept, no log lines."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return env | {
        "CUDA_VISIBLE_DEVICES": "",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def run(argv: Sequence[str], stdout: str = os.devnull, *, ends: int = 0) -> Sample:
    """Run a command with its output in a file.

    Raises:
        Failed: it ended with anything but ``ends``; the message has its last words.
    """
    with tempfile.TemporaryFile() as errors:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
            (os.POSIX_SPAWN_DUP2, errors.fileno(), 2),
        ]
        start = time.perf_counter()
        child = os.posix_spawn(argv[0], list(argv), _environment(), file_actions=actions)
        _, status, usage = os.wait4(child, 0)
        wall = time.perf_counter() - start
        code = os.waitstatus_to_exitcode(status)
        if code != ends:
            errors.seek(0)
            words = errors.read()[-2000:].decode("utf-8", "replace")
            raise Failed(f"exit {code}: {' '.join(argv)}\n{words}")
    return Sample(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * _RSS_UNIT)


def alternate(
    commands: Sequence[Sequence[str]], rounds: int, before: Callable[[], None]
) -> list[tuple[Sample, ...]]:
    """Run all commands in turn, once untimed and then ``rounds`` times.

    ``before`` is called before every run and makes the same start for all. Returns the
    samples of each command.
    """
    taken: list[list[Sample]] = [[] for _ in commands]
    for number in range(rounds + 1):
        for command, samples in zip(commands, taken, strict=True):
            before()
            sample = run(command)
            if number:
                samples.append(sample)
    return [tuple(samples) for samples in taken]


def compare(
    ours: Sequence[str],
    theirs: Sequence[str],
    pairs: int,
    check: Callable[[str, str], None] | None = None,
    *,
    ends: int = 0,
) -> Comparison:
    """Run both once untimed (byte code, page cache), then ``pairs`` times in turn.

    ``check`` is given the files with both outputs of the untimed runs; ours ends with ``ends``.
    """
    with tempfile.TemporaryDirectory() as folder:
        outputs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
        run(ours, outputs[0], ends=ends)
        run(theirs, outputs[1])
        if check is not None:
            check(*outputs)
    samples = [(run(ours, ends=ends), run(theirs)) for _ in range(pairs)]
    return Comparison(tuple(a for a, _ in samples), tuple(b for _, b in samples))


def show(cells: Sequence[str]) -> None:
    """One line of a Markdown table, at once: a run takes minutes."""
    print("| " + " | ".join(cells) + " |", flush=True)
