"""A plan of a writing command as a file: made now, looked at, carried out later.

It holds the command line, the files that were read as they were then, and what was going to
be done. Before it is carried out all of that has to be so still.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ckpttool.errors import ChangedError, CorruptError, LimitError, NotFoundError
from ckpttool.ops.rewrite.tensors import Input
from ckpttool.storage import open_directory, stat_path

__all__ = [
    "SavedPlan",
    "load_plan",
    "require_directory",
    "require_inputs",
    "require_kept",
    "require_unchanged",
    "save_plan",
    "stale",
]

_SCHEMA = "ckpttool.plan/1"
_BYTES = 1 * 2**30


class SavedPlan(NamedTuple):
    """What a plan file says.

    Attributes:
        command: which command made it.
        arguments: its command line, without the plan's own options.
        directory: the working directory that relative paths are meant from.
        inputs: the files that were read.
        result: the ``data`` of the dry run.
    """

    command: str
    arguments: tuple[str, ...]
    directory: str
    inputs: tuple[Input, ...]
    result: Mapping[str, object]


def save_plan(path: str, plan: SavedPlan, *, overwrite: bool) -> None:
    """Write a plan file, whole or not at all.

    Raises:
        RefusedError: id ``exists``.
        CkpttoolError: as the storage says.
    """
    document = {
        "schema": _SCHEMA,
        "command": plan.command,
        "arguments": list(plan.arguments),
        "directory": plan.directory,
        "inputs": [list(one) for one in plan.inputs],
        "result": plan.result,
    }
    folder, name = os.path.split(path)
    with (
        open_directory(folder or ".") as directory,
        directory.create(name, overwrite=overwrite) as file,
    ):
        file.write(json.dumps(document, indent=1).encode() + b"\n")
        file.commit()


def load_plan(path: str, command: str) -> SavedPlan:
    """Read a plan file that ``command`` made.

    Raises:
        NotFoundError, UnsafeError: there is no such file.
        CorruptError: id ``plan-unreadable``: it is no plan of this command.
    """
    folder, name = os.path.split(path)
    with open_directory(folder or ".") as directory:
        file = directory.open(name)
        try:
            if file.stat.size > _BYTES:
                raise LimitError(
                    f"{path} is too large for a plan",
                    why=f"it has {file.stat.size} bytes, over {_BYTES}",
                )
            data = file.pread(0, file.stat.size)
        finally:
            file.close()
    try:
        document = json.loads(data)
        plan = SavedPlan(
            str(document["command"]),
            tuple(map(str, document["arguments"])),
            str(document["directory"]),
            tuple(
                Input(str(where), int(size), int(time), int(inode))
                for where, size, time, inode in document["inputs"]
            ),
            dict(document["result"]),
        )
        if document["schema"] != _SCHEMA or plan.command != command:
            raise ValueError(f"it is {document['schema']} of ckpttool {plan.command}")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptError(
            f"{path} is no plan of ckpttool {command}",
            why=str(error) or type(error).__name__,
            hint=f"make one with ckpttool {command} … --plan FILE",
            id="plan-unreadable",
        ) from None
    return plan


def require_unchanged(plan: SavedPlan, now: Mapping[str, object], inputs: Sequence[Input]) -> None:
    """Check that the same would be done to the same files.

    Args:
        plan: as it was saved.
        now: the ``data`` of a dry run made now.
        inputs: the files that this one read.

    Raises:
        ChangedError: id ``plan-stale``.
    """
    require_inputs(plan.inputs, inputs)
    if json.loads(json.dumps(now)) != plan.result:
        raise stale("the same command would now do something else")


def require_inputs(before: Sequence[Input], now: Sequence[Input]) -> None:
    """Check that what a plan read is what is there now.

    Raises:
        ChangedError: id ``plan-stale``.
    """
    changed = sorted({one.path for one in set(before) ^ set(now)})
    if changed:
        raise stale(f"{changed[0]} has been changed, replaced or removed since")


def require_kept(inputs: Sequence[Input]) -> None:
    """Check that every file that a plan read is still there, and is the same.

    Before it is planned again: what is gone would be told as a failure of that.

    Raises:
        ChangedError: id ``plan-stale``.
    """
    found = ((one.path, stat_path(one.path)) for one in inputs)
    require_inputs(inputs, [Input.of(path, there) for path, there in found if there is not None])


def require_directory(directory: str) -> None:
    """Check that relative paths of a plan mean what they meant.

    Args:
        directory: the working directory in which it was made.

    Raises:
        NotFoundError: the directory is gone.
        ChangedError: id ``plan-stale``: this is another working directory.
    """
    there, here = stat_path(directory), stat_path(".")
    if there is None:
        raise NotFoundError(f"{directory} is gone", why="the plan was made in it")
    assert here is not None, "there is a working directory"
    if (there.device, there.inode) != (here.device, here.inode):
        raise ChangedError(
            "the plan was made in another directory",
            why=f"its relative paths are meant from {directory}",
            hint=f"cd {directory} first",
            id="plan-stale",
        )


def stale(why: str) -> ChangedError:
    """The error of a plan that no longer holds."""
    return ChangedError(
        "the plan no longer holds",
        why=why,
        hint="look at the files, and make a new plan",
        id="plan-stale",
    )
