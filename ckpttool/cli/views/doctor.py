"""How ``doctor`` looks, with what only the command line knows: the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, tab_lines
from ckpttool.cli.view import View
from ckpttool.ops.doctor import DoctorResult

__all__ = ["DoctorView", "Terminal"]


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the command prints to."""

    is_terminal: bool
    width: int
    color: bool
    encoding: str


class DoctorView(View):
    """Facts, libraries, checks; exit code 1 when a check failed."""

    command = "doctor"

    def __init__(self, result: DoctorResult, terminal: Terminal) -> None:
        self._result = result
        self._terminal = terminal

    @property
    def exit_code(self) -> int:
        return 0 if self._result.healthy else 1

    def data(self) -> Mapping[str, object]:
        result = self._result
        return {
            "ckpttool": result.version,
            "python": result.python,
            "system": result.system,
            "encodings": result.encodings,
            "terminal": asdict(self._terminal),
            "libraries": [asdict(library) for library in result.libraries],
            "limits": [asdict(limit) for limit in result.limits],
            "process_limits": result.process_limits,
            "directory": result.directory,
            "checks": [asdict(check) for check in result.checks],
        }

    def plain(self) -> Iterator[str]:
        yield from tab_lines(("fact", name, value) for name, value in self._facts())
        yield from tab_lines(("library", *row) for row in self._libraries())
        for check in self._result.checks:
            state = "passed" if check.passed else "failed"
            yield from tab_lines([("check", check.name, state, check.detail)])

    def human(self, screen: Screen) -> Iterator[object]:
        for name, value in self._facts():
            yield screen.text(f"{screen.style(f'{name:<12}', 'bold')}  {escape(value)}", hang=14)
        yield "\n"
        columns = [
            Column("library", style="cyan"),
            Column("version"),
            Column("needed for", prose=True),
        ]
        yield from screen.table(columns, self._libraries())
        yield "\n"
        for check in self._result.checks:
            mark = (
                screen.style("ok    ", "green") if check.passed else screen.style("FAILED", "red")
            )
            yield screen.text(f"{mark}  {check.name}: {escape(check.detail)}", hang=8)

    def _facts(self) -> Iterator[tuple[str, str]]:
        result, terminal = self._result, self._terminal
        yield "ckpttool", result.version
        yield "Python", result.python
        yield "system", result.system
        yield "encodings", ", ".join(f"{name} {word}" for name, word in result.encodings.items())
        looks = f"{terminal.width} columns, {'with' if terminal.color else 'no'} colours"
        yield "terminal", looks if terminal.is_terminal else f"none; {terminal.encoding}"
        yield (
            "ulimit",
            ", ".join(
                f"{name.replace('_', ' ')} {'unlimited' if value is None else value}"
                for name, value in result.process_limits.items()
            ),
        )
        yield "directory", result.directory
        for limit in result.limits:
            if limit.value != limit.default:
                yield "limit", f"{limit.name} {limit.value} (default {limit.default})"

    def _libraries(self) -> Iterator[tuple[str, str, str]]:
        for library in self._result.libraries:
            yield library.name, library.version or "not installed", library.needed_for
