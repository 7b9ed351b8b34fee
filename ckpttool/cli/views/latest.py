"""How ``latest`` looks: the prefix, and in JSON its step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.escape import escape
from ckpttool.cli.jsontext import exact
from ckpttool.cli.screen import Screen
from ckpttool.cli.view import View
from ckpttool.ops.latest import LatestResult

__all__ = ["LatestView"]


class LatestView(View):
    """One prefix on one line.

    ``raw`` prints the bytes of the path as the system has them, for a script that goes on
    from them; otherwise what is not printable is escaped, as for a terminal.
    """

    command = "latest"

    def __init__(self, result: LatestResult, *, raw: bool) -> None:
        self._result = result
        self._raw = raw

    @property
    def warnings(self) -> Sequence[str]:
        return self._result.warnings

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "prefix": result.prefix,
            **exact("prefix", result.prefix),
            "step": result.step,
            "number": result.number,
        }

    def plain(self) -> Iterator[str | bytes]:
        if self._raw:
            yield os.fsencode(self._result.prefix) + b"\n"
        else:
            yield from self.human()

    def human(self, screen: Screen | None = None) -> Iterator[str]:
        del screen
        yield f"{escape(self._result.prefix)}\n"

    def names(self) -> Iterator[str | bytes]:
        return self.plain()
