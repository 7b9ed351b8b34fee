"""Reads a file that says which name becomes which: JSON or CSV.

JSON: ``{"old": "new"}``, ``[["old", "new"]]`` or ``[{"old": "…", "new": "…"}]``.
CSV: two columns, ``old,new``; a first line of these two words (in either order) is a
header. What ``list --map`` writes has the members or columns ``key`` and ``name``, among
others. Knows no checkpoint: whether a name exists is the caller's question.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from ckpttool.errors import LimitError, UsageError
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat

__all__ = ["NameMap", "read_map"]

#: A million pairs of long names.
_MOST_BYTES = 256 * 2**20
_HEADERS = {("old", "new"): False, ("new", "old"): True}


@dataclass(frozen=True, slots=True)
class NameMap:
    """Pairs of an old and a new name, in the order of the file.

    ``certain`` says whether the file itself tells which is which; ``stat`` is the file's.
    """

    stat: FileStat
    pairs: tuple[tuple[str, str], ...]
    certain: bool

    def turned(self) -> NameMap:
        """The map the other way round."""
        return NameMap(self.stat, tuple((new, old) for old, new in self.pairs), self.certain)

    def towards(self, names: Iterable[str]) -> NameMap:
        """The map, turned round where only its new names are names that exist."""
        if self.certain:
            return self
        known = set(names)
        old = sum(one in known for one, _ in self.pairs)
        new = sum(other in known for _, other in self.pairs)
        return self.turned() if new and not old else self


def read_map(path: str) -> NameMap:
    """Read a map.

    Raises:
        UsageError: id ``map-unreadable``: it is none, or says two things of one name.
        LimitError: id ``limit-map``.
        NotFoundError, PermissionDeniedError, StorageError: as opening it says.
    """
    folder, base = os.path.split(path)
    with open_directory(folder or ".") as directory, closing(directory.open(base)) as file:
        if file.stat.size > _MOST_BYTES:
            raise LimitError(
                f"{path} is over a limit",
                why=f"it has {file.stat.size} bytes, and the limit is {_MOST_BYTES}",
                hint="split it, and give --map twice",
                id="limit-map",
            )
        stat, data = file.stat, file.pread(0, file.stat.size)
    text = data.decode("utf-8-sig", "surrogateescape")
    pairs, certain = _json(path, text) if text.lstrip()[:1] in "[{" else _csv(path, text)
    if not pairs:
        raise _unreadable(path, "it holds no pair of names")
    for what, names in (("old", [old for old, _ in pairs]), ("new", [new for _, new in pairs])):
        twice = _repeated(names)
        if twice is not None:
            raise _unreadable(path, f"the {what} name {twice} stands in it twice")
    return NameMap(stat, tuple(pairs), certain)


def _json(path: str, text: str) -> tuple[list[tuple[str, str]], bool]:
    import json

    try:
        document = json.loads(text, object_pairs_hook=_Members)
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"it is no JSON: {error}") from None
    if isinstance(document, _Members):
        return [_pair(path, list(member)) for member in document], False
    if not isinstance(document, list):
        raise _unreadable(path, "it is neither an object nor a list")
    for old, new, certain in (("old", "new", True), ("key", "name", False)):
        if document and all(
            isinstance(one, _Members) and {name for name, _ in one} >= {old, new}
            for one in document
        ):
            members = [dict(one) for one in document]
            return [_pair(path, [one[old], one[new]]) for one in members], certain
    return [_pair(path, one) for one in document], False


class _Members(list[tuple[str, object]]):
    """The members of a JSON object, repeated ones too."""


def _csv(path: str, text: str) -> tuple[list[tuple[str, str]], bool]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error as error:
        raise _unreadable(path, f"it is neither JSON nor CSV: {error}") from None
    head = tuple(cell.strip().lower() for cell in rows[0]) if rows else ()
    if {"key", "name"} <= set(head):
        key, name = head.index("key"), head.index("name")
        return [_pair(path, _cells(row, key, name)) for row in rows[1:]], False
    turned = _HEADERS.get((head[0], head[1])) if len(head) == 2 else None
    if turned is None:
        return [_pair(path, row) for row in rows], False
    return [_pair(path, row[::-1] if turned else row) for row in rows[1:]], True


def _cells(row: Sequence[str], *places: int) -> list[str]:
    """The cells of these columns; empty ones where the row ends before."""
    return [row[place] if place < len(row) else "" for place in places]


def _pair(path: str, found: object) -> tuple[str, str]:
    if isinstance(found, Sequence) and not isinstance(found, str) and len(found) == 2:
        old, new = found
        if isinstance(old, str) and isinstance(new, str) and old and new:
            try:
                (old + new).encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:  # "\ud800" as JSON
                raise _unreadable(path, f"{found!r:.80} has half a character") from None
            return old, new
    raise _unreadable(path, f"{found!r:.80} is no pair of names")


def _repeated(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _unreadable(path: str, why: str) -> UsageError:
    return UsageError(
        f"the map {path} cannot be used",
        why=why,
        hint='write {"old": "new", …} as JSON, or lines old,new as CSV',
        id="map-unreadable",
    )
