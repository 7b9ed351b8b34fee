"""Run directories for the tests of removing: small, whole, made without TensorFlow.

The index of every checkpoint is a copy of a real one, so "whole" means what it means.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ckpttool.formats import crc32c
from ckpttool.formats.bundle_writer import encode_entry, encode_header
from ckpttool.formats.state import CheckpointState
from ckpttool.formats.state_writer import format_state
from ckpttool.formats.table_writer import TableWriter

__all__ = ["HOUR", "NOW", "add", "contents", "hdf5", "index_bytes", "make_run", "prefixes", "state"]

NOW = 1_700_000_000.0
HOUR = 3600.0
_DATA = b"\1\2\3\4"


def index_bytes(shards: int = 1) -> bytes:
    """An index with one int32 scalar in each of ``shards`` data files."""
    pieces: list[bytes] = []
    writer = TableWriter(pieces.append)
    writer.add(b"", encode_header(shards))
    for shard in range(shards):
        writer.add(
            b"v%05d" % shard,
            encode_entry(
                3,
                (),
                shard=shard,
                offset=0,
                size=len(_DATA),
                crc32c=crc32c.mask(crc32c.crc(_DATA)),
                slices=(),
            ),
        )
    writer.finish()
    return b"".join(pieces)


def hdf5(size: int = 200, mark: bytes = b"keras_version") -> bytes:
    """The beginning of an HDF5 file of ``size`` bytes (superblock 0), as Keras writes one."""
    superblock = b"\x89HDF\r\n\x1a\n" + bytes(5) + b"\x08\x08" + bytes(17)
    superblock += b"\xff" * 8 + size.to_bytes(8, "little") + b"\xff" * 8
    return (superblock + mark).ljust(size, b"\0")


def add(
    directory: Path,
    prefix: str,
    when: float,
    *,
    shards: int = 1,
    graph: bool = False,
    without: Iterable[str] = (),
) -> None:
    """Write a checkpoint, saved at ``when``; ``without`` names suffixes that are left out."""
    files = {".index": index_bytes(shards)}
    files |= {f".data-{shard:05d}-of-{shards:05d}": _DATA for shard in range(shards)}
    if graph:
        files[".meta"] = b"graph"
    for suffix, data in files.items():
        if suffix not in set(without):
            path = directory / f"{prefix}{suffix}"
            path.write_bytes(data)
            os.utime(path, (when, when))


def state(
    directory: Path,
    paths: Sequence[str],
    times: Sequence[float] = (),
    *,
    latest: str | None = None,
    last_preserved: float | None = None,
    when: float = NOW - HOUR,
    name: str = "checkpoint",
) -> None:
    """Write a state file; the latest is the last of the list unless said."""
    text = format_state(
        CheckpointState(latest or paths[-1], tuple(paths), tuple(times), last_preserved)
    )
    (directory / name).write_bytes(text)
    os.utime(directory / name, (when, when))


def make_run(
    directory: Path,
    ages: Mapping[str, float],
    *,
    listed: Sequence[str] | None = None,
    stamped: bool = True,
    shards: int = 1,
    graph: bool = False,
    now: float = NOW,
) -> Path:
    """A run: prefix → age in hours; all of them listed unless said, with times."""
    directory.mkdir(parents=True, exist_ok=True)
    for prefix, age in ages.items():
        add(directory, prefix, now - age * HOUR, shards=shards, graph=graph)
    names = list(ages) if listed is None else list(listed)
    if names:
        times = [now - ages[name] * HOUR for name in names] if stamped else []
        oldest = now - max(ages.values()) * HOUR
        state(
            directory,
            names,
            times,
            last_preserved=oldest - HOUR if stamped else None,
            when=now - min(ages.values()) * HOUR,
        )
    return directory


def prefixes(directory: Path) -> set[str]:
    """The prefixes that have an index."""
    return {path.name[: -len(".index")] for path in directory.glob("*.index")}


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory: relative path → bytes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
