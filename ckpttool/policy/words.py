"""Counts, durations, sizes and ordinals in short words, and durations read back from them."""

from __future__ import annotations

import math
import re

__all__ = ["ago", "at_least", "count", "duration", "ordinal", "parse_duration", "plural", "size"]

_STEPS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """``5400`` → ``1.5 h``; short, three digits, never negative zero."""
    for unit, word in _STEPS:
        if abs(seconds) >= unit:
            return f"{seconds / unit:.3g} {word}"
    return f"{seconds:.3g} s"


def ago(seconds: float) -> str:
    """``90`` → ``1.5 min ago``; what lies in the future says so."""
    if seconds < 0:
        return f"{duration(-seconds)} in the future, by this clock"
    return f"{duration(seconds)} ago"


def at_least(seconds: float) -> str:
    """The shortest round duration that is no shorter, as `parse_duration` reads it."""
    if not math.isfinite(seconds):
        return "99999d"
    for unit, word in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds > 3 * unit:
            return f"{math.ceil(seconds / unit)}{word}"
    return f"{max(0, math.ceil(seconds))}s"


def size(nbytes: int) -> str:
    """``1572864`` → ``1.5 MiB``: powers of 1024, as ``--max-total-size`` takes them."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{nbytes} B" if unit == "B" else f"{value:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """``1 checkpoint``, ``2 checkpoints``."""
    return f"{number} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """``checkpoint`` of 1, ``checkpoints`` of others; for a number that is written otherwise."""
    return noun if number == 1 else f"{noun}s"


def ordinal(number: int) -> str:
    """``1`` → ``1st``."""
    if number % 100 in {11, 12, 13}:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d|w)?")


def parse_duration(text: str) -> float:
    """``7d``, ``1.5h``, ``10m``, ``90`` (seconds) → seconds.

    Raises:
        ValueError: not of that form.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"not a duration: {text!r}")
    return float(match[1]) * _UNITS[match[2] or "s"]
