"""Pins: checkpoints that a person said must stay, on the command line or in the directory.

``.ckptpins`` has a name or pattern a line; ``#`` starts a comment. A pattern (``*``, ``?``,
``[…]``) is matched against names that are known, never against a file system; what is
literally the name of a checkpoint stands for that one, whatever characters it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from ckpttool.errors import LimitError
from ckpttool.sources.filenames import split_part
from ckpttool.storage import stat_path
from ckpttool.storage.local import LocalDirectory

__all__ = ["PINS_NAME", "match_pins", "read_pins"]

PINS_NAME = ".ckptpins"
#: A comment: at the start of a line, or behind a space.
_COMMENT = re.compile(r"(?:^|\s)#.*")
_BYTES = 2**20


def read_pins(directory: LocalDirectory) -> list[str]:
    """The pins in the directory's file; none where there is no such file.

    Raises:
        LimitError: the file is larger than a megabyte.
        UnsafeError, PermissionDeniedError: it cannot be read as a plain file.
    """
    if directory.stat(PINS_NAME) is None:
        return []
    file = directory.open(PINS_NAME)
    try:
        size = file.stat.size
        if size > _BYTES:
            raise LimitError(
                f"{file.path} is too large for a list of pins",
                why=f"it has {size} bytes, and the limit is {_BYTES}",
                hint="use patterns: ckpt-1*",
            )
        text = file.pread(0, size).decode("utf-8", "surrogateescape")
    finally:
        file.close()
    lines = (_COMMENT.sub("", line).strip() for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line]


def match_pins(
    directory: LocalDirectory, pins: Iterable[str], names: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Which names are pinned by what, and the pins that match nothing.

    A pin may be spelled as a person types a checkpoint: with the directory in front, as the
    shell completes it, or as one of the checkpoint's files.
    """
    pinned: dict[str, str] = {}
    idle = []
    for pin in pins:
        wanted = _own(directory, pin)
        part = split_part(wanted)
        if wanted not in names and part is not None:
            wanted = part.prefix
        found = [wanted] if wanted in names else [n for n in names if fnmatchcase(n, wanted)]
        for name in found:
            pinned.setdefault(name, pin)
        if not found:
            idle.append(pin)
    return pinned, idle


def _own(directory: LocalDirectory, pin: str) -> str:
    """A pin without the directory in front, where that is this directory."""
    folder, base = os.path.split(pin)
    if not folder or not base:
        return pin
    here = directory.itself()
    # As typed in the working directory, or as a path from the run itself (`./ckpt-1`).
    for place in (folder, os.path.join(directory.path, folder)):
        there = stat_path(place)
        if there is not None and (there.device, there.inode) == (here.device, here.inode):
            return base
    return pin
