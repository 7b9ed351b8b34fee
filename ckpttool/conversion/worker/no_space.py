"""A disk that is full, in the words of whoever met it: the system, TensorFlow, HDF5."""

from __future__ import annotations

import errno
import os

from ckpttool.errors import NoSpaceError

__all__ = ["no_space"]

_FULL = {errno.ENOSPC, errno.EDQUOT}
_SAID = tuple(os.strerror(number) for number in sorted(_FULL))


def no_space(error: BaseException) -> NoSpaceError | None:
    """The error of ours for one that a full disk is behind; None where none is.

    TensorFlow says ``ResourceExhaustedError`` of that as of memory, and gives the system's words.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if (isinstance(one, OSError) and one.errno in _FULL) or str(one).rstrip().endswith(_SAID):
            return NoSpaceError(
                "the conversion does not fit on the disk",
                why=" ".join(str(one).split())[:300],
                hint="free some space, or write to another disk",
            )
        one = one.__cause__ or one.__context__
    return None
