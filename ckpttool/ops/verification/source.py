"""Any source that is no V2 checkpoint, checked from its directory to its last byte.

Opening it checks the structure; then every byte of every variable is read, and with it
every checksum that the format has. A format without checksums is never called healthy: what
could not be compared with anything is said. Knows no format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.errors import (
    ChangedError,
    CkpttoolError,
    CorruptError,
    IncompleteError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ckpttool.limits import Limits
from ckpttool.model import Variable
from ckpttool.ops.verification.bundle import BundleReport, Level
from ckpttool.ops.verification.deep import Progress
from ckpttool.ops.verification.report import NO_CHECKSUMS, Report
from ckpttool.sources.registry import open_resolved
from ckpttool.sources.selection import Selection

if TYPE_CHECKING:
    from ckpttool.sources.address import Resolved
    from ckpttool.sources.base import NameStyle, Source

__all__ = ["check_source"]


def check_source(
    resolved: Resolved,
    *,
    level: Level,
    limits: Limits,
    progress: Progress | None,
    names: NameStyle = "full",
) -> BundleReport:
    """Check what an address came to, by the adapter of its kind.

    Where another program changed it meanwhile, all is checked once more.

    Args:
        resolved: what is no V2 checkpoint.
        level: with (``deep``) or without (``quick``) the bytes of the variables.
        limits: bounds on what its files may claim.
        progress: told of bytes done and of all bytes.
        names: what variables are called.

    Raises:
        LimitError, UnsupportedError, UnsafeError, StorageError, PermissionDeniedError: it
            cannot be judged.
    """
    try:
        return _Check(resolved, level, limits, progress, names).run()
    except ChangedError:
        check = _Check(resolved, level, limits, progress, names)
    try:
        return check.run()
    except ChangedError as error:
        check.report.add_error(error, resolved.location)
        return check.result()


#: No damage: the graph of a checkpoint is whole without its values.
_WITHOUT_VALUES = "graph-without-values"


class _Check:
    """One pass over one source."""

    def __init__(
        self,
        resolved: Resolved,
        level: Level,
        limits: Limits,
        progress: Progress | None,
        names: NameStyle,
    ) -> None:
        self.report = Report()
        self._resolved = resolved
        self._level = level
        self._limits = limits
        self._progress = progress
        self._style: NameStyle = names
        self._names: dict[str, str] = {}
        self._variables = self._nbytes = 0
        self._done = self._total = 0
        #: What could not be compared, by the reason: variables and bytes.
        self._skipped: dict[str, Counter[str]] = {}

    def run(self) -> BundleReport:
        """Check; raises `ChangedError` where another program wrote to it meanwhile."""
        location = self._resolved.location
        try:
            source = open_resolved(self._resolved, self._limits)
        except (CorruptError, IncompleteError) as error:
            self.report.add_error(error, location)
            self.report.skip(location, "what it holds cannot be told")
            return self.result()
        with source:
            for finding in source.findings():
                self.report.add(*finding)
            variables = list(source.variables())
            self._total = sum(variable.nbytes for variable in variables)
            if not variables:
                self.report.add("no-variables", "warning", location, "it lists no variable")
            if self._level == "deep":
                self._deep(source, variables)
            else:
                self._variables = len(variables)
                why = "the bytes of its variables were not read (quick)"
                if variables:
                    self.report.skip(location, why, len(variables), self._total)
            objects = self.report.objects
            for variable in variables:
                if variable.key in objects:
                    self._names[variable.key] = source.name_of(variable, self._style)
        for why, counts in self._skipped.items():
            self.report.skip(location, why, counts["variables"], counts["bytes"])
        return self.result()

    def result(self) -> BundleReport:
        """What was found."""
        names = {key: name for key, name in self._names.items() if name != key}
        report = self.report
        return BundleReport(
            self._variables,
            self._nbytes,
            report.damaged,
            report.findings,
            report.not_checked,
            names,
        )

    def _deep(self, source: Source, variables: list[Variable]) -> None:
        for name, pieces in source.sums():
            self._read_through(name, map(len, pieces))
        for variable in variables:
            read = self._read_through(variable.key, _bytes_of(source, variable))
            if read is None:
                continue
            if source.checksummed(variable):
                self._variables += 1
                self._nbytes += variable.nbytes
            else:
                self._skip(NO_CHECKSUMS, variable.nbytes)
            self._done += variable.nbytes
            if self._progress is not None:
                self._progress(self._done, self._total)

    def _read_through(self, name: str, read: Iterator[int]) -> int | None:
        """Bytes that were read; None, with a finding, where not all could be."""
        try:
            return sum(read)
        except (CorruptError, IncompleteError) as error:
            if error.id == _WITHOUT_VALUES:
                self._skip("a graph says which variables there are, and holds no values", 0)
            else:
                self.report.add_error(error, name)
        except (LimitError, UnsupportedError, UnsafeError) as error:
            self.report.skip(name, _reason(error), 1)
        return None

    def _skip(self, why: str, nbytes: int) -> None:
        counts = self._skipped.setdefault(why, Counter())
        counts["variables"] += 1
        counts["bytes"] += nbytes


def _bytes_of(source: Source, variable: Variable) -> Iterator[int]:
    """The sizes of the pieces of a variable, read and checked."""
    selection = Selection.whole(variable.shape or ())
    if variable.dtype == "string":
        yield sum(map(len, source.strings(variable, selection, check=True)))
        return
    yield from map(len, source.chunks(variable, selection, check=True))


def _reason(error: CkpttoolError) -> str:
    return error.why or error.what
