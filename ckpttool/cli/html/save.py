"""Writes a report to a file, which appears whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ckpttool.cli.html.page import page
from ckpttool.ops.inspect import InspectResult
from ckpttool.ops.output_file import output_place, require_no_source
from ckpttool.ops.report import make_report

__all__ = ["SavedReport", "save_report"]


class SavedReport(NamedTuple):
    """A report that was written, and what it is about."""

    path: str
    nbytes: int
    inspected: InspectResult


def save_report(
    address: str,
    path: str,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SavedReport:
    """Make the report of a source and write it.

    Raises:
        NotFoundError, UsageError: as ``output_place``.
        RefusedError: id ``exists``: before anything is read; id ``output-is-source``.
        CkpttoolError: as ``make_report``, or from writing.
    """
    with (
        output_place(path) as (directory, name),
        directory.create(name, overwrite=overwrite) as file,
    ):
        report = make_report(address, progress=progress)
        if report.inspected.checkpoint is not None:
            of = report.inspected.checkpoint
            require_no_source(path, of.prefix, of.shards)
        nbytes = 0
        for piece in page(report):
            data = piece.encode()
            file.write(data)
            nbytes += len(data)
        file.commit()
    return SavedReport(path, nbytes, report.inspected)
