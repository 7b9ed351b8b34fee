"""The ops that today's TensorFlow has: a list that ships with ckpttool.

``tensorflow_ops.txt`` is written by ``fixtures/make_tensorflow_ops.py`` out of what the
TensorFlow named in its first line registers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

__all__ = ["known_ops", "listed_version", "unknown_ops"]

_LIST = os.path.join(os.path.dirname(__file__), "tensorflow_ops.txt")


@cache
def _lines() -> tuple[str, ...]:
    with open(_LIST, encoding="ascii") as file:
        return tuple(file.read().split("\n"))


def listed_version() -> str:
    """The TensorFlow whose ops these are: ``2.21.0``."""
    return _lines()[0].partition("TensorFlow ")[2].partition(":")[0]


@cache
def known_ops() -> frozenset[str]:
    """The names of its ops."""
    return frozenset(_lines()[1:]) - {""}


def unknown_ops(ops: Iterable[str]) -> list[str]:
    """Those that it does not have, sorted: removed (tf.contrib) or of a library of their own."""
    return sorted(set(ops) - known_ops())
