"""The child process: one task, whose job comes through stdin and whose answer is a file.

Knows no task. Everything that a task raises becomes an answer: errors of ours as they
are, others as a ``ConversionError`` with the traceback in the log, which is stdout.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from importlib import import_module

from ckpttool.conversion.child import UNWRITTEN, Answer, Failure
from ckpttool.conversion.wire import encode
from ckpttool.conversion.worker.no_space import no_space
from ckpttool.conversion.worker.own_code import line_of, said_of
from ckpttool.errors import (
    CkpttoolError,
    ConversionError,
    ConverterMissingError,
    LimitError,
)

__all__ = ["main"]

#: Import name → distribution, of what a source or a target may need.
_OPTIONAL = {
    "ai_edge_litert": "ai-edge-litert",
    "h5py": "h5py",
    "keras": "keras",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "tensorflow": "tensorflow",
    "tf2onnx": "tf2onnx",
    "tf_keras": "tf_keras",
}


def main(task: str, answer_path: str) -> None:
    """Run a task (a module with ``run``), and end the process.

    It ends with 0 when an answer was written, whatever that is; with ``UNWRITTEN`` when there
    was no room for it.
    """
    job = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    text = encode(_answer(task, job))
    try:
        with open(f"{answer_path}~", "w", encoding="ascii") as file:
            file.write(text)
        os.replace(f"{answer_path}~", answer_path)
    except OSError as error:  # most often the disk is full, and so no answer fits there either
        traceback.print_exc()
        os._exit(UNWRITTEN if no_space(error) else 1)
    sys.stdout.flush()
    sys.stderr.flush()
    # All is on disk. Tearing TensorFlow down takes half a second, and may hang.
    os._exit(0)


def _answer(task: str, job: bytes) -> Answer:
    import json

    try:
        module = import_module(task)
        return Answer(value=module.run(json.loads(job)))
    except CkpttoolError as error:  # it says all; whoever made it of another, printed that
        return Answer(failure=Failure.of(error))
    except MemoryError:
        traceback.print_exc()
        return Answer(failure=Failure.of(_out_of_memory()))
    except BaseException as error:  # noqa: BLE001 - a model that calls sys.exit too
        traceback.print_exc()
        return Answer(failure=Failure.of(_failed(error)))


def _failed(error: BaseException) -> CkpttoolError:
    if (full := no_space(error)) is not None:
        return full
    if isinstance(error, ModuleNotFoundError) and (name := _OPTIONAL.get(error.name or "")):
        return ConverterMissingError(
            f"this conversion needs {name}", why="not installed here", hint=f"pip install {name}"
        )
    place = line_of(error)  # in a model's code, wherever it was called
    return ConversionError(
        "the conversion failed", why=said_of(error) + (f" ({place})" if place else "")
    )


def _out_of_memory() -> LimitError:
    return LimitError(
        "the conversion does not fit into memory",
        why="the system gave no more",
        hint="raise the limit of this process (ulimit -v), or use a machine with more",
        id="out-of-memory",
    )


def _end_with_parent() -> None:
    """Kill this process and what it started when its stdin ends: the parent has died."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)
