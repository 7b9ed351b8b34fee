"""Whether a checkpoint is whole, without reading data; and the newest whole one of a run.

Whole: the index can be read from end to end, every data file that an entry refers to is
there, and each is at least as long as its last entry needs. Checksums of data are the
affair of ``verify``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from ckpttool.errors import CkpttoolError, CorruptError, IncompleteError, NotFoundError
from ckpttool.formats.bundle import BundleIndex
from ckpttool.formats.sniff import sniff_file
from ckpttool.limits import Limits
from ckpttool.sources.filenames import index_name, join, shard_name, split_number
from ckpttool.sources.run import Run
from ckpttool.sources.state_paths import Located, Version
from ckpttool.storage import Directory, ReadableFile, open_directory

__all__ = [
    "Candidate",
    "Flaw",
    "bytes_needed",
    "flaws",
    "newest_by_name",
    "newest_first",
    "newest_whole",
]

#: Flaws that are listed of one checkpoint; a header may claim a hundred thousand shards.
_MAX_FLAWS = 20


@dataclass(frozen=True, slots=True)
class Flaw:
    """Why a checkpoint is not whole: the file, and a phrase that follows its name.

    ``certain`` is whether it is proven. What the system does not let read, what is over a
    limit, of an unknown version or another kind of file may still be good as it is.
    """

    name: str
    why: str
    certain: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.why}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that may be the newest whole one.

    ``directory`` is None where it lies in the run directory itself.
    """

    prefix: str
    directory: str | None = None
    version: Version = "v2"

    def path(self, run: str) -> str:
        """The prefix as a person would type it; ``run`` is the run directory's path."""
        return join(run if self.directory is None else self.directory, self.prefix)


def bytes_needed(index: BundleIndex) -> dict[int, int]:
    """Shard → bytes that it needs to have; only shards that hold something.

    Raises:
        CorruptError, LimitError: the index cannot be read to its end.
    """
    needed: dict[int, int] = {}
    for block in index.blocks():
        for entry in block:
            if not entry.slices:  # a partitioned variable lies where its slices lie
                end = entry.offset + entry.size
                if end > needed.get(entry.shard, -1):
                    needed[entry.shard] = end
    return needed


def flaws(
    directory: Directory, prefix: str, limits: Limits, version: Version = "v2"
) -> tuple[Flaw, ...]:
    """What keeps a checkpoint from being whole, at most some; empty when it is whole."""
    if version == "v1":
        return _v1_flaws(directory, prefix, limits)
    name = index_name(prefix)
    try:
        file = directory.open(name)
    except CkpttoolError as error:
        return (Flaw(name, _reason(error, join(directory.path, name)), _is_certain(error)),)
    try:
        index = BundleIndex(file, limits)
        needed = bytes_needed(index)
    except CkpttoolError as error:
        other = _what_else(file)
        certain = not other and _is_certain(error)
        return (Flaw(name, other or _reason(error, file.path), certain),)
    finally:
        file.close()
    found: list[Flaw] = []
    for shard, size in sorted(needed.items()):
        name = shard_name(prefix, shard, index.header.num_shards)
        if flaw := _shard_flaw(directory, name, size):
            found.append(flaw)
            if len(found) == _MAX_FLAWS:
                break
    return tuple(found)


def _v1_flaws(directory: Directory, prefix: str, limits: Limits) -> tuple[Flaw, ...]:
    """The same of a V1 checkpoint: its files are there, and each can be read to its end."""
    from ckpttool.formats.entry import SliceBudget
    from ckpttool.formats.v1 import V1File
    from ckpttool.sources.v1_files import missing_files, v1_files

    try:
        names = v1_files(directory, prefix)
    except CkpttoolError as error:
        return (Flaw(prefix, _reason(error, join(directory.path, prefix)), _is_certain(error)),)
    found = [Flaw(name, "is missing") for name in missing_files(prefix, names)]
    budget = SliceBudget(limits)
    for name in names.values():
        try:
            file = directory.open(name)
            try:
                V1File(file, limits, budget)
            finally:
                file.close()
        except CkpttoolError as error:
            path = join(directory.path, name)
            found.append(Flaw(name, _reason(error, path), _is_certain(error)))
    return tuple(found[:_MAX_FLAWS])


def newest_first(run: Run) -> Iterator[Candidate]:
    """The checkpoints that a run knows of, the newest first, each once.

    First what the state file calls latest, then its list from the end (it is in the order
    of saving), then what it does not list, by number and time.
    """
    seen: set[Candidate] = set()
    named = [run.latest] if run.latest else []
    for item in (*named, *reversed(run.listed)):
        found = item.found
        if isinstance(found, Located):
            where = None if found.own else found.directory
            candidate = Candidate(found.prefix, where, found.version)
            if candidate not in seen:
                seen.add(candidate)
                yield candidate
    for candidate in newest_by_name(run):
        if candidate not in seen:
            yield candidate


def newest_by_name(run: Run) -> list[Candidate]:
    """All that lie in the directory, the newest first; of one number V2 is the newer."""
    old = [(_number(split_number(name)[1]), Candidate(name, version="v1")) for name in run.v1]
    new = [(_number(item.number), Candidate(item.prefix)) for item in run.checkpoints]
    ordered = sorted([*old, *new], key=itemgetter(0))  # which leaves equal ones as they are
    return [candidate for _, candidate in reversed(ordered)]


def _number(number: int | None) -> int:
    return -1 if number is None else number


def newest_whole(
    run: Run, directory: Directory, limits: Limits
) -> tuple[Candidate | None, list[tuple[Candidate, Flaw]]]:
    """The newest whole checkpoint of a run, and the newer ones with their first flaw."""
    passed: list[tuple[Candidate, Flaw]] = []
    for candidate in newest_first(run):
        if candidate.directory is None:
            found = flaws(directory, candidate.prefix, limits, candidate.version)
        else:
            with open_directory(candidate.directory) as other:
                found = flaws(other, candidate.prefix, limits, candidate.version)
        if not found:
            return candidate, passed
        passed.append((candidate, found[0]))
    return None, passed


def _shard_flaw(directory: Directory, name: str, needed: int) -> Flaw | None:
    try:
        stat = directory.stat(name)
    except CkpttoolError as error:
        return Flaw(name, _reason(error, join(directory.path, name)), _is_certain(error))
    if stat is None:
        return Flaw(name, "is missing")
    if stat.kind != "file":
        why = "is a symbolic link" if stat.kind == "link" else "is not a regular file"
        return Flaw(name, why, certain=False)
    if stat.size >= needed:
        return None
    try:
        file = directory.open(name)
        try:
            other = _what_else(file)
        finally:
            file.close()
    except CkpttoolError as error:
        return Flaw(name, _reason(error, join(directory.path, name)), _is_certain(error))
    return Flaw(name, other or f"has {stat.size} bytes of at least {needed}", not other)


def _is_certain(error: CkpttoolError) -> bool:
    """Whether the bytes themselves are wrong or absent, and not merely out of reach."""
    return isinstance(error, (CorruptError, IncompleteError, NotFoundError))


def _what_else(file: ReadableFile) -> str:
    """What a file is where it is positively something else; else empty."""
    try:
        sniffed = sniff_file(file)
    except CkpttoolError:
        return ""
    if sniffed.ours or not sniffed.named:
        return ""
    return f"is {sniffed.description}"


def _reason(error: CkpttoolError, path: str) -> str:
    """What an error says of a file, so that it can follow the file's name."""
    said = str(error).removeprefix(path)
    return said[1:] if said.startswith(" ") else f"cannot be used: {said.removeprefix(': ')}"
