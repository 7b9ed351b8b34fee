"""Words that several views print: times."""

from __future__ import annotations

import math

__all__ = ["when"]


def when(timestamp: float) -> str:
    """Local time to the minute; the number itself where no calendar has it."""
    if math.isfinite(timestamp):
        from datetime import UTC, datetime

        try:
            local = datetime.fromtimestamp(timestamp, UTC).astimezone()
            return local.strftime("%Y-%m-%d %H:%M")
        except (OverflowError, OSError, ValueError):
            pass
    return repr(timestamp)
