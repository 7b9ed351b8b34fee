"""One V2 checkpoint, checked from its index to its last byte.

Puts the steps together: the index, the data files beside it, partitioned variables, the
object graph, and (deep) every checksum. Each step reports what it finds and the next one
goes on with what is left. Knows a directory and a prefix, nothing of addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ckpttool.errors import CorruptError, IncompleteError, NotFoundError
from ckpttool.formats.sniff import sniff_file
from ckpttool.limits import Limits
from ckpttool.model import Finding
from ckpttool.ops.verification.contents import Contents
from ckpttool.ops.verification.coverage import Coverage
from ckpttool.ops.verification.deep import Progress, check_bytes
from ckpttool.ops.verification.graph import check_graph, listed_names
from ckpttool.ops.verification.parts import check_parts
from ckpttool.ops.verification.report import NotChecked, Report
from ckpttool.ops.verification.shards import check_shards, survey
from ckpttool.sources.filenames import index_name, join
from ckpttool.sources.settling import changes_soon
from ckpttool.storage import Directory, ReadableFile

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = ["BundleReport", "Level", "check_bundle"]

Level = Literal["deep", "quick"]


@dataclass(frozen=True, slots=True)
class BundleReport:
    """What was found.

    Attributes:
        variables: how many were checked.
        nbytes: how many bytes were.
        damaged: whether a finding is an error.
        findings: errors first.
        not_checked: what was not checked.
        names: object of a finding → what it is called, where that is not its key.
    """

    variables: int
    nbytes: int
    damaged: bool
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    names: Mapping[str, str]


def check_bundle(
    directory: Directory,
    base: str,
    *,
    level: Level,
    jobs: int | None,
    limits: Limits,
    progress: Progress | None,
    names: NameStyle = "full",
) -> BundleReport:
    """Check the checkpoint ``base`` in ``directory``.

    Where the index changed meanwhile and damage was found, all is checked once more: a
    trainer may have put a new checkpoint in the place of the one that was being read.

    Args:
        directory: where its files lie; it stays the caller's.
        base: its prefix there.
        level: with (``deep``) or without (``quick``) the bytes of the variables.
        jobs: threads that read; None: as many as pay.
        limits: bounds on what its files may claim.
        progress: told of bytes done and of all bytes.
        names: what variables are called.

    Raises:
        ForeignFormatError: the index is a file of another kind.
        LimitError, UnsupportedError, UnsafeError, StorageError, PermissionDeniedError: the
            index cannot be judged.
    """

    def new_check() -> _Check:
        return _Check(
            directory,
            base,
            level=level,
            jobs=jobs,
            limits=limits,
            progress=progress,
            names=names,
        )

    check = new_check()
    changed = check.run()
    if changed and check.report.damaged:
        check = new_check()
        changed = check.run()
    if changed:
        damaged = check.report.damaged
        check.report.add(
            "changed-while-reading",
            "error" if damaged else "warning",
            join(directory.path, index_name(base)),
            "another program changed or replaced it while the checkpoint was read"
            + ("" if damaged else "; what was read matched"),
        )
    report, coverage = check.report, check.coverage
    return BundleReport(
        coverage.variables if coverage else 0,
        coverage.nbytes if coverage else 0,
        report.damaged,
        report.findings,
        report.not_checked,
        check.names,
    )


class _Check:
    """One pass over one checkpoint."""

    def __init__(
        self,
        directory: Directory,
        base: str,
        *,
        level: Level,
        jobs: int | None,
        limits: Limits,
        progress: Progress | None,
        names: NameStyle,
    ) -> None:
        self.report = Report()
        self.coverage: Coverage | None = None
        self.names: Mapping[str, str] = {}
        self._directory = directory
        self._base = base
        self._level = level
        self._jobs = jobs
        self._limits = limits
        self._progress = progress
        self._style: NameStyle = names

    def run(self) -> bool:
        """Check; tells whether the index was changed meanwhile."""
        path = join(self._directory.path, index_name(self._base))
        try:
            file = self._directory.open(index_name(self._base))
        except NotFoundError:
            self.report.add(
                "index-missing", "error", path, "it is not there, and says what the others hold"
            )
            self._without_index(path)
            return False
        try:
            self._check(file)
            return changes_soon([file]) if self.report.damaged else file.changed()
        finally:
            file.close()

    def _check(self, file: ReadableFile) -> None:
        deep = self._level == "deep"
        try:
            contents = Contents(file, self._limits, self.report, deep=deep)
        except (CorruptError, IncompleteError) as error:
            sniffed = sniff_file(file)
            if sniffed.named and not sniffed.ours:
                raise sniffed.error(file.path) from None
            self.report.add_error(error, file.path)
            self._without_index(file.path)
            return
        contents.scan()
        if not contents.whole:
            self.report.skip(file.path, "entries of the damaged part of the index")
        self.coverage = coverage = Coverage(contents, check_parts(contents, self.report))
        siblings = survey(self._directory, self._base)
        files = check_shards(contents, siblings, self._directory, self._base, self.report, coverage)
        check_graph(contents, files, self._directory, self._limits, self.report)
        if deep:
            check_bytes(
                files,
                self._directory,
                big_endian=contents.big_endian,
                jobs=self._jobs,
                progress=self._progress,
                report=self.report,
                coverage=coverage,
            )
        elif files:
            self.report.skip(
                join(self._directory.path, self._base),
                "the bytes of its variables were not read (quick)",
                coverage.variables,
                sum(file.readable for file in files),
            )
        self.report.name(contents.lookup)
        if objects := self.report.objects:
            self.names = listed_names(
                objects, contents, files, self._directory, self._limits, self._style
            )
        if not coverage.listed and contents.whole:
            self.report.add("no-variables", "warning", file.path, "it lists no variable")

    def _without_index(self, path: str) -> None:
        """What can be said of data files alone."""
        siblings = survey(self._directory, self._base)
        files = [stat for shards in siblings.shards.values() for stat in shards.values()]
        self.report.skip(
            path,
            "without the index nothing says what the data files hold",
            nbytes=sum(stat.size for stat in files),
        )
