"""How ``cp --salvage`` looks: what was written, and every variable that is lost, with why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Screen, tab_lines
from ckpttool.cli.views.rewrite import RewriteView
from ckpttool.ops.salvage import Salvaged

__all__ = ["SalvageView"]


class SalvageView(RewriteView):
    """As any writing command, with a line ``lost OBJECT WHY`` for what is lost."""

    changed = "lost"

    def __init__(self, salvaged: Salvaged) -> None:
        super().__init__("cp", salvaged.result)
        self._lost = salvaged.lost

    @property
    def exit_code(self) -> int:
        return 3 if self._lost else 0

    def data(self) -> Mapping[str, object]:
        lost = [{"object": one.object, "why": one.why} for one in self._lost]
        return {**super().data(), "lost": lost}

    def plain(self) -> Iterator[str]:
        yield from tab_lines(("lost", one.object, one.why) for one in self._lost)
        yield from super().plain()

    def human(self, screen: Screen) -> Iterator[object]:
        for one in self._lost:
            lost = screen.style("lost", "red")
            yield screen.text(f"{lost} {escape(one.object)}: {escape(one.why)}", hang=5)
        yield from super().human(screen)
