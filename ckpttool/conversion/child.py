"""A task in a process of its own, such as those of ``conversion/worker``: no TensorFlow in ours.

What it prints (also on the descriptors 1 and 2, as TensorFlow does) goes to a log. Its
job comes through its stdin, its answer through a file. It is killed, with everything that
it started, when its time or memory is over or when this process is asked to stop; and it
ends itself when its stdin closes, so that it does not outlive a parent that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from ckpttool import errors
from ckpttool.conversion.log_file import FIRST_LINE
from ckpttool.conversion.wire import decode, encode
from ckpttool.errors import (
    CkpttoolError,
    ConversionError,
    LimitError,
    NoSpaceError,
    UsageError,
)
from ckpttool.limits import Limits
from ckpttool.policy.words import duration

if TYPE_CHECKING:
    import subprocess

__all__ = ["UNWRITTEN", "Answer", "Bounds", "Failure", "RunTask", "last_lines", "run_task"]

#: How a child ends that has an answer, and no room on the disk to write it.
UNWRITTEN = 41

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: Runs the worker whatever ``sys.path`` is, without putting anything before the library.
_START = (
    "import sys; sys.path.append(sys.argv.pop(1));"
    "from ckpttool.conversion.worker.main import main; main(*sys.argv[1:])"
)
#: Seconds between two looks at the child. Short at first: a small task takes three.
_LOOK = 0.05
#: An answer is some names and numbers; a child that writes more than this is out of hand.
_ANSWER_BYTES = 64 * 2**20
#: What a child may print: one that prints without end must not fill the disk.
_LOG_BYTES = 2**30
#: Of a log, what is shown of its end.
_TAIL_BYTES = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a child may take: seconds of wall time, bytes of resident memory.

    Memory is watched where the system has ``/proc`` (Linux).
    """

    seconds: float
    memory: int

    @classmethod
    def of(cls, limits: Limits, seconds: float | None, memory: int | None) -> Bounds:
        """As asked for, else as the limits say.

        Raises:
            UsageError: no time, or no memory.
        """
        for option, given in (("--timeout", seconds), ("--memory", memory)):
            if given is not None and not given > 0:
                raise UsageError(
                    f"{option} {given:g} leaves nothing to work with",
                    why="the process would be stopped at once",
                    hint=f"give more, or leave {option} out",
                )
        return cls(
            limits.convert_seconds if seconds is None else seconds,
            limits.convert_memory_bytes if memory is None else memory,
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of ``errors.py`` on its way out of the child."""

    kind: str
    what: str
    why: str
    hint: str
    id: str

    @classmethod
    def of(cls, error: CkpttoolError) -> Failure:
        """The record of an error."""
        return cls(type(error).__name__, error.what, error.why, error.hint, error.id)

    def error(self) -> CkpttoolError:
        """The error again, of the same class."""
        kind = getattr(errors, self.kind, ConversionError)
        made: CkpttoolError = kind(self.what, why=self.why, hint=self.hint, id=self.id)
        return made


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child wrote when it had finished: the task's value, or why there is none."""

    value: dict[str, Any] | None = None
    failure: Failure | None = None


class RunTask(Protocol):
    """What runs a task: ``run_task``, or for many conversions one that starts no process."""

    def __call__(
        self, task: str, job: Mapping[str, object], *, folder: str, log: str, bounds: Bounds
    ) -> dict[str, Any]: ...


def run_task(
    task: str, job: Mapping[str, object], *, folder: str, log: str, bounds: Bounds
) -> dict[str, Any]:
    """Call ``run(job)`` of a module in a child, and return its value.

    Args:
        task: the module's full name: ``ckpttool.conversion.worker.convert``.
        job: what JSON can say.
        folder: an existing directory for the answer; nothing else is put there.
        log: the file to which everything that it prints is added.
        bounds: when it is killed.

    Raises:
        CkpttoolError: whatever the task raised, of the same class and id.
        ConversionError: ids ``converter-timeout``, ``converter-died``; its log says more. Also
            one that prints without end.
        LimitError: id ``converter-memory``. NoSpaceError: the disk is full.
    """
    import subprocess  # what is converted without a child does without this too

    answer = os.path.join(folder, "answer.json")
    with open(log, "ab") as output:
        child = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
            [sys.executable, "-P", "-c", _START, _ROOT, task, answer],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            start_new_session=True,
        )
    try:
        assert child.stdin is not None
        _send(child.stdin, encode(job).encode())
        _wait(child, bounds, log)
    finally:
        _end(child)
    return _read(answer, child.returncode, log)


def last_lines(log: str, count: int = 20) -> list[str]:
    """The last lines of a log that say something; none where it is gone."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    return [line for line in lines if line != FIRST_LINE][-count:]


def _environment() -> dict[str, str]:
    """Ours, with TensorFlow told to be quiet, to use Keras on it, and no GPU.

    A GPU beside us is training; TensorFlow would take all of its memory. Sets of names have
    the same order in every child, so that a result is the same bytes every time.
    """
    env = dict(os.environ)
    env["CUDA_VISIBLE_DEVICES"] = "-1"
    env["KERAS_BACKEND"] = "tensorflow"
    env["PYTHONHASHSEED"] = "0"
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    env["PYTHONIOENCODING"] = "utf-8:backslashreplace"
    return env


def _send(stdin: IO[bytes], job: bytes) -> None:
    """Hand over the job; stdin stays open, and its end means that we have died."""
    try:
        stdin.write(job + b"\n")
        stdin.flush()
    except BrokenPipeError:
        pass  # it has died already: how, its exit says


def _wait(child: subprocess.Popen[bytes], bounds: Bounds, log: str) -> None:
    from subprocess import TimeoutExpired

    started = time.monotonic()
    before = _size(log)  # of the children before it
    while True:
        try:
            child.wait(_LOOK)
            return
        except TimeoutExpired:
            pass
        if time.monotonic() - started > bounds.seconds:
            raise ConversionError(
                "the conversion was stopped",
                why=f"it took longer than {duration(bounds.seconds)}",
                hint=f"add --timeout; its output is in {log}",
                id="converter-timeout",
            )
        if _size(log) - before > _LOG_BYTES:
            raise ConversionError(
                "the conversion was stopped",
                why=f"it printed more than {_LOG_BYTES >> 20} MiB",
                hint=f"see what the model's code prints; its output is in {log}",
            )
        used = _memory(child.pid)
        if used > bounds.memory:
            raise LimitError(
                "the conversion was stopped",
                why=f"it took {used >> 20} MiB of memory, over {bounds.memory >> 20} MiB",
                hint=f"add --memory; its output is in {log}",
                id="converter-memory",
            )


def _size(log: str) -> int:
    """0 where somebody has tidied it away, which is no reason to stop."""
    try:
        return os.path.getsize(log)
    except FileNotFoundError:
        return 0


def _memory(pid: int) -> int:
    """Bytes of a process that are in memory; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _end(child: subprocess.Popen[bytes]) -> None:
    """Leave nothing running: neither the child nor what it started, however it ended."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # all of it has ended (macOS says EPERM of a group of zombies)
    child.wait()
    if child.stdin is not None:
        try:
            child.stdin.close()
        except BrokenPipeError:
            pass  # what was still to be sent, nobody reads


def _read(path: str, code: int, log: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(_ANSWER_BYTES + 1)
        os.unlink(path)
    except FileNotFoundError:
        if code == UNWRITTEN:
            raise _no_room(path) from None
        raise _died(_exit_words(code), log) from None
    if code != 0:
        raise _died(_exit_words(code), log)
    if len(data) > _ANSWER_BYTES:
        raise _died(f"its answer has more than {_ANSWER_BYTES >> 20} MiB", log)
    try:
        answer = decode(Answer, data)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # forged
        raise _died("its answer is not one of ours", log) from None
    if answer.failure is not None:
        error = answer.failure.error()
        if isinstance(error, ConversionError | LimitError):  # for these it is kept
            error.hint += f"{'; ' if error.hint else ''}its output is in {log}"
        raise error
    if answer.value is None:
        raise _died("its answer is empty", log)
    return answer.value


def _exit_words(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed, most often because the machine has no memory left"
    if code >= 0:
        return f"it ended with exit code {code} before it was done"
    try:
        return f"it died of {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"it died of signal {-code}"


def _no_room(answer: str) -> NoSpaceError:
    """The error of a disk that is full; what of the answer fits there goes."""
    with suppress(FileNotFoundError):
        os.unlink(f"{answer}~")
    return NoSpaceError(
        "the conversion does not fit on the disk",
        why=f"there is no room in {os.path.dirname(os.path.abspath(answer))}",
        hint="free some space, or write to another disk",
    )


def _died(why: str, log: str) -> ConversionError:
    said = last_lines(log, 1)
    if said:
        why += f"; the last it said: {said[0][:300]}"
    return ConversionError(
        "the conversion broke down",
        why=why,
        hint=f"its output is in {log}",
        id="converter-died",
    )
