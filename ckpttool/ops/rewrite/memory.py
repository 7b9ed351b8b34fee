"""How memory of large pieces is kept for the next one; nothing of what is in them."""

from __future__ import annotations

__all__ = ["keep_memory"]

#: More than all pieces that are held at once; with twice as much glibc would not do it.
_POOL = 2**24


def keep_memory() -> None:
    """Have glibc keep what is freed instead of giving it back to the system.

    It does so once a larger block was freed (mallopt(3), M_MMAP_THRESHOLD), and pieces that
    are read and dropped by the thousand then cost no page faults, which take longer than
    to read them. Elsewhere this does nothing.
    """
    block = bytes(_POOL)
    del block
