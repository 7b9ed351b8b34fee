"""SIGINT and SIGTERM before the words for them are loaded.

The entry of a process holds them here first, with nothing imported but what that takes;
``signals.stoppable`` then takes over, and answers for one that came meanwhile.
"""

from __future__ import annotations

import os
import signal

__all__ = ["came", "hold", "hold_signals"]

#: The signals that came, here or in ``stoppable``.
came: list[int] = []


def hold_signals() -> None:
    """Note the first SIGINT or SIGTERM, and end at the second.

    A signal that the parent had ignored (``nohup``, a background job) stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hold)


def hold(number: int, _frame: object) -> None:
    """The handler: before ``stoppable``, and after it, when the work is over."""
    if came:
        os._exit(128 + number)
    came.append(number)
