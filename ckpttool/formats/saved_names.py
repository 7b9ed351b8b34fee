"""Objects that save several tensors: the graph has one key for them, the index has more.

A table is ``t/.ATTRIBUTES/table`` in the object graph and ``t/.ATTRIBUTES/table-keys`` and
``…-values`` in the index; an iterator is ``…/ITERATOR`` and ``…/ITERATOR_STATE``. The
graph's key is how the others begin (tensorflow/python/training/saving/saveable_object.py).
"""

from __future__ import annotations

from collections.abc import Container

__all__ = ["saved_under"]

_ATTRIBUTES = "/.ATTRIBUTES/"


def saved_under(key: str, stems: Container[str]) -> str | None:
    """The longest of the graph's keys with which a key of the index begins; or None."""
    start = key.find(_ATTRIBUTES)
    if start < 0:
        return None
    for end in range(len(key) - 1, start + len(_ATTRIBUTES), -1):
        if key[:end] in stems:
            return key[:end]
    return None
