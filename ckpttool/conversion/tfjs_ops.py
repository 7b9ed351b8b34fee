"""The operations that TensorFlow.js runs: a list that ships with ckpttool.

``tfjs_ops.txt`` is written by ``fixtures/make_tfjs_ops.py`` out of the package that its
first line names.
"""

from __future__ import annotations

import os
from functools import cache

__all__ = ["js_ops", "js_version"]

_LIST = os.path.join(os.path.dirname(__file__), "tfjs_ops.txt")


@cache
def _lines() -> tuple[str, ...]:
    with open(_LIST, encoding="ascii") as file:
        return tuple(file.read().split("\n"))


def js_version() -> str:
    """The TensorFlow.js whose operations these are: ``4.22.0``."""
    return _lines()[0].rpartition("tfjs-converter ")[2].partition(":")[0]


@cache
def js_ops() -> frozenset[str]:
    """Their names, as TensorFlow calls them."""
    return frozenset(_lines()[1:]) - {""}
