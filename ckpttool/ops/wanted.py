"""Which variables are wanted: globs, an expression, kinds. Pure.

In a glob, ``*`` and ``?`` stand for any characters, slashes too, and ``[ab]`` for one of
these; case counts. A variable is wanted that matches one of the globs to include (if there
are any), none of those to exclude, and the expression, and is of one of the kinds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ckpttool.errors import UsageError
from ckpttool.model import Kind

__all__ = ["Wanted", "wanted"]


class Wanted(NamedTuple):
    """A filter, ready to be asked; what is None lets everything pass."""

    include: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    expression: re.Pattern[str] | None = None
    kinds: frozenset[Kind] | None = None

    @property
    def everything(self) -> bool:
        """Whether it lets everything pass."""
        return self == Wanted()

    def __call__(self, name: str, kind: Kind) -> bool:
        """Whether a variable of this name and kind is wanted."""
        return (
            (self.kinds is None or kind in self.kinds)
            and (self.include is None or self.include.match(name) is not None)
            and (self.exclude is None or self.exclude.match(name) is None)
            and (self.expression is None or self.expression.search(name) is not None)
        )


def wanted(
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    regex: str | None = None,
    kinds: Iterable[Kind] = (),
) -> Wanted:
    """The filter of these options; an empty one restricts nothing.

    Raises:
        UsageError: id ``bad-regex``: ``regex`` is no regular expression.
    """
    try:
        expression = None if regex is None else re.compile(regex)
    except re.error as error:
        raise UsageError(
            f"{regex!r} is no regular expression",
            why=str(error),
            hint="the syntax is that of Python's re module; for * and ? use --include",
            id="bad-regex",
        ) from None
    return Wanted(_globs(include), _globs(exclude), expression, frozenset(kinds) or None)


def _globs(patterns: Iterable[str]) -> re.Pattern[str] | None:
    patterns = list(patterns)
    if not patterns:
        return None
    from fnmatch import translate

    return re.compile("|".join(map(translate, patterns)))
