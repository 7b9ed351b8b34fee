"""What `verify` has found so far: findings, and what could not be checked.

Bounded: a checkpoint with a million bad entries gives a thousand findings of that id
and one more that says how many were left out. Findings about entries that were met by
their number only are named at the end, in one more walk of the index. Opens no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ckpttool.errors import CkpttoolError
from ckpttool.formats.bundle import Entry
from ckpttool.model import Finding, Severity

__all__ = ["KEPT_PER_ID", "NO_CHECKSUMS", "NotChecked", "Report"]

#: Why a variable was read, and not checked.
NO_CHECKSUMS = "its format stores no checksums, so a changed value would not show"

#: Findings kept of one id; the rest is counted.
KEPT_PER_ID = 1000

_RANK = {"error": 0, "warning": 1, "note": 2}

#: Entries of some ordinals → the object and the message of a finding.
Describe = Callable[[list[Entry]], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Something whose bytes were not, or could not be, compared with a checksum.

    Attributes:
        object: the variable, shard or index.
        why: the reason, in a few words.
        variables: how many variables (or parts of them) that concerns; 0 where unknown.
        nbytes: how many claimed bytes; 0 where unknown.
    """

    object: str
    why: str
    variables: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Unnamed:
    """A finding whose entries are known by their ordinals only."""

    id: str
    severity: Severity
    ordinals: tuple[int, ...]
    describe: Describe


class Report:
    """Collects findings in the order in which they turn up."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._unnamed: list[_Unnamed] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._not_checked: list[NotChecked] = []

    def add(self, id: str, severity: Severity, object: str, message: str) -> None:
        """Note a finding; past `KEPT_PER_ID` of an id it is only counted."""
        if self._count(id, severity):
            self._findings.append(Finding(id, severity, object, message))

    def add_error(self, error: CkpttoolError, object: str, severity: Severity = "error") -> None:
        """Note an error that a reader raised, as a finding with the error's own id."""
        message = str(error)
        if message.startswith(f"{object} "):  # the finding names it already
            message = f"it{message.removeprefix(object)}"
        self.add(error.id, severity, object, message)

    def add_unnamed(
        self, id: str, severity: Severity, ordinals: tuple[int, ...], describe: Describe
    ) -> None:
        """Note a finding about entries whose names are looked up at the end."""
        if self._count(id, severity):
            self._unnamed.append(_Unnamed(id, severity, ordinals, describe))

    def name(self, lookup: Callable[[set[int]], Mapping[int, Entry]]) -> None:
        """Turn the unnamed findings into named ones.

        Args:
            lookup: finds the entries of some ordinals; those it does not find (an index
                that changed meanwhile) stay out of the report.
        """
        if not self._unnamed:
            return
        entries = lookup({ordinal for finding in self._unnamed for ordinal in finding.ordinals})
        for finding in self._unnamed:
            found = [entries[ordinal] for ordinal in finding.ordinals if ordinal in entries]
            if len(found) == len(finding.ordinals):
                named = finding.describe(found)
                self._findings.append(Finding(finding.id, finding.severity, *named))
        self._unnamed.clear()

    def skip(self, object: str, why: str, variables: int = 0, nbytes: int = 0) -> None:
        """Note that something was not checked."""
        if len(self._not_checked) < KEPT_PER_ID:
            self._not_checked.append(NotChecked(object, why, variables, nbytes))
            return
        last = self._not_checked[-1]
        self._not_checked[-1] = NotChecked(
            "…",
            "more than could be listed",
            last.variables + variables,
            last.nbytes + nbytes,
        )

    @property
    def damaged(self) -> bool:
        """Whether any finding is an error."""
        return any(severity == "error" for _, severity in self._counts)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Errors first, then warnings, then notes; inside each, as they turned up."""
        left_out = [
            Finding(*key, "…", f"{count - KEPT_PER_ID} more like these were not listed")
            for key, count in self._counts.items()
            if count > KEPT_PER_ID
        ]
        return tuple(sorted(self._findings + left_out, key=lambda found: _RANK[found.severity]))

    @property
    def objects(self) -> set[str]:
        """What the findings, and what was not checked, are about."""
        found = {finding.object for finding in self._findings}
        return found | {skipped.object for skipped in self._not_checked}

    @property
    def not_checked(self) -> tuple[NotChecked, ...]:
        """What was not checked."""
        return tuple(self._not_checked)

    def _count(self, id: str, severity: Severity) -> bool:
        self._counts[id, severity] += 1
        return self._counts[id, severity] <= KEPT_PER_ID
