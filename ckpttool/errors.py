"""Every error ckpttool raises, with its exit code, stable id and three lines of text.

An error says *what* failed (naming the object), *why* (with numbers) and what to do
next (*hint*, a command where there is one). Its class carries the exit code; its
``id`` is stable and finer than the class, and ``ckpttool explain ID`` tells the long
story (``ckpttool/explanations.py``). This module knows no third party and prints nothing.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "CancelledError",
    "ChangedError",
    "CkpttoolError",
    "ClusterError",
    "ConversionError",
    "ConverterMissingError",
    "CorruptError",
    "ForeignFormatError",
    "IncompleteError",
    "InternalError",
    "LimitError",
    "NoGraphError",
    "NoSpaceError",
    "NotFoundError",
    "PartialError",
    "PermissionDeniedError",
    "RefusedError",
    "ResultDiffersError",
    "StorageError",
    "UnreachableError",
    "UnsafeError",
    "UnsupportedError",
    "UsageError",
    "missing_package",
]


class CkpttoolError(Exception):
    """Base of all errors: ``what`` failed, ``why``, and what to do next.

    Args:
        what: what failed, with the object (one line, no trailing full stop).
        why: the cause, with numbers; may be empty.
        hint: what to do next; a command where there is one; may be empty.
        id: a finer id than the class's own, for example ``shard-missing``.
    """

    exit_code: ClassVar[int] = 70
    default_id: ClassVar[str] = "internal"

    def __init__(self, what: str, *, why: str = "", hint: str = "", id: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.id = id or self.default_id

    def __str__(self) -> str:
        return f"{self.what}: {self.why}" if self.why else self.what

    def as_dict(self) -> dict[str, object]:
        """The error as ``--json`` prints it: code, id, message, why, hint."""
        return {
            "code": self.exit_code,
            "id": self.id,
            "message": self.what,
            "why": self.why,
            "hint": self.hint,
        }


class UsageError(CkpttoolError):
    """The command line, or an argument of a Python call, makes no sense."""

    exit_code = 2
    default_id = "usage"


class PartialError(CkpttoolError):
    """Part of the work was done, and what was done is kept."""

    exit_code = 3
    default_id = "partial"


class CancelledError(CkpttoolError):
    """The answer to a question was no, or there was nobody to ask."""

    exit_code = 4
    default_id = "cancelled"


class NotFoundError(CkpttoolError):
    """No such path, checkpoint, step or variable."""

    exit_code = 10
    default_id = "not-found"


class ForeignFormatError(CkpttoolError):
    """A file of a kind that ckpttool does not read; the message names the kind."""

    exit_code = 11
    default_id = "foreign-format"


class UnsupportedError(CkpttoolError):
    """One of our kinds, but a version or feature that is not supported."""

    exit_code = 12
    default_id = "unsupported"


class CorruptError(CkpttoolError):
    """Bytes that contradict the format or their checksum."""

    exit_code = 20
    default_id = "corrupt"


class IncompleteError(CkpttoolError):
    """Bytes or files that should be there and are not."""

    exit_code = 20
    default_id = "incomplete"


class LimitError(CkpttoolError):
    """A size or count that a file claims is over a limit (``ckpttool/limits.py``)."""

    exit_code = 21
    default_id = "limit"


class UnsafeError(CkpttoolError):
    """Something that could lead outside the checkpoint: a path, a link, code."""

    exit_code = 22
    default_id = "unsafe"


class ChangedError(CkpttoolError):
    """Another program changed or replaced the files while they were read."""

    exit_code = 30
    default_id = "changed"


class RefusedError(CkpttoolError):
    """Refused by a rule; the hint names the flag that allows it, if one does."""

    exit_code = 31
    default_id = "refused"


class StorageError(CkpttoolError):
    """The operating system failed to read or write."""

    exit_code = 40
    default_id = "storage"


class NoSpaceError(CkpttoolError):
    """The device or quota is full."""

    exit_code = 41
    default_id = "no-space"


class PermissionDeniedError(CkpttoolError):
    """The operating system denied access."""

    exit_code = 42
    default_id = "permission"


class ConverterMissingError(CkpttoolError):
    """A library that the conversion, or the proof of its result, needs is not installed."""

    exit_code = 50
    default_id = "converter-missing"


class ConversionError(CkpttoolError):
    """TensorFlow or a converter failed, or what came of it cannot be used."""

    exit_code = 51
    default_id = "conversion"


class ResultDiffersError(CkpttoolError):
    """The result computes something else than the source; nothing is in place."""

    exit_code = 52
    default_id = "result-differs"


class NoGraphError(CkpttoolError):
    """Values without a computation: there is no graph to convert with."""

    exit_code = 53
    default_id = "no-graph"


class UnreachableError(CkpttoolError):
    """A parameter server, or what answers for it, cannot be reached."""

    exit_code = 60
    default_id = "unreachable"


class ClusterError(CkpttoolError):
    """A process of the cluster failed, and it cannot go on."""

    exit_code = 61
    default_id = "cluster"


class InternalError(CkpttoolError):
    """A bug in ckpttool: an exception that no rule foresaw."""


#: Import name → distribution, of the packages that a light install may leave out.
_OPTIONAL = {"h5py": "h5py", "ml_dtypes": "ml-dtypes", "numpy": "numpy", "tensorflow": "tensorflow"}


def missing_package(error: ModuleNotFoundError) -> UnsupportedError | None:
    """The error of an import that failed because a package is not installed.

    None where something else is missing, for that is a bug.
    """
    package = _OPTIONAL.get(error.name or "")
    if package is None:
        return None
    return UnsupportedError(
        f"this needs {package}",
        why="it is not installed; this is a light install",
        hint=f"pip install {package}",
        id="package-missing",
    )
