"""Every checksum of every data file: the part of `verify` that reads the data.

A file that another program changes meanwhile is noticed: what did not match is read once
more from the file that bears the name now, and what still does not is said to be so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from ckpttool.errors import (
    CkpttoolError,
    IncompleteError,
    PermissionDeniedError,
    StorageError,
    UnsupportedError,
)
from ckpttool.formats.bundle import Entry
from ckpttool.formats.dtypes import dtype_name
from ckpttool.model import Severity, shape_text
from ckpttool.ops.verification.checksums import Mismatch, Unit, check_range, check_unit, units
from ckpttool.ops.verification.contents import name_of
from ckpttool.ops.verification.coverage import Coverage
from ckpttool.ops.verification.parallel import each
from ckpttool.ops.verification.pieces import Joiner, Piece, PieceSum, cut, sum_piece
from ckpttool.ops.verification.report import Report
from ckpttool.ops.verification.shards import DataFile
from ckpttool.storage import Directory, ReadableFile

__all__ = ["Progress", "check_bytes"]

#: Bytes from which on more than one thread is started unasked; fewer take 20 ms.
_WORTH_THREADS = 2**28
#: More threads than this wait for memory or the disk.
_MOST_THREADS = 4

#: Told of bytes done and of all bytes.
Progress = Callable[[int, int], None]


def check_bytes(
    files: list[DataFile],
    directory: Directory,
    *,
    big_endian: bool,
    jobs: int | None,
    progress: Progress | None,
    report: Report,
    coverage: Coverage,
) -> None:
    """Compare every claimed byte of the files with its checksum.

    ``jobs`` is the number of threads; None: as many as pay.
    """
    total = sum(file.readable for file in files)
    threads = jobs or (_threads() if total >= _WORTH_THREADS else 1)
    done = 0

    def advance(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    for file in files:
        try:
            opened = directory.open(file.name)
        except CkpttoolError as error:
            _not_opened(file, error, report, coverage)
            continue
        try:
            found = _compare(file, opened, big_endian=big_endian, threads=threads, tell=advance)
            changed = opened.changed() or opened.stat != file.stat
        finally:
            opened.close()
        coverage.nbytes += file.readable
        if changed:
            found = _once_more(file, found, directory, big_endian=big_endian)
            report.add(
                "changed-while-reading",
                "error" if found else "warning",
                file.path,
                "another program changed or replaced it while it was read"
                + ("" if found else "; what was read matched"),
            )
        _tell(file, found, report, coverage)


def _threads() -> int:
    """Threads that pay: reading and summing up run outside the interpreter's lock."""
    try:
        return min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    except AttributeError:  # not on macOS
        return min(os.cpu_count() or 1, _MOST_THREADS)


def _compare(
    file: DataFile,
    opened: ReadableFile,
    *,
    big_endian: bool,
    threads: int,
    tell: Callable[[int], None],
) -> list[Mismatch]:
    """What does not match in a file; ``tell`` is called with bytes as they are done."""
    extents = file.extents

    def work(item: Unit | Piece) -> tuple[int, list[Mismatch] | PieceSum]:
        if isinstance(item, Piece):
            return item.nbytes, sum_piece(opened, item)
        return item.nbytes, check_unit(opened, extents, item, big_endian=big_endian)

    joiner = Joiner(extents)
    found: list[Mismatch] = []
    for nbytes, result in each(work, cut(units(extents, file.length), extents), threads):
        tell(nbytes)
        found += joiner.add(result) if isinstance(result, PieceSum) else result
    return sorted(found, key=lambda mismatch: extents.ordinals[mismatch.position])


def _not_opened(file: DataFile, error: CkpttoolError, report: Report, coverage: Coverage) -> None:
    # Being denied access says nothing about the file: it was not checked, no more.
    severity: Severity = "warning" if isinstance(error, PermissionDeniedError) else "error"
    report.add_error(error, file.path, severity)
    report.skip(file.path, error.why or error.what, len(file.extents), file.extents.nbytes)
    coverage.lose(file.extents, filter(file.fits, range(len(file.extents))))


def _once_more(
    file: DataFile, found: list[Mismatch], directory: Directory, *, big_endian: bool
) -> list[Mismatch]:
    """What still does not match in the file that bears the name now."""
    try:
        opened = directory.open(file.name)
    except CkpttoolError as error:
        return [Mismatch(mismatch.position, error) for mismatch in found]
    try:
        again = (
            check_range(opened, file.extents, mismatch.position, big_endian=big_endian)
            for mismatch in found
        )
        return [mismatch for mismatch in again if mismatch]
    finally:
        opened.close()


def _tell(file: DataFile, found: list[Mismatch], report: Report, coverage: Coverage) -> None:
    """Make findings of mismatches."""
    unread = []
    for mismatch in found:
        position, outcome = mismatch.position, mismatch.outcome
        ordinal = file.extents.ordinals[position]
        if isinstance(outcome, (IncompleteError, StorageError, UnsupportedError)):
            unread.append(position)
        if isinstance(outcome, CkpttoolError):
            # What cannot be checked at all may still be right.
            severity: Severity = "warning" if isinstance(outcome, UnsupportedError) else "error"
            report.add_unnamed(
                outcome.id, severity, (ordinal,), partial(_unreadable, file.name, outcome)
            )
        elif not file.extents.checksums[position]:
            report.add_unnamed(
                "checksum-missing", "error", (ordinal,), partial(_unsummed, file.name, outcome)
            )
        else:
            report.add_unnamed(
                "checksum-mismatch", "error", (ordinal,), partial(_differs, file.name, outcome)
            )
    if unread:
        nbytes = sum(file.extents.sizes[position] for position in unread)
        coverage.lose(file.extents, unread)
        coverage.nbytes -= nbytes
        report.skip(file.path, "it could not be read", len(unread), nbytes)


def _place(shard: str, entry: Entry) -> str:
    shape = "of unknown shape" if entry.shape is None else shape_text(entry.shape)
    return (
        f"{dtype_name(entry.dtype)} {shape}, {entry.size} bytes at offset {entry.offset} of {shard}"
    )


def _unreadable(shard: str, error: CkpttoolError, entries: list[Entry]) -> tuple[str, str]:
    entry = entries[0]
    return name_of(entry.key), f"{_place(shard, entry)}: {error}"


def _differs(shard: str, computed: int, entries: list[Entry]) -> tuple[str, str]:
    entry = entries[0]
    return (
        name_of(entry.key),
        f"{_place(shard, entry)}: checksum {computed:08x}, and {entry.crc32c or 0:08x} is stored",
    )


def _unsummed(shard: str, computed: int, entries: list[Entry]) -> tuple[str, str]:
    entry = entries[0]
    why = f"it has no checksum ({computed:08x} would be right), and TensorFlow does not restore it"
    return name_of(entry.key), f"{_place(shard, entry)}: {why}"
