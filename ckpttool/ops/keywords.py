"""What Python callers may give where the command line has options: checked and made plain.

The command line checks such values itself, before an op sees them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import index
from typing import SupportsIndex, TypeVar

from ckpttool.errors import UsageError
from ckpttool.limits import Limits
from ckpttool.sources.address import Address

__all__ = [
    "Addresses",
    "Words",
    "addresses",
    "is_whole",
    "require_choice",
    "require_shards",
    "words",
]

#: One, or several of them.
Words = str | Sequence[str]
Addresses = Address | Sequence[Address]

_Word = TypeVar("_Word", bound=str)


def words(given: _Word | Sequence[_Word]) -> tuple[_Word, ...]:
    """The values of an option that may be given several times."""
    return (given,) if isinstance(given, str) else tuple(given)


def addresses(given: Addresses) -> tuple[str, ...]:
    """One address or several, as text; bytes that are no UTF-8 as surrogate escapes."""
    several = (given,) if isinstance(given, str | bytes | os.PathLike) else given
    return tuple(os.fsdecode(one) for one in several)


def require_choice(keyword: str, given: object, choices: Sequence[object]) -> None:
    """Check a value that is one of a few.

    Raises:
        UsageError.
    """
    if given not in choices:
        raise UsageError(
            f"{keyword} cannot be {given!r}",
            why=f"it is one of {', '.join(map(repr, choices))}",
            hint=f"leave {keyword} out for the usual",
        )


def is_whole(given: object, low: int, high: int) -> bool:
    """Whether something is a whole number of a range; 7.0 is not."""
    return isinstance(given, SupportsIndex) and low <= index(given) <= high


def require_shards(shards: int, limits: Limits) -> None:
    """Check how many data files are asked for, before anything is made for each of them.

    Raises:
        UsageError.
    """
    if not is_whole(shards, 1, limits.shards):
        raise UsageError(
            f"a checkpoint cannot have {shards!r} data files",
            why=f"there are 1 to {limits.shards}",
            hint="leave shards out for the usual",
        )
