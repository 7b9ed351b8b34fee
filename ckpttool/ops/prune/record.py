"""A prune plan as a file: what ``--plan`` saves and ``--apply`` carries out.

The file holds the settings and, file by file, what is to go. Applying plans anew with the
settings, so a plan that was tampered with can take nothing that the settings would not.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any

from ckpttool.errors import CorruptError, LimitError, UsageError
from ckpttool.formats.state import CheckpointState
from ckpttool.ops.prune.facts import Request
from ckpttool.ops.prune.plan import PrunePlan, StateChange
from ckpttool.ops.prune.removal import decode_json, encode_json, removals_from, removals_to
from ckpttool.policy.facts import Outcome, Retention
from ckpttool.policy.settings import check_numbers
from ckpttool.storage import open_directory
from ckpttool.storage.base import FileStat

__all__ = ["load_plan", "save_plan"]

_SCHEMA = "ckpttool.prune-plan/1"
_BYTES = 2**30


def save_plan(plan: PrunePlan, path: str, *, overwrite: bool = False) -> None:
    """Write a plan to a file.

    Raises:
        RefusedError: id ``exists``. NoSpaceError, PermissionDeniedError, StorageError.
    """
    settings = asdict(replace(plan.request.retention, best=()))
    del settings["best"]
    seen = plan.state.seen if plan.state else None
    record: dict[str, object] = {
        "schema": _SCHEMA,
        "directory": os.path.abspath(plan.directory),
        "identity": list(plan.identity),
        "retention": settings,
        "state_name": plan.request.state_name,
        "pins": list(plan.request.pins),
        "best": [_absolute(text) for text in plan.request.best],
        "removals": removals_to(plan.removals),
        "state": None
        if seen is None
        else [seen.name, seen.size, seen.mtime_ns, seen.inode, seen.device],
    }
    folder, name = os.path.split(path)
    with open_directory(folder) as directory, directory.create(name, overwrite=overwrite) as file:
        file.write(encode_json(record))
        file.commit()


def load_plan(path: str, run: str) -> PrunePlan:
    """Read back the plan of a run; it holds no reasons, which applying it finds anew.

    ``run`` is the directory to apply it to: that it is the one that was planned is checked
    by its identity when the plan is applied, not by its path.

    Raises:
        CorruptError: id ``record-corrupt``. LimitError: over a gigabyte. NotFoundError.
    """
    folder, name = os.path.split(path)
    with open_directory(folder) as directory:
        file = directory.open(name)
        try:
            if file.stat.size > _BYTES:
                raise LimitError(f"{path} is too large for a plan", why=f"{file.stat.size} bytes")
            record = decode_json(file.pread(0, file.stat.size), path, _SCHEMA)
        finally:
            file.close()
    removals = removals_from(record.get("removals"), path)
    try:
        device, inode = record["identity"]
        return PrunePlan(
            run,
            (int(device), int(inode)),
            Request(
                _retention(record["retention"]),
                tuple(map(str, record["pins"])),
                tuple(map(str, record["best"])),
                str(record["state_name"]),
            ),
            Outcome((), (), "state", frozenset(), frozenset(), 0.0),
            removals,
            (),
            _state(record["state"]),
            0,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptError(
            f"{path} cannot be used",
            why=f"a member is missing or odd: {error}",
            id="record-corrupt",
        ) from None


def _absolute(best: str) -> str:
    """The metrics file's path must mean the same wherever the plan is applied."""
    from ckpttool.ops.prune.metrics import parse_best

    path, metric, mode, count = parse_best(best)
    there = os.path.abspath(path) if os.path.exists(path) else path
    return f"{there}:{metric}:{mode}:{count}"


#: The settings of a plan, and what each may be besides null where it may be null.
_TYPES: dict[str, tuple[type, ...]] = {
    "style": (str,),
    "scope": (str,),
    "max_to_keep": (int,),
    "every_n_hours": (float, int),
    "since": (float, int),
    "every_n_steps": (int,),
    "within": (float, int),
    "max_total_bytes": (int,),
    "broken": (bool,),
    "include_preserved": (bool,),
    "min_age": (float, int),
    "order": (str,),
}


def _retention(settings: dict[str, Any]) -> Retention:
    default = Retention()
    for name, value in settings.items():
        nullable = getattr(default, name) is None
        if not (nullable and value is None) and not isinstance(value, _TYPES[name]):
            raise TypeError(name)
    words = (settings["style"], settings["scope"], settings["order"] or "state")
    allowed = ({"manager", "saver"}, {"listed", "all"}, {"state", "name", "step", "time"})
    for word, choices in zip(words, allowed, strict=True):
        if word not in choices:
            raise ValueError(word)
    retention = Retention(**settings)
    try:
        check_numbers(retention)
    except UsageError as error:
        raise ValueError(error.what) from None
    return retention


def _state(seen: list[Any] | None) -> StateChange | None:
    if seen is None:
        return None
    name, size, mtime, inode, device = seen
    stat = FileStat(str(name), "file", int(size), int(mtime), int(inode), int(device))
    return StateChange(stat, b"", CheckpointState())
