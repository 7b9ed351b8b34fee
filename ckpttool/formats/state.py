"""The `checkpoint` text file of a run directory: bytes → ``CheckpointState``.

A bounded reader of the protobuf text format, for the one message TensorFlow keeps in it
(tensorflow/python/training/checkpoint_state.proto), on the words of ``text_scanner.py``. It
knows the text, never whether the paths in it lead anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from ckpttool.errors import CorruptError, LimitError
from ckpttool.formats.text_scanner import TextScanner
from ckpttool.limits import Limits
from ckpttool.storage.base import ReadableFile

__all__ = ["CheckpointState", "parse_state", "read_state"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What the file says, in its own words; the members are the proto's fields.

    Paths are as stored; bytes that are not UTF-8 are surrogate escapes. The latest path is
    also the last of ``all_model_checkpoint_paths`` in what TensorFlow writes (oldest first),
    but a file may say otherwise. ``tf.compat.v1.train.Saver`` writes no timestamps.
    """

    model_checkpoint_path: str | None = None
    all_model_checkpoint_paths: tuple[str, ...] = ()
    #: Seconds since the epoch.
    all_model_checkpoint_timestamps: tuple[float, ...] = ()
    #: Seconds since the epoch; what ``keep_checkpoint_every_n_hours`` counts from.
    last_preserved_timestamp: float | None = None


def read_state(file: ReadableFile, limits: Limits) -> CheckpointState:
    """Read an open state file.

    Raises:
        LimitError: it is larger than ``limits.state_bytes`` (then nothing was read), or
            has more values than ``limits.state_values``.
        CorruptError: id ``state-corrupt``; the message has the line number.
    """
    size = file.stat.size
    if size > limits.state_bytes:
        raise _too_much(file.path, f"{size} bytes", limits.state_bytes, "state_bytes", size)
    return parse_state(file.pread(0, size), file.path, limits)


def parse_state(
    data: bytes, path: str = "checkpoint", limits: Limits | None = None
) -> CheckpointState:
    """Parse the bytes of a state file; ``path`` is for messages.

    Raises:
        LimitError: more values than ``limits.state_values``.
        CorruptError: id ``state-corrupt``; the message has the line number.
    """
    parser = _Parser(data, path, (limits or Limits()).state_values)
    strings: dict[str, list[str]] = {
        "model_checkpoint_path": [],
        "all_model_checkpoint_paths": [],
    }
    numbers: dict[str, list[float]] = {
        "all_model_checkpoint_timestamps": [],
        "last_preserved_timestamp": [],
    }
    while (name := parser.field_name()) is not None:
        repeated = name.startswith("all_")
        if name in strings:
            parser.values(parser.string, strings[name], repeated=repeated)
        elif name in numbers:
            parser.values(parser.number, numbers[name], repeated=repeated)
        else:
            parser.fail(f"there is no field {name[:60]!r}")
    latest = strings["model_checkpoint_path"]
    preserved = numbers["last_preserved_timestamp"]
    # A field that is given twice: the last one counts, as in protobuf.
    return CheckpointState(
        latest[-1] if latest else None,
        tuple(strings["all_model_checkpoint_paths"]),
        tuple(numbers["all_model_checkpoint_timestamps"]),
        preserved[-1] if preserved else None,
    )


def _too_much(path: str, what: str, limit: int, name: str, needed: int) -> LimitError:
    return LimitError(
        f"{path} is too large for a checkpoint state file",
        why=f"it has {what}, and the limit {name} is {limit}",
        hint=f"name a checkpoint by its prefix, or set CKPTTOOL_LIMITS={name}={needed}",
        id="limit-state",
    )


_ESCAPES_A_VALUE = 8


class _Parser(TextScanner):
    """A cursor over the text; every failure names the line it is at."""

    def __init__(self, data: bytes, path: str, max_values: int) -> None:
        super().__init__(data)
        self._path = path
        self._values = 0
        self._max_values = max_values
        # Every escape costs a call; older writers have a few in a path that is not ASCII.
        escapes = data.count(b"\\")
        if escapes > max_values * _ESCAPES_A_VALUE:
            needed = -(-escapes // _ESCAPES_A_VALUE)
            raise _too_much(path, f"{escapes} escapes", max_values, "state_values", needed)

    def fail(self, why: str) -> NoReturn:
        raise CorruptError(
            f"{self._path} cannot be read as a checkpoint state file",
            why=f"line {self.line}: {why}",
            hint="correct that line, or move the file away: the newest checkpoint is found "
            "by its name without it",
            id="state-corrupt",
        )

    def count(self) -> None:
        self._values += 1
        if self._values > self._max_values:
            raise _too_much(
                self._path,
                f"more than {self._max_values} values",
                self._max_values,
                "state_values",
                2 * self._max_values,
            )

    def field_name(self) -> str | None:
        """The next field's name, and the colon after it; None at the end of the text."""
        if self.at_end():
            return None
        name = self.name()
        if not self.take(b":"):
            self.fail(f"a colon was expected after {name[:60]!r}, not {self.here()}")
        return name

    def string(self) -> str:
        return self.literal().decode("utf-8", "surrogateescape")

    def values(self, one: Callable[[], _T], into: list[_T], *, repeated: bool) -> None:
        """One value, or a short list ``[a, b]`` of a repeated field; a separator may follow."""
        if repeated and self.take(b"["):
            if not self.take(b"]"):
                into.append(one())
                while not self.take(b"]"):
                    if not self.take(b","):
                        self.fail(f"a comma or ] was expected, not {self.here()}")
                    into.append(one())
        else:
            into.append(one())
        self.separator()
