"""Kills a piece of work before its n-th change of the disk, for every n: as `kill -9` would.

The work runs in a forked child; the system calls that change a directory or end a write
are counted, and the child ends without any clean-up just before the chosen one.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["killed_at_every_change", "killed_before"]

_CHANGES = (
    "unlink",
    "rename",
    "replace",
    "link",
    "mkdir",
    "rmdir",
    "fsync",
    "write",
    "ftruncate",
    "copy_file_range",
)
_KILLED = 77


def killed_at_every_change(
    prepare: Callable[[], object], work: Callable[[], object]
) -> Iterator[int]:
    """For n = 0, 1, …: prepare, kill the work before its n-th change, then yield n.

    Ends after the first n for which the work was done before it could be killed (that n is
    not given).
    """
    for number in range(10_000):
        prepare()
        if killed_before(work, number):
            return
        yield number
    raise AssertionError("the work never ended")


def killed_before(work: Callable[[], object], number: int) -> bool:
    """Run the work, killed before its change number ``number``; true if it was done before."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _arm(number)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, _KILLED}, f"the work failed by itself (before change {number})"
    return code == 0


def _arm(number: int) -> None:
    left = number

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                os._exit(_KILLED)
            left -= 1
            return real(*args, **kwargs)

        return call

    for name in _CHANGES:
        setattr(os, name, counted(name))
