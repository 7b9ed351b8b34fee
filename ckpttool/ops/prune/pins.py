"""Pins: checkpoints that a person said must stay, on the command line or in the directory.

``.ckptpins`` has a name or pattern a line; ``#`` starts a comment. A pattern (``*``, ``?``,
``[…]``) is matched against names that are known, never against a file system; what is
literally the name of a checkpoint stands for that one, whatever characters it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from ckpttool.errors import LimitError
from ckpttool.storage.local import LocalDirectory

__all__ = ["PINS_NAME", "match_pins", "read_pins"]

PINS_NAME = ".ckptpins"
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
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def match_pins(pins: Iterable[str], names: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Which names are pinned by what, and the pins that match nothing."""
    pinned: dict[str, str] = {}
    idle = []
    for pin in pins:
        wanted = pin.removeprefix("./").removesuffix(".index")
        found = [wanted] if wanted in names else [n for n in names if fnmatchcase(n, wanted)]
        for name in found:
            pinned.setdefault(name, pin)
        if not found:
            idle.append(pin)
    return pinned, idle
