"""Where a command writes: a destination address → a directory and a prefix in it.

Knows which files of an old checkpoint are in the way, and which are of no more use once a
new one stands in its place.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ckpttool.errors import RefusedError, UsageError
from ckpttool.sources.address import Resolved
from ckpttool.sources.filenames import (
    SAVED_MODEL_FILES,
    graph_name,
    index_name,
    is_sharded_v1,
    join,
    shard_name,
    split_part,
)
from ckpttool.storage import require_directory, stat_path
from ckpttool.storage.base import Directory

__all__ = [
    "FINGERPRINT",
    "Destination",
    "destination",
    "folder_of",
    "in_the_way",
    "is_bundle",
    "is_checkpoint_file",
    "prefix_of",
]

_VARIABLES = "variables"
#: Beside saved_model.pb; holds a hash of the bytes of the variables' index.
FINGERPRINT = "fingerprint.pb"


class Destination(NamedTuple):
    """A prefix that is to be written.

    Attributes:
        directory: an existing directory.
        prefix: the base name there.
        saved_model: the SavedModel whose variables these are; empty for a checkpoint.
    """

    directory: str
    prefix: str
    saved_model: str = ""

    @property
    def location(self) -> str:
        """The prefix with its directory, as a person would type it."""
        return join(self.directory, self.prefix)


def destination(address: str, source_prefix: str) -> Destination:
    """Find out where ``address`` says to write; nothing is created.

    A directory stands for the source's prefix in it, a SavedModel for its variables; the
    name of one of a checkpoint's files for its prefix.

    Raises:
        UsageError: id ``empty-address``, or a name that no file can have.
        NotFoundError: id ``destination-directory``: the directory does not exist.
    """
    if not address:
        raise UsageError(
            "the destination is empty",
            why="an empty path stands for no file; a shell variable may not be set",
            hint="give a prefix such as out/model.ckpt, or a directory",
            id="empty-address",
        )
    there = stat_path(address)
    if there is not None and there.kind == "directory":
        folder = address.rstrip("/") or "/"
        if _is_saved_model(folder):
            return Destination(join(folder, _VARIABLES), _VARIABLES, folder)
        parent, base = os.path.split(os.path.abspath(folder))
        if base == _VARIABLES and _is_saved_model(parent):
            return Destination(folder, _VARIABLES, parent)
        return Destination(folder, source_prefix)
    folder, base = os.path.split(address)
    require_directory(folder, address)
    part = split_part(base)
    prefix = part.prefix if part is not None else base
    saved_model = ""
    if prefix == _VARIABLES:
        parent, inner = os.path.split(os.path.abspath(folder or "."))
        saved_model = parent if inner == _VARIABLES and _is_saved_model(parent) else ""
    return Destination(folder or ".", prefix, saved_model)


def is_bundle(found: Resolved) -> bool:
    """Whether what an address came to is stored as a V2 checkpoint."""
    return found.version == "v2" and found.kind in {"checkpoint", "run", "savedmodel"}


def prefix_of(found: Resolved) -> str:
    """The prefix that what is made of a source gets in a directory: its own, or its stem."""
    if found.kind in {"checkpoint", "run", "savedmodel", "tf-v1"}:
        return is_sharded_v1(found.prefix) or found.prefix
    return os.path.splitext(found.prefix)[0]


def folder_of(address: str) -> str | None:
    """The existing directory that a destination's files are in; None where there is none."""
    there = stat_path(address) if address else None
    if there is not None and there.kind == "directory":
        folder = address.rstrip("/") or "/"
        inside = join(folder, _VARIABLES)
        return inside if _is_saved_model(folder) and stat_path(inside) is not None else folder
    folder = os.path.dirname(address) or "."
    above = stat_path(folder)
    return folder if above is not None and above.kind == "directory" else None


def in_the_way(directory: Directory, prefix: str, *, overwrite: bool) -> list[str]:
    """The files of a checkpoint that is there already, by name.

    Raises:
        RefusedError: id ``exists``: there are some, and ``overwrite`` is false; or one is a
            directory.
    """
    entries = [entry for entry in directory.scan() if is_checkpoint_file(entry.name, prefix)]
    found = [entry.name for entry in entries]
    if folder := next((entry.name for entry in entries if entry.kind == "directory"), None):
        raise RefusedError(
            f"{join(directory.path, prefix)} cannot be written",
            why=f"{join(directory.path, folder)} is a directory, and is not replaced",
            hint="move it away, or choose another name",
            id="exists",
        )
    if found and not overwrite:
        raise RefusedError(
            f"{join(directory.path, prefix)} exists",
            why=f"{len(found)} of its files are there: {', '.join(sorted(found)[:3])}…"
            if len(found) > 3
            else f"there is {', '.join(sorted(found))}",
            hint="add --overwrite, or choose another name",
            id="exists",
        )
    return sorted(found)


def is_checkpoint_file(name: str, prefix: str) -> bool:
    """Whether a file of this name belongs to a V2 checkpoint with this prefix."""
    part = split_part(name)
    if part is None:
        return False
    if part.kind == "meta":
        return name == graph_name(prefix)
    if part.prefix != prefix:
        return False
    return name == (
        index_name(prefix) if part.kind == "index" else shard_name(prefix, part.shard, part.shards)
    )


def _is_saved_model(folder: str) -> bool:
    return any(stat_path(join(folder, name)) is not None for name in SAVED_MODEL_FILES)
