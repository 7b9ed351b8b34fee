"""Progress of long work on stderr: a line that redraws itself, or JSON lines.

Nothing is drawn in the first half second, so short work shows nothing. It is drawn from
the work's own calls: no thread, no hidden cursor, nothing to restore when a signal ends
the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Self

from ckpttool.cli.screen import Screen, bytes_text

__all__ = ["Progress"]

_FIRST = 0.5
_REDRAW = 0.1
_JSON_EVERY = 0.5
_BAR = 24


class Progress:
    """Call it with (done, total); a context manager that leaves a clean line behind."""

    def __init__(
        self,
        label: str,
        unit: str,
        style: Literal["bar", "json", "none"],
        screen: Screen,
        write: Callable[[str], None],
    ) -> None:
        self._label = label
        self._unit = unit
        self._style = style
        self._screen = screen
        self._write = write
        self._started = time.monotonic()
        self._next = self._started + _FIRST
        self._drawn = False
        self._last = (0, 0)

    def __call__(self, done: int, total: int) -> None:
        """Report; ``total`` is 0 where it is not known."""
        if self._style == "none":
            return
        self._last = (done, total)
        now = time.monotonic()
        if now < self._next:
            return
        if self._style == "json":
            self._next = now + _JSON_EVERY
            self._json_line()
        else:
            self._next = now + _REDRAW
            self._write("\r\x1b[K" + self._bar_line(now - self._started))
        self._drawn = True

    def clear(self) -> None:
        """Take the line away, so that a message can be written; the next call redraws it."""
        if self._drawn and self._style == "bar":
            self._write("\r\x1b[K")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        if self._drawn and self._style == "json":
            self._json_line()
        self._style = "none"

    def _json_line(self) -> None:
        from ckpttool.cli.jsontext import dumps

        done, total = self._last
        line = {
            "type": "progress",
            "label": self._label,
            "done": done,
            "total": total or None,
            "unit": self._unit,
            "seconds": round(time.monotonic() - self._started, 1),
        }
        self._write(dumps(line) + "\n")

    def _bar_line(self, seconds: float) -> str:
        done, total = self._last
        parts = [self._label]
        if total:
            share = min(done / total, 1.0)
            full, empty = ("━", "─") if self._screen.unicode else ("#", ".")
            filled = int(share * _BAR)
            bar = self._screen.style(full * filled, "green") + empty * (_BAR - filled)
            parts += [bar if self._screen.width >= 70 else "", f"{share:4.0%}"]
            parts.append(f"{self._amount(done)} of {self._amount(total)}")
        else:
            parts.append(self._amount(done))
        rate = done / seconds
        if self._screen.width >= 60:
            parts.append(f"{self._amount(int(rate))}/s")
            if total and rate > 0 and done < total:
                parts.append(f"{_clock((total - done) / rate)} left")
        return "  ".join(filter(None, parts))

    def _amount(self, count: int) -> str:
        return bytes_text(count) if self._unit == "bytes" else f"{count:,}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
