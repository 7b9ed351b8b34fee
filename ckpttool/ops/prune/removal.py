"""What is to be removed, as data: files in the order in which they go, and their record.

A record is JSON, so that an interrupted removal can be finished, a trashed one undone and
a plan applied later. A record that is read is as little trusted as any other file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.errors import CorruptError
from ckpttool.storage.base import FileStat

__all__ = ["Removal", "decode_json", "encode_json", "removals_from", "removals_to"]


@dataclass(frozen=True, slots=True)
class Removal:
    """One checkpoint (or leftover) that goes as a whole.

    Attributes:
        prefix: the checkpoint's name in the directory, or the leftover's.
        files: in the order in which they go: the index first, so that no reader takes what
            is left for a whole checkpoint; then data, then the graph.
        folder: the directory inside the run's that the files lie in and that goes last;
            empty where they lie in the run's own.
    """

    prefix: str
    files: tuple[FileStat, ...]
    folder: str = ""

    @property
    def nbytes(self) -> int:
        """All files together."""
        return sum(file.size for file in self.files)


def removals_to(removals: Iterable[Removal]) -> list[dict[str, Any]]:
    """The JSON form of removals."""
    return [
        {
            "prefix": removal.prefix,
            "folder": removal.folder,
            "files": [
                [file.name, file.size, file.mtime_ns, file.inode, file.device]
                for file in removal.files
            ],
        }
        for removal in removals
    ]


def removals_from(data: object, path: str) -> tuple[Removal, ...]:
    """The inverse of `removals_to`.

    Raises:
        CorruptError: id ``record-corrupt``: not of that form.
    """
    try:
        return tuple(
            Removal(
                _text(entry["prefix"]),
                tuple(
                    FileStat(_text(name), "file", int(size), int(mtime), int(inode), int(device))
                    for name, size, mtime, inode, device in entry["files"]
                ),
                _text(entry["folder"]),
            )
            for entry in _list(data)
        )
    except (KeyError, TypeError, ValueError):
        raise _corrupt(path, "a removal in it is not of the form that ckpttool writes") from None


def encode_json(record: Mapping[str, object]) -> bytes:
    """A record as text; names that are not UTF-8 stay exact (as escaped surrogates)."""
    return json.dumps(record, indent=1).encode("ascii")


def decode_json(data: bytes, path: str, kind: str) -> dict[str, Any]:
    """A record of the ``kind`` that its member ``schema`` has to name.

    Raises:
        CorruptError: id ``record-corrupt``: not JSON, or of another kind.
    """
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"it is not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != kind:
        raise _corrupt(path, f"its schema is not {kind}")
    return record


def _corrupt(path: str, why: str) -> CorruptError:
    return CorruptError(
        f"{path} cannot be used",
        why=why,
        hint="if ckpttool did not write it, move it away",
        id="record-corrupt",
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _list(value: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise TypeError
    return value
