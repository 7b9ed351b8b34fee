"""``run/@*``: every whole checkpoint of a run, in the order of their steps.

An address of several sources, for commands that follow something along a run; `resolve`
refuses it for all others. Like every form of an address it gives way to what literally
exists. The rest of an address is never a pattern.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import NotFoundError, UsageError
from ckpttool.limits import Limits
from ckpttool.sources.filenames import index_name, join, split_number
from ckpttool.sources.run import read_run
from ckpttool.sources.state_paths import Version, version_at
from ckpttool.sources.step import step_inside
from ckpttool.sources.whole import flaws
from ckpttool.storage import open_directory, stat_path

__all__ = ["Member", "Series", "run_of_series", "series_of", "several"]

_ALL = "@*"
#: Checkpoints that an error names.
_NAMED = 3


class Member(NamedTuple):
    """A checkpoint of a series: its address, and the step inside it, else in its name."""

    address: str
    step: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """The checkpoints that an address stands for.

    Attributes:
        address: as it was given.
        directory: the run.
        members: by step; those that have none come first, by age.
        passed_over: prefix and reason of those that are not whole.
    """

    address: str
    directory: str
    members: tuple[Member, ...]
    passed_over: tuple[tuple[str, str], ...]


def series_of(address: str, limits: Limits) -> Series | None:
    """The series that an address names; None where it names one source, or nothing.

    Reads the index of every checkpoint of the run, and of the data only the steps.

    Raises:
        NotFoundError: there is no such directory, or no checkpoint in it; id
            ``no-whole-checkpoint``: none is whole.
        CkpttoolError: something else is there.
        LimitError, StorageError, PermissionDeniedError: as ``read_run``.
    """
    folder = run_of_series(address)
    if folder is None:
        return None
    if (above := stat_path(folder)) is None or above.kind != "directory":
        from ckpttool.sources.absent import no_folder

        raise no_folder(address, folder)
    with open_directory(folder) as directory:
        run = read_run(directory, limits)
        members: list[Member] = []
        passed_over: list[tuple[str, str]] = []
        saved: list[tuple[str, Version]] = [(item.prefix, "v2") for item in run.checkpoints]
        saved += [(name, "v1") for name in run.v1 if version_at(directory, name) == "v1"]
        for prefix, version in saved:
            path = join(directory.path, prefix)
            if wrong := flaws(directory, prefix, limits, version):
                passed_over.append((path, str(wrong[0])))
                continue
            step = step_inside(directory, prefix, limits, version)
            members.append(Member(path, split_number(prefix)[1] if step is None else step))
        if not members:
            from ckpttool.sources.absent import no_checkpoint

            raise (
                _none_whole(directory.path, passed_over)
                if passed_over
                else no_checkpoint(directory, directory.path)
            )
    members.sort(key=lambda member: -1 if member.step is None else member.step)
    return Series(address, directory.path, tuple(members), tuple(passed_over))


def run_of_series(address: str) -> str | None:
    """The directory that `series_of` looks into, which may not be there; else None."""
    folder, base = os.path.split(address)
    if base != _ALL or _exists(address):
        return None
    return folder or "."


def several(address: str) -> UsageError:
    """The error of a series where one source is wanted."""
    latest = shlex.quote(f"{address.removesuffix('*')}latest")
    return UsageError(
        f"{address} is every checkpoint of a run, and one is wanted here",
        why="only stats and average take all of a run",
        hint=f"name one of them, for example {latest}",
        id="address-of-series",
    )


def _exists(address: str) -> bool:
    return stat_path(address) is not None or stat_path(index_name(address)) is not None


def _none_whole(path: str, passed_over: list[tuple[str, str]]) -> NotFoundError:
    named = "; ".join(f"{prefix}: {why}" for prefix, why in passed_over[:_NAMED])
    return NotFoundError(
        f"no checkpoint in {path} is whole",
        why=f"{len(passed_over)} were looked at: {named}",
        hint=f"ckpttool inspect {shlex.quote(path)}",
        id="no-whole-checkpoint",
    )
