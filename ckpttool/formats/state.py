"""The `checkpoint` text file of a run directory: bytes → ``CheckpointState``.

A bounded reader of the protobuf text format, for the one message TensorFlow keeps in it
(tensorflow/python/training/checkpoint_state.proto). It knows the text, never whether the
paths in it lead anywhere. It accepts what protobuf accepts (raw UTF-8 of today and octal
escapes of older writers, adjacent literals, single quotes, comments, short lists, optional
separators), and also what editors and copies add: a byte-order mark, CRLF, bytes that are
not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from ckpttool.errors import CorruptError, LimitError
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


_BOM = b"\xef\xbb\xbf"
# Possessive quantifiers: nothing here may ever backtrack over megabytes.
_BLANK = re.compile(rb"(?:[ \t\r\n\f\v]++|#[^\n]*+)*+")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*+")
_NUMBER = re.compile(rb"[+-]?[0-9A-Za-z.][0-9A-Za-z.+-]*+")
_FLOAT_SUFFIX = re.compile(r".*[0-9.]f|.*inff|.*nanf", re.IGNORECASE)
_OCTAL = re.compile(r"-?0[0-9]")
_LITERAL = {
    b'"': re.compile(rb'"([^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+)"'),
    b"'": re.compile(rb"'([^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+)'"),
}
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL
)
_ESCAPES_A_VALUE = 8
_SIMPLE_ESCAPES = dict(zip(b"abfnrtv\\'\"?", b"\a\b\f\n\r\t\v\\'\"?", strict=True))


class _Parser:
    """A cursor over the text; every failure names the line it is at."""

    def __init__(self, data: bytes, path: str, max_values: int) -> None:
        self._data = data
        self._path = path
        self._pos = len(_BOM) if data.startswith(_BOM) else 0
        self._values = 0
        self._max_values = max_values
        # Every escape costs a call; older writers have a few in a path that is not ASCII.
        escapes = data.count(b"\\")
        if escapes > max_values * _ESCAPES_A_VALUE:
            needed = -(-escapes // _ESCAPES_A_VALUE)
            raise _too_much(path, f"{escapes} escapes", max_values, "state_values", needed)

    def fail(self, why: str) -> NoReturn:
        line = self._data.count(b"\n", 0, self._pos) + 1
        raise CorruptError(
            f"{self._path} cannot be read as a checkpoint state file",
            why=f"line {line}: {why}",
            hint="correct that line, or move the file away: the newest checkpoint is found "
            "by its name without it",
            id="state-corrupt",
        )

    def field_name(self) -> str | None:
        """The next field's name, and the colon after it; None at the end of the text."""
        self._skip_blank()
        if self._pos >= len(self._data):
            return None
        name = _NAME.match(self._data, self._pos)
        if name is None:
            self.fail(f"a field name was expected, not {self._here()}")
        self._pos = name.end()
        if not self._take(b":"):
            self.fail(f"a colon was expected after {name[0].decode()[:60]!r}, not {self._here()}")
        return name[0].decode()

    def values(self, one: Callable[[], _T], into: list[_T], *, repeated: bool) -> None:
        """One value, or a short list ``[a, b]`` of a repeated field; a separator may follow."""
        if repeated and self._take(b"["):
            if not self._take(b"]"):
                into.append(one())
                while not self._take(b"]"):
                    if not self._take(b","):
                        self.fail(f"a comma or ] was expected, not {self._here()}")
                    into.append(one())
        else:
            into.append(one())
        if not self._take(b","):
            self._take(b";")

    def _count(self) -> None:
        """Count a literal: two bytes of text can make an object of fifty."""
        self._values += 1
        if self._values > self._max_values:
            raise _too_much(
                self._path,
                f"more than {self._max_values} values",
                self._max_values,
                "state_values",
                2 * self._max_values,
            )

    def string(self) -> str:
        """Adjacent string literals, joined."""
        pieces = []
        self._skip_blank()
        while (pattern := _LITERAL.get(self._data[self._pos : self._pos + 1])) is not None:
            literal = pattern.match(self._data, self._pos)
            if literal is None:
                self.fail("the text in quotes does not end on this line")
            self._count()
            piece = literal[1]
            pieces.append(_ESCAPE.sub(self._unescape, piece) if b"\\" in piece else piece)
            self._pos = literal.end()
            self._skip_blank()
        if not pieces:
            self.fail(f"text in quotes was expected, not {self._here()}")
        return b"".join(pieces).decode("utf-8", "surrogateescape")

    def number(self) -> float:
        """A floating point number; ``inf``, ``nan`` and a final ``f`` are allowed."""
        self._skip_blank()
        match = _NUMBER.match(self._data, self._pos)
        if match is None:
            self.fail(f"a number was expected, not {self._here()}")
        text = match[0].decode()
        try:
            # C++ also spells a number 1.5f; protobuf takes 017 for an octal one, and refuses it.
            if _OCTAL.match(text):
                raise ValueError
            value = float(text[:-1] if _FLOAT_SUFFIX.fullmatch(text) else text)
        except ValueError:
            self.fail(f"{text[:60]!r} is not a number")
        self._count()
        self._pos = match.end()
        return value

    def _unescape(self, escape: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, other = escape.groups()
        if octal is not None:
            value = int(octal, 8)
            if value > 255:
                self.fail(f"\\{octal.decode()} is more than one byte")
            return bytes((value,))
        if hexadecimal is not None:
            return bytes((int(hexadecimal, 16),))
        if other is None:
            try:
                return chr(int(short or long, 16)).encode("utf-8")
            except ValueError:
                self.fail(f"{escape[0].decode()} is not a character")
        simple = _SIMPLE_ESCAPES.get(other[0])
        if simple is not None:
            return bytes((simple,))
        if other in b"xuU":
            self.fail(f"\\{other.decode()} is not followed by its hexadecimal digits")
        # As protobuf does in Python: an unknown escape stands for itself (C:\models).
        return escape[0]

    def _skip_blank(self) -> None:
        blank = _BLANK.match(self._data, self._pos)
        assert blank is not None  # it matches nothing at all, too
        self._pos = blank.end()

    def _take(self, byte: bytes) -> bool:
        self._skip_blank()
        if self._data[self._pos : self._pos + 1] != byte:
            return False
        self._pos += 1
        return True

    def _here(self) -> str:
        """What stands at the cursor, for messages."""
        text = self._data[self._pos : self._pos + 12]
        return ascii(text.decode("latin-1")) if text else "the end of the file"
