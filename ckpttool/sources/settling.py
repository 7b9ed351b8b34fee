"""Whether another look at files helps: what another program is writing just now.

TensorFlow writes the index of a checkpoint in place, right after it renamed the data files:
for a moment it is empty, or older than what it describes. Knows times and errors, no format.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ckpttool.errors import ChangedError, CkpttoolError, NotFoundError
from ckpttool.storage.base import ReadableFile

__all__ = ["another_try_helps", "changes_soon"]

#: A file that was written to within so many nanoseconds may be written to still.
_JUST_NOW = 10**9
#: How long to wait, in seconds, until it is looked at again.
_PAUSE = 0.1


def changes_soon(files: Iterable[ReadableFile]) -> bool:
    """Whether open files are other ones by now, or in a moment.

    Waits for that moment only where a file was written to just now, so that damage of long
    standing is told at once. To be asked when something is wrong with them.
    """
    opened = list(files)
    if any(file.changed() for file in opened):
        return True
    now = time.time_ns()
    if not any(0 <= now - file.stat.mtime_ns < _JUST_NOW for file in opened):
        return False
    time.sleep(_PAUSE)
    return any(file.changed() for file in opened)


def another_try_helps(error: CkpttoolError) -> bool:
    """Whether an error comes of another program that replaced or removed files meanwhile."""
    # Names are opened after they were seen, so one that is not there went in between.
    gone = isinstance(error, NotFoundError) and isinstance(error.__cause__, FileNotFoundError)
    return gone or isinstance(error, ChangedError)
