"""The files of a V1 checkpoint: the prefix itself, or one a device (tensor_slice_reader.h).

A sharded one is spelled as TensorFlow spells it in a state file, with question marks for
the number: ``model.ckpt-30-?????-of-00002``. They are never a pattern here: the names that
they stand for are compared with those that are there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from ckpttool.errors import CkpttoolError, NotFoundError
from ckpttool.formats.sniff import sniff_file
from ckpttool.sources.filenames import join, v1_pattern, v1_shard
from ckpttool.sources.shard_files import MISSING_NAMED
from ckpttool.storage import Directory, FileStat

__all__ = ["V1Prefixes", "is_v1", "missing_files", "v1_files", "v1_prefix"]


def v1_files(directory: Directory, prefix: str) -> dict[int, str]:
    """The files of a checkpoint that are there: number → name.

    Raises:
        NotFoundError: there is none.
    """
    shard = v1_shard(prefix)
    if shard is None or shard[1] is not None:
        return {0: prefix}
    base, _, count = shard
    found = {}
    for stat in directory.scan():
        other = v1_shard(stat.name)
        if other is None or other[1] is None or stat.kind == "directory":
            continue
        if stat.name == _name(base, other[1], count) and other[1] < count:
            found[other[1]] = stat.name
    if not found:
        raise NotFoundError(
            f"no such checkpoint: {join(directory.path, prefix)}",
            why=f"none of its {count} files is there",
        )
    return dict(sorted(found.items()))


def missing_files(prefix: str, there: Container[int]) -> list[str]:
    """The names of those that are not there, the first hundred."""
    shard = v1_shard(prefix)
    if shard is None or shard[1] is not None:
        return []
    base, _, count = shard
    absent = (number for number in range(count) if number not in there)
    return [_name(base, number, count) for number in islice(absent, MISSING_NAMED)]


def v1_prefix(directory: Directory, name: str) -> str | None:
    """The V1 checkpoint that a name of a directory stands for; None where it is none.

    The name of its only file, of one of several, how a state file spells them, or what was
    given to TensorFlow as their prefix; then it is the newest of those with that prefix.
    """
    shard = v1_shard(name)
    stat = directory.stat(name)
    if stat is not None:
        if stat.kind != "file" or not is_v1(directory, name):
            return None
        return v1_pattern(shard[0], shard[2]) if shard else name
    found = _newest(directory, shard[0] if shard else name)
    if shard:
        return name if name in found else None
    return max(found, key=lambda pattern: (found[pattern], pattern), default=None)


def _newest(directory: Directory, base: str) -> dict[str, int]:
    """The sharded checkpoints of a prefix, and when each was last written to."""
    found: dict[str, int] = {}
    try:
        for stat, prefix, pattern in _shards(directory):
            if prefix == base and is_v1(directory, stat.name):
                found[pattern] = max(stat.mtime_ns, found.get(pattern, 0))
    except CkpttoolError:
        pass  # it cannot be listed, which is said where nothing else is found either
    return found


def _shards(directory: Directory) -> Iterator[tuple[FileStat, str, str]]:
    """What is named like one of several files, its prefix, and how that is spelled."""
    for stat in directory.scan():
        shard = v1_shard(stat.name) if "-of-" in stat.name else None
        if shard and shard[1] is not None:
            yield stat, shard[0], v1_pattern(shard[0], shard[2])


class V1Prefixes:
    """Which prefixes, as a state file spells them, are V1 checkpoints of one directory.

    A state file may have a hundred thousand; the directory is listed once at most.
    """

    def __init__(self) -> None:
        self._shards: dict[str, list[str]] | None = None
        self._known: dict[str, bool] = {}

    def has(self, directory: Directory, prefix: str) -> bool:
        """Whether this is one; the directory is the same each time.

        Raises:
            StorageError, PermissionDeniedError: the directory cannot be listed.
        """
        shard = v1_shard(prefix)
        if shard is None:
            return is_v1(directory, prefix)
        if shard[1] is not None:
            return False  # one file of several is spelled as they all are
        if self._shards is None:
            self._shards = {}
            for stat, _, pattern in _shards(directory):
                self._shards.setdefault(pattern, []).append(stat.name)
        if prefix not in self._known:
            names = self._shards.get(prefix, ())
            self._known[prefix] = any(is_v1(directory, name) for name in names)
        return self._known[prefix]


def is_v1(directory: Directory, name: str) -> bool:
    """Whether a file is a V1 checkpoint by its bytes; False where it may not be read."""
    try:
        file = directory.open(name)
        try:
            return sniff_file(file).kind == "tf-v1"
        finally:
            file.close()
    except CkpttoolError:
        return False


def _name(base: str, number: int, count: int) -> str:
    return f"{base}-{number:05d}-of-{count:05d}"
