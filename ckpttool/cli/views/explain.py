"""How ``explain`` looks: Markdown rendered on a terminal, the text itself in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ckpttool.cli.screen import Column, Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.explain import ExplainResult

__all__ = ["ExplainView"]


class ExplainView(View):
    """One explanation as text; several as a table of id, exit codes and title."""

    command = "explain"

    def __init__(self, result: ExplainResult) -> None:
        self._result = result

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "exit_code": result.exit_code,
            "meaning": result.meaning,
            "explanations": [
                {
                    "id": entry.id,
                    "title": entry.title,
                    "exit_codes": list(entry.exit_codes),
                    "text": entry.text,
                }
                for entry in result.entries
            ],
        }

    def plain(self) -> Iterator[str]:
        if self._result.single:
            yield self._result.entries[0].text
            return
        if self._result.exit_code is not None:
            yield f"{self._result.exit_code}\t{self._result.meaning}\n"
        yield from tab_lines(self._rows())

    def human(self, screen: Screen) -> Iterator[object]:
        if self._result.single:
            from rich.markdown import Markdown

            entry = self._result.entries[0]
            yield screen.style(entry.title, "bold") + "\n\n"
            yield Markdown(entry.text.partition("\n")[2], hyperlinks=False)
            return
        if self._result.exit_code is not None:
            code = screen.style(str(self._result.exit_code), "bold")
            yield screen.text(f"{code}  {self._result.meaning}", hang=4)
        if self._result.entries:
            columns = [Column("id", style="cyan"), Column("exit"), Column("about", prose=True)]
            yield from screen.table(columns, self._rows())

    def names(self) -> Iterator[str]:
        return (f"{entry.id}\n" for entry in self._result.entries)

    def _rows(self) -> Iterable[tuple[str, str, str]]:
        for entry in self._result.entries:
            yield entry.id, ",".join(map(str, entry.exit_codes)), entry.title
