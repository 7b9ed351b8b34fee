"""How ``inspect --html`` looks where it is called: where the report is; else as ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckpttool.cli.escape import escape
from ckpttool.cli.html.save import SavedReport
from ckpttool.cli.screen import Screen, bytes_text, tab_lines
from ckpttool.cli.views.inspect import InspectView

__all__ = ["ReportView"]


class ReportView(InspectView):
    """A report that was written."""

    def __init__(self, saved: SavedReport) -> None:
        super().__init__(saved.inspected)
        self._saved = saved

    def human(self, screen: Screen) -> Iterator[object]:
        saved = self._saved
        yield screen.text(f"saved as {escape(saved.path)} ({bytes_text(saved.nbytes)})")

    def plain(self) -> Iterator[str]:
        yield from tab_lines([("report", self._saved.path, str(self._saved.nbytes))])

    def data(self) -> Mapping[str, object]:
        data = dict(super().data())
        data.pop("tree", None)  # made for the page; it is long
        data["report"] = {"path": self._saved.path, "bytes": self._saved.nbytes}
        return data
