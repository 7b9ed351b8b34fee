"""The data files beside an index: which are there, and do the ranges fit into them.

Looks at names, kinds and sizes; opens a file only to tell a pointer (Git LFS) or a web
page from one that is cut short.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from ckpttool.errors import ChangedError, CkpttoolError
from ckpttool.formats.bundle import Entry
from ckpttool.formats.sniff import HEAD_BYTES, sniff_file
from ckpttool.ops.verification.contents import Contents, name_of
from ckpttool.ops.verification.coverage import Coverage
from ckpttool.ops.verification.extents import Extents, Layout
from ckpttool.ops.verification.report import Report
from ckpttool.sources.filenames import join, shard_name, split_part
from ckpttool.sources.shard_files import MISSING_NAMED
from ckpttool.storage import Directory, FileStat

__all__ = ["DataFile", "Siblings", "check_shards", "survey"]

#: What TensorFlow leaves beside a checkpoint when a save is killed: ``PREFIX_temp/`` with
#: the parts, ``….tempstate123`` of a file being written (also in older versions).
_LEFTOVER = re.compile(r"_temp(_[0-9a-f]+)?|\..*tempstate[0-9]+", re.DOTALL)
#: Kinds (``formats/sniff.py``) that stand in the place of a file that was not fetched.
_STAND_INS = {"git-lfs", "git-annex", "html", "xml"}
#: Ranges may overlap (TensorFlow lets two variables share bytes), but not without end: a
#: small index could otherwise have a large file read a million times.
_READS_OF_ONE_FILE = 16


@dataclass(slots=True)
class Siblings:
    """The directory entries that bear the name of a checkpoint.

    Attributes:
        shards: by how many shards the name speaks of, then by number.
        leftovers: names that an interrupted save left.
    """

    shards: dict[int, dict[int, FileStat]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, the ranges claimed of it, and what the directory says of it.

    ``stat`` is None where there is no such file.
    """

    path: str
    name: str
    stat: FileStat | None
    extents: Extents

    @property
    def length(self) -> int:
        """Its bytes."""
        return self.stat.size if self.stat else 0

    def fits(self, position: int) -> bool:
        """Whether a range lies inside the file; an empty one lies anywhere."""
        size = self.extents.sizes[position]
        return not size or self.extents.offsets[position] + size <= self.length

    @property
    def readable(self) -> int:
        """Bytes of all ranges that lie inside the file."""
        extents = self.extents
        if extents.end <= self.length:
            return extents.nbytes
        return sum(extents.sizes[at] for at in range(len(extents)) if self.fits(at))


def survey(directory: Directory, base: str) -> Siblings:
    """Find what belongs to the checkpoint ``base``, in one pass over the directory."""
    siblings = Siblings()
    for stat in directory.scan():
        if not stat.name.startswith(base):
            continue
        part = split_part(stat.name)
        if part is not None and part.prefix == base:
            # Only the canonical spelling is ever opened: 00000, not 000000.
            if part.kind == "shard" and stat.name == shard_name(base, part.shard, part.shards):
                siblings.shards.setdefault(part.shards, {})[part.shard] = stat
        elif _LEFTOVER.fullmatch(stat.name, len(base)):
            siblings.leftovers.append(stat.name)
    siblings.leftovers.sort()
    return siblings


def check_shards(
    contents: Contents,
    siblings: Siblings,
    directory: Directory,
    base: str,
    report: Report,
    coverage: Coverage,
) -> list[DataFile]:
    """Check the data files that the index refers to, and those that it does not.

    Returns:
        Those that can be read, by number; what lies in the others is lost to ``coverage``.
    """
    count = contents.num_shards
    if count is None:  # the header is lost; the names of the files know it too
        known = sorted(siblings.shards)
        count = known[0] if len(known) == 1 else max(contents.shards, default=-1) + 1
    present = siblings.shards.get(count, {})
    readable = []
    missing: list[DataFile] = []
    for number, extents in sorted(contents.shards.items()):
        if number >= count:
            _out_of_range(number, count, extents, report, join(directory.path, base))
            coverage.lose(extents, range(len(extents)))
            continue
        name = shard_name(base, number, count)
        file = DataFile(join(directory.path, name), name, present.get(number), extents)
        if file.stat is None:
            missing.append(file)
        elif _is_readable(file, file.stat, directory, report):
            layout = extents.layout()
            _check_layout(file, layout, contents, report)
            if _is_bounded(file, layout, report):
                _find_cut_off(file, report, coverage)
                readable.append(file)
                continue
        coverage.lose(extents, range(len(extents)))
    _tell_missing(missing, report, join(directory.path, base))
    _check_others(contents, siblings, count, report, directory.path, base)
    return readable


def _out_of_range(number: int, count: int, extents: Extents, report: Report, prefix: str) -> None:
    others = f" (and {len(extents) - 1} more)" if len(extents) > 1 else ""
    report.add_unnamed(
        "shard-out-of-range",
        "error",
        (extents.ordinals[0],),
        lambda entries: (
            name_of(entries[0].key),
            f"it{others} should lie in data file number {number}, and there are {count} from 0",
        ),
    )
    report.skip(prefix, f"there is no data file {number}", len(extents), extents.nbytes)


def _tell_missing(missing: list[DataFile], report: Report, prefix: str) -> None:
    """Name the first of the data files that are not there, and count the others."""
    for file in missing[:MISSING_NAMED]:
        entries, nbytes = len(file.extents), file.extents.nbytes
        lost = f"it is not there, and holds {_held(entries, nbytes)}"
        report.add("shard-missing", "error", file.path, lost)
        report.skip(file.path, "missing", entries, nbytes)
    others = [file.extents for file in missing[MISSING_NAMED:]]
    if others:
        entries, nbytes = sum(map(len, others)), sum(extents.nbytes for extents in others)
        lost = f"{len(others)} more of its data files are not there: {_held(entries, nbytes)}"
        report.add("shard-missing", "error", prefix, lost)
        report.skip(prefix, f"{len(others)} more data files are missing", entries, nbytes)


def _held(entries: int, nbytes: int) -> str:
    return f"{entries} {'entry' if entries == 1 else 'entries'}, {nbytes} bytes"


def _is_readable(file: DataFile, stat: FileStat, directory: Directory, report: Report) -> bool:
    extents, why = file.extents, ""
    if stat.kind != "file":
        # What a link leads to is not damaged, only not ours to follow; a pipe holds no data.
        link = stat.kind == "link"
        why = "a symbolic link, which is not followed" if link else "no regular file"
        report.add_error(
            _refusal(file, directory), file.path, severity="warning" if link else "error"
        )
    elif file.length != extents.end and file.length <= HEAD_BYTES:
        stand_in = _stand_in(file, directory)
        if stand_in is not None:
            why = "only a stand-in is here"
            report.add_error(stand_in, file.path)
    if why:
        report.skip(file.path, why, len(extents), extents.nbytes)
    return not why


def _refusal(file: DataFile, directory: Directory) -> CkpttoolError:
    """Why the storage does not open what is no regular file."""
    try:
        directory.open(file.name).close()
    except CkpttoolError as error:
        return error
    return ChangedError(f"{file.path} was replaced meanwhile")


def _stand_in(file: DataFile, directory: Directory) -> CkpttoolError | None:
    """What is here in place of the file, where it is a pointer to it or a web page."""
    try:
        opened = directory.open(file.name)
    except CkpttoolError:
        return None  # reading it will say so, if it comes to that
    try:
        sniffed = sniff_file(opened)
    except CkpttoolError:
        return None
    finally:
        opened.close()
    return sniffed.error(file.path) if sniffed.kind in _STAND_INS else None


def _find_cut_off(file: DataFile, report: Report, coverage: Coverage) -> None:
    """The ranges that reach past the end of the file."""
    extents, length = file.extents, file.length
    if extents.end <= length:
        return
    cut = [position for position in range(len(extents)) if not file.fits(position)]
    report.add(
        "shard-short" if length else "shard-empty",
        "error",
        file.path,
        f"it has {length} bytes, and the index needs {extents.end}: {len(cut)} of its "
        f"{len(extents)} entries are cut off",
    )
    for position in cut:
        report.add_unnamed(
            "past-end", "error", (extents.ordinals[position],), partial(_cut_off, file.name, length)
        )
    coverage.lose(extents, cut)
    nbytes = sum(extents.sizes[position] for position in cut)
    report.skip(file.path, f"past its end at {length} bytes", len(cut), nbytes)


def _cut_off(shard: str, length: int, entries: list[Entry]) -> tuple[str, str]:
    entry = entries[0]
    return (
        name_of(entry.key),
        f"its {entry.size} bytes at offset {entry.offset} end past the {length} bytes of {shard}",
    )


def _check_layout(file: DataFile, layout: Layout, contents: Contents, report: Report) -> None:
    extents, path = file.extents, file.path
    if layout.first_aliased:
        describe = partial(_shares, "the same bytes as", layout.aliased, file.name)
        report.add_unnamed("extent-aliased", "note", layout.first_aliased, describe)
    if layout.first_overlapping:
        describe = partial(_shares, "some of the bytes of", layout.overlapping, file.name)
        report.add_unnamed("extent-overlap", "warning", layout.first_overlapping, describe)
    if not contents.whole or extents.end > file.length:
        return  # what nobody claims may be what the lost block claimed
    if layout.gaps:
        report.add(
            "unclaimed-bytes",
            "note",
            path,
            f"{layout.unclaimed} bytes in {layout.gaps} places belong to no variable",
        )
    if file.length > extents.end:
        report.add(
            "trailing-bytes",
            "note",
            path,
            f"{file.length - extents.end} bytes follow the last variable, which ends at "
            f"{extents.end}",
        )


def _shares(how: str, number: int, shard: str, entries: list[Entry]) -> tuple[str, str]:
    others = f" ({number - 1} more do so)" if number > 1 else ""
    first, second = (name_of(entry.key) for entry in entries)
    return second, f"it has {how} {first} in {shard}{others}"


def _is_bounded(file: DataFile, layout: Layout, report: Report) -> bool:
    """Whether checking the file means reading it a few times at most."""
    extents = file.extents
    claimed = file.readable - layout.aliased_bytes
    if claimed <= _READS_OF_ONE_FILE * max(file.length, 2**20):
        return True
    report.add(
        "extent-flood",
        "error",
        file.path,
        f"its {len(extents)} ranges overlap so much that they claim {claimed} bytes of "
        f"{file.length}",
    )
    report.skip(file.path, "its ranges overlap too much", len(extents), extents.nbytes)
    return False


def _check_others(
    contents: Contents, siblings: Siblings, count: int, report: Report, directory: str, base: str
) -> None:
    """Data files that no entry refers to, or that are of another checkpoint."""
    prefix = join(directory, base)
    present = siblings.shards.get(count, {})
    inside = sum(number < count for number in present)
    idle_missing = (
        count - inside - sum(number < count and number not in present for number in contents.shards)
    )
    if contents.num_shards is not None and idle_missing > 0:
        report.add(
            "shard-missing-unused",
            "warning",
            prefix,
            f"the header says that it has {count} data files, and {idle_missing} of them are "
            "not there; no variable lies in those",
        )
    extra = sorted(number for number in present if number >= count)
    for number in extra:
        path = join(directory, present[number].name)
        report.add("shard-extra", "warning", path, f"there are {count} data files, from 0")
    for other, files in sorted(siblings.shards.items()):
        if other != count:
            report.add(
                "shard-count-mixed",
                "warning",
                prefix,
                f"{len(files)} data files are of a checkpoint of {other} with the same prefix, "
                f"which has {count} now",
            )
    for name in siblings.leftovers:
        path = join(directory, name)
        report.add("save-leftover", "note", path, "an interrupted save left it here")
