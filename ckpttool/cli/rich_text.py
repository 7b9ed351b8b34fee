"""Objects of rich as text: the one place that makes a console, and imports rich for it."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.theme import Theme

from ckpttool.cli.screen import Screen

__all__ = ["RichText"]


#: rich fills the last column of a table up with spaces, which wrap in a narrow terminal.
_PADDING = re.compile(r" +\n")


class _Capture(io.StringIO):
    """A stream that claims the terminal's encoding, from which rich chooses its lines."""

    encoding = "utf-8"


class _AsciiCapture(_Capture):
    encoding = "ascii"


class RichText:
    """Renders for one screen. Text is taken literally: no markup, no emoji, no highlighting."""

    def __init__(self, screen: Screen) -> None:
        self._stream = _Capture() if screen.unicode else _AsciiCapture()
        self._console = Console(
            file=self._stream,
            width=screen.width,
            height=25,  # with both, rich does not guess the size, as it does for TERM=dumb
            force_terminal=screen.color,
            color_system="standard" if screen.color else None,
            no_color=not screen.color,
            markup=False,
            emoji=False,
            highlight=False,
            theme=Theme({"markdown.code": "cyan"}),  # the default has a black background
        )

    def render(self, item: object) -> str:
        """One object as text with its line breaks."""
        self._stream.seek(0)
        self._stream.truncate()
        self._console.print(item)
        return _PADDING.sub("\n", self._stream.getvalue())
