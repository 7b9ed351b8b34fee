"""Collects the names and patterns of an edit that fit nothing, and refuses them together."""

from __future__ import annotations

import shlex

from ckpttool.errors import RefusedError
from ckpttool.ops.edit.contents import Contents
from ckpttool.sources.nearest import nearest

__all__ = ["Unmatched"]


class Unmatched:
    """Call it with what fits nothing."""

    def __init__(self, contents: Contents) -> None:
        self._location = contents.location
        self._names = sorted({item.name for item in contents.items.values()})
        self._found: list[str] = []

    def __call__(self, text: str) -> None:
        self._found.append(text)

    def settle(self, *, allow: bool) -> None:
        """Refuse what was found, unless it is allowed.

        Raises:
            RefusedError: id ``unmatched``; lists all of them.
        """
        if not self._found or allow:
            return
        near = nearest(self._found[0].rpartition(" ")[2], self._names)
        raise RefusedError(
            f"{len(self._found)} of what is asked for fits no variable of {self._location}",
            why="; ".join(self._found),
            hint=(f"did you mean: {', '.join(near)}; " if near else "")
            + f"ckpttool list {shlex.quote(self._location)}; --allow-unmatched lets it pass",
            id="unmatched",
        )
