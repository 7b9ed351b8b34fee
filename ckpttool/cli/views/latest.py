"""How ``latest`` looks: the prefix, and in JSON its step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ckpttool.cli.screen import tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.latest import LatestResult

__all__ = ["LatestView"]


class LatestView(View):
    """One prefix on one line, in every form for scripts."""

    command = "latest"

    def __init__(self, result: LatestResult) -> None:
        self._result = result

    @property
    def warnings(self) -> Sequence[str]:
        return self._result.warnings

    def data(self) -> Mapping[str, object]:
        return {"prefix": self._result.prefix, "step": self._result.step}

    def plain(self) -> Iterator[str]:
        return tab_lines([(self._result.prefix,)])

    def names(self) -> Iterator[str]:
        return self.plain()
