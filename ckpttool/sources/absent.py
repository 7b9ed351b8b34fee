"""The errors of an address that leads to no checkpoint: what was looked for, what is there.

Builds them only; which address means what is the affair of ``address.py``. Looking around
is bounded: a few files are sniffed and a few directories looked into.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from ckpttool.errors import (
    CkpttoolError,
    ForeignFormatError,
    IncompleteError,
    NotFoundError,
    PermissionDeniedError,
)
from ckpttool.formats.sniff import Sniffed, sniff_directory, sniff_file
from ckpttool.limits import Limits
from ckpttool.sources.file_kinds import FILES
from ckpttool.sources.filenames import (
    STATE_FILE,
    index_name,
    join,
    split_part,
)
from ckpttool.sources.nearest import nearest
from ckpttool.storage import Directory, FileStat, open_directory, stat_path

if TYPE_CHECKING:
    from ckpttool.sources.run import Run

__all__ = [
    "index_missing",
    "no_checkpoint",
    "no_folder",
    "no_prefix",
    "refuse_denied",
    "refuse_link",
    "refuse_linked_index",
]

_LOOKED_AT = 50
_NAMES = 2000


def index_missing(path: str, present: Iterable[str]) -> IncompleteError:
    """Files of a checkpoint are there and its index is not; ``present`` are some of them."""
    return IncompleteError(
        f"{path} has no index",
        why=f"{index_name(os.path.basename(path))} is not there, only {_some(present)}",
        hint="copy the .index file from where the checkpoint is whole; when a save was "
        "interrupted there is none",
        id="index-missing",
    )


def refuse_link(directory: Directory, name: str) -> None:
    """Raise where a file of a checkpoint is a symbolic link; any other is left alone.

    Raises:
        UnsafeError: id ``unsafe-link``, as whoever opens it has it.
    """
    stat = directory.stat(name)
    if stat is not None and stat.kind == "link":
        directory.open(name).close()


def refuse_denied(directory: Directory, name: str) -> None:
    """Raise where the system does not let a file of a checkpoint be read.

    Raises:
        PermissionDeniedError: as whoever opens it has it.
    """
    try:
        directory.open(name).close()
    except PermissionDeniedError:
        raise
    except CkpttoolError:
        pass  # that nothing is there, or no file, is for others to say


def refuse_linked_index(directory: Directory, run: Run) -> None:
    """As `refuse_link`, where the only indexes in a run are links: the last by name."""
    if not run.checkpoints:
        for leftover in reversed(run.leftovers):
            part = split_part(leftover.name)
            if part is not None and part.kind == "index":
                refuse_link(directory, leftover.name)


def no_folder(address: str, folder: str, what: str = "checkpoint") -> NotFoundError:
    """The directory of an address is not there: says how far the path goes."""
    missing = folder
    while (parent := os.path.dirname(missing)) != missing and stat_path(parent or ".") is None:
        missing = parent
    there = stat_path(missing)
    why = f"{missing} is no directory" if there else f"there is no directory {missing}"
    parent, base = os.path.split(missing)
    hint = ""
    if stat_path(index_name(folder)) is not None:  # a prefix with a slash at its end
        hint = f"did you mean {folder}?"
    else:
        try:
            with open_directory(parent) as directory:
                hint = _near(directory, base)
        except CkpttoolError:
            pass
    return NotFoundError(f"no such {what}: {address}", why=why, hint=hint)


def no_prefix(directory: Directory, base: str, address: str, limits: Limits) -> CkpttoolError:
    """A name of a directory is no checkpoint: its parts, or the nearest names there."""
    named = split_part(base)
    wanted = named.prefix if named else base
    parts: list[str] = []
    prefixes: set[str] = set()
    looked_for = f"looked for {index_name(base)}, {base}.data-*-of-*, {base}.meta and {base}"
    if named:
        looked_for = f"looked for {base}"
    try:
        for stat in islice(directory.scan(), limits.directory_entries):
            part = split_part(stat.name)
            if part is not None:
                if part.kind == "index":
                    prefixes.add(part.prefix)
                elif part.prefix == wanted:
                    parts.append(stat.name)
    except CkpttoolError as error:
        looked_for += f"; the directory cannot be listed: {error.why}"
    if parts and wanted not in prefixes:
        return index_missing(join(directory.path, wanted), parts)
    there = directory.stat(base)
    if there is not None and there.kind == "link":
        return NotFoundError(
            f"no such checkpoint: {address}",
            why="it is a symbolic link that leads nowhere",
            hint=f"ls -l {shlex.quote(address)}",
        )
    return NotFoundError(
        f"no such checkpoint: {address}",
        why=f"{looked_for} in {directory.path}",
        hint=_instead(directory, base, prefixes),
    )


def _instead(directory: Directory, base: str, prefixes: set[str]) -> str:
    run, at, step = base.rpartition("@")
    if at and (stat := directory.stat(run)) is not None and stat.kind == "directory":
        return f"did you mean {join(directory.path, run)}/@{step}?"
    named = split_part(base)
    if near := _near(directory, named.prefix if named else base, prefixes):
        return near
    if prefixes:
        return f"the checkpoints there are {_some(prefixes)}"
    return f"there is no checkpoint in {directory.path}"


def _near(directory: Directory, base: str, prefixes: Iterable[str] = ()) -> str:
    """The question whether a checkpoint or a directory of a similar name was meant."""
    names = set(prefixes)
    try:
        for stat in islice(directory.scan(), _NAMES):
            part = split_part(stat.name)
            if part is not None and part.kind == "index":
                names.add(part.prefix)
            elif stat.kind == "directory":
                names.add(stat.name)
    except CkpttoolError:
        pass  # whatever else is said of the directory, says so
    near = [join(directory.path, name) for name in nearest(base, names)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def no_checkpoint(directory: Directory, address: str) -> CkpttoolError:
    """A directory holds no checkpoint: what it is, or what is in it instead."""
    entries = sorted(islice(directory.scan(), _NAMES), key=lambda entry: entry.name)
    whole = sniff_directory({entry.name for entry in entries})
    if whole is not None:
        return whole.error(address)
    files = [entry for entry in entries if entry.kind == "file" and entry.name != STATE_FILE]
    sniffed = [
        (join(directory.path, stat.name), found)
        for stat in files[:_LOOKED_AT]
        if (found := _sniffed(directory, stat)) is not None
    ]
    # Files that are sources of their own, each by its own name.
    below = [f"{path} ({found.description})" for path, found in sniffed if found.kind in FILES]
    for path, found in sniffed if not below else ():
        if found.named and not found.ours:
            error = found.error(path)
            return ForeignFormatError(
                f"no checkpoint in {address}", why=error.what, hint=error.hint, id=error.id
            )
    below += [
        f"{join(directory.path, entry.name)} ({what})"
        for entry in [entry for entry in entries if entry.kind == "directory"][:_LOOKED_AT]
        if (what := _what_is_below(directory, entry.name))
    ]
    return NotFoundError(
        f"no checkpoint in {address}",
        why=_no_index(len(entries)),
        hint=f"did you mean {' or '.join(below[:3])}?" if below else "",
        id="no-checkpoint",
    )


def _no_index(entries: int) -> str:
    if entries < 2:
        one = "its only entry is not the .index file of a checkpoint"
        return one if entries else "the directory is empty"
    more = " or more" if entries == _NAMES else ""
    return f"none of its {entries}{more} entries is the .index file of a checkpoint"


def _sniffed(directory: Directory, stat: FileStat) -> Sniffed | None:
    """What a file is; None where it cannot be read."""
    try:
        with closing(directory.open(stat.name)) as file:
            return sniff_file(file)
    except CkpttoolError:
        return None


def _what_is_below(directory: Directory, name: str) -> str:
    """What a directory in a directory is, as far as a glance tells; else empty."""
    try:
        with closing(directory.directory(name)) as inside:
            if inside.stat("saved_model.pb") is not None:
                return "a SavedModel"
            for entry in islice(inside.scan(), _NAMES):
                part = split_part(entry.name)
                if entry.name == STATE_FILE or (part and part.kind == "index"):
                    return "a run"
    except CkpttoolError:
        pass
    return ""


def _some(names: Iterable[str]) -> str:
    """The first few names of many, and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:3])
    return f"{shown} and {len(ordered) - 3} more" if len(ordered) > 3 else shown
