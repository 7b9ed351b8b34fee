"""``verify``: is a checkpoint whole, and does every byte match its checksum.

An address → the checkpoint it names → findings. What is wrong with a checkpoint is part
of the answer; an error is raised only where there is no checkpoint that could be judged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckpttool.errors import CkpttoolError, IncompleteError
from ckpttool.limits import Limits, default_limits
from ckpttool.model import Finding
from ckpttool.ops.verification.bundle import BundleReport, Level, check_bundle
from ckpttool.ops.verification.deep import Progress
from ckpttool.ops.verification.report import NotChecked
from ckpttool.sources.address import Address, resolve
from ckpttool.storage import open_directory

if TYPE_CHECKING:
    from ckpttool.sources.base import NameStyle

__all__ = ["Checked", "NotChecked", "Unjudged", "VerifyResult", "verify", "verify_all"]


#: What ``ops/verification/bundle.py`` checks; all else by its source.
_BUNDLES = {"checkpoint", "run", "savedmodel"}


@dataclass(frozen=True, slots=True)
class Checked:
    """What was checked.

    Attributes:
        variables: deep: those of which every byte was compared; quick: those whose entries
            were looked at.
        nbytes: bytes that were compared with a checksum.
    """

    variables: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The answer for one checkpoint.

    Attributes:
        address: as it was given.
        location: the checkpoint's prefix.
        level: ``deep`` or ``quick``.
        healthy: deep: every claimed byte was read and matched its checksum, and nothing
            else is wrong. Quick: nothing is wrong with what was looked at.
        damaged: something is wrong: there is a finding of severity ``error``.
        checked: how much was checked.
        findings: errors first, then warnings, then notes.
        not_checked: what was not, or could not be, compared with a checksum.
        notes: how the address was understood.
        names: object of a finding → what it is called, where that is not its key.
    """

    address: str
    location: str
    level: Level
    healthy: bool
    damaged: bool
    checked: Checked
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    notes: tuple[str, ...]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """One of several addresses: it names nothing that could be judged, and ``error`` why."""

    address: str
    error: CkpttoolError
    notes: tuple[str, ...] = ()


def verify(
    address: Address,
    *,
    level: Level = "deep",
    jobs: int | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
    names: NameStyle = "full",
) -> VerifyResult:
    """Check one source; it is only read.

    Args:
        address: whatever has variables; a ``str``, ``bytes`` or a path object.
        level: ``deep`` compares every byte with its checksum; ``quick`` looks at the
            structure only.
        jobs: threads that read; None: as many as pay.
        limits: bounds on what the files may claim; None: those of this process.
        progress: called with bytes done and bytes in all.
        names: what variables are called in the answer (``VerifyResult.names``).

    Raises:
        UsageError, NotFoundError, ForeignFormatError: there is no checkpoint of ours.
        UnsupportedError, LimitError, UnsafeError: there is one that cannot be judged.
        IncompleteError: ``RUN/@latest`` is not whole, or a SavedModel has no variables.
        StorageError, PermissionDeniedError: its directory or index cannot be read.
    """
    address = os.fsdecode(address)
    limits = limits or default_limits()
    try:
        resolved = resolve(address, limits)
    except IncompleteError as error:
        if error.id != "index-missing":
            raise
        return _without_index(address, level, error)
    if resolved.version == "v1" or resolved.kind not in _BUNDLES:
        from ckpttool.ops.verification.source import check_source

        report = check_source(resolved, level=level, limits=limits, progress=progress, names=names)
        return _result(address, resolved.location, level, report, resolved.notes)
    with open_directory(resolved.directory) as directory:
        report = check_bundle(
            directory,
            resolved.prefix,
            level=level,
            jobs=jobs,
            limits=limits,
            progress=progress,
            names=names,
        )
    return _result(address, resolved.location, level, report, resolved.notes)


def verify_all(
    addresses: Sequence[str],
    *,
    level: Level = "deep",
    jobs: int | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
    names: NameStyle = "full",
) -> list[VerifyResult | Unjudged]:
    """Check several checkpoints, each as `verify`; one that cannot be judged stops no other.

    Raises:
        CkpttoolError: none of them could be judged; what the first raised.
    """
    results: list[VerifyResult | Unjudged] = []
    for address in addresses:
        try:
            results.append(
                verify(
                    address,
                    level=level,
                    jobs=jobs,
                    limits=limits,
                    progress=progress,
                    names=names,
                )
            )
        except CkpttoolError as error:
            results.append(Unjudged(address, error))
    first = results[0]
    if isinstance(first, Unjudged) and all(isinstance(result, Unjudged) for result in results):
        raise first.error
    return results


def _result(
    address: str, location: str, level: Level, report: BundleReport, notes: Sequence[str]
) -> VerifyResult:
    # Quick never compares bytes, and says so; that alone does not make it less healthy.
    complete = level == "quick" or not report.not_checked
    return VerifyResult(
        address,
        location,
        level,
        complete and not report.damaged,
        report.damaged,
        Checked(report.variables, report.nbytes),
        report.findings,
        report.not_checked,
        tuple(notes),
        report.names,
    )


def _without_index(address: str, level: Level, error: IncompleteError) -> VerifyResult:
    """The answer where files of a checkpoint are there, and not the index."""
    found = Finding(error.id, "error", address, str(error))
    skipped = NotChecked(address, "without the index nothing says what the files hold", 0, 0)
    report = BundleReport(0, 0, damaged=True, findings=(found,), not_checked=(skipped,), names={})
    return _result(address, address, level, report, ())
