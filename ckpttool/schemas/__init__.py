"""The JSON Schemas of what ``--json`` and ``--ndjson`` print; part of the package.

``<command>.json`` describes the ``data`` member of the document, ``envelope.json`` the
document around it, ``error.json`` the object on stderr, ``convert-report.json`` the file that
``convert`` writes beside a result. Fields may be added within a
schema version, none changes its meaning; so the schemas allow fields that they do not name.
"""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["names", "schema"]

_HOME = os.path.dirname(__file__)


def names() -> list[str]:
    """The names of all schemas."""
    return sorted(name[:-5] for name in os.listdir(_HOME) if name.endswith(".json"))


def schema(name: str) -> dict[str, Any]:
    """One schema (JSON Schema 2020-12) as a dict.

    Raises:
        KeyError: there is none of this name.
    """
    if name not in names():
        raise KeyError(name)
    with open(os.path.join(_HOME, f"{name}.json"), encoding="utf-8") as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded
