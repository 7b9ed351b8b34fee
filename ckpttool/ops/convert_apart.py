"""A result never takes the place of what it is made of, however its path is spelled.

Looks at paths only: what they lead to, through links, and how the files of a checkpoint and
of a SavedModel are called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ckpttool.errors import RefusedError
from ckpttool.sources.filenames import SAVED_MODEL_FILES

if TYPE_CHECKING:
    from ckpttool.conversion.job import Origin
    from ckpttool.conversion.request import Request

__all__ = ["require_apart"]

#: What follows the prefix of a checkpoint in the names of its files.
_PARTS = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})")


def require_apart(request: Request, origin: Origin | None = None) -> None:
    """Refuse a result that would replace its source, a file of it, or the directory around it.

    Args:
        request: has the destination, and what was given.
        origin: where graph and values come from, once that is known. An export that is
            refreshed may stand in its own place: it is read as a whole before.

    Raises:
        RefusedError: id ``output-is-source``.
    """
    used = [request.source, request.graph, request.check.data]
    if origin is not None:
        used += [origin.values, "" if origin.kind in {"model", "export"} else origin.graph]
    there = os.path.realpath(request.destination)
    for path in filter(None, used):
        source = os.path.realpath(path)
        if there == source:
            raise _refused(request.destination, "is what is converted", "for former results")
        if _is_part(there, source):
            raise _refused(request.destination, f"is a file of {path}", "for former results")
        if origin is not None and source.startswith(os.path.join(there, "")):
            raise _refused(request.destination, "is not replaced", f"and {path} lies in it")
    for path in _also_read(request):
        if os.path.realpath(path).startswith(os.path.join(there, "")):
            raise _refused(request.destination, "is not replaced", f"and {path} lies in it")
    if request.log is not None:
        log = os.path.realpath(request.log)
        for path in filter(None, used):
            source = os.path.realpath(path)
            if log == source or _is_part(log, source):
                raise RefusedError(
                    f"{request.log} takes no log",
                    why=f"it is a file of {path}, and a log is added to its end",
                    hint="give another name",
                    id="output-is-source",
                )


def _also_read(request: Request) -> Iterator[str]:
    """What else a person has given: files, and the code of ``FILE.py:FUNCTION``."""
    named = (*request.maps, request.settings.calibration, request.like, request.model)
    for given in filter(None, named):
        for path in (given, given.rpartition(":")[0]):
            if path and os.path.lexists(path):
                yield path


def _is_part(there: str, source: str) -> bool:
    """Whether a path is of a file of a checkpoint, or of anything in a SavedModel."""
    if there.startswith(source) and _PARTS.fullmatch(there, len(source)):
        return True
    is_model = any(os.path.lexists(os.path.join(source, mark)) for mark in SAVED_MODEL_FILES)
    return is_model and there.startswith(os.path.join(source, ""))


def _refused(destination: str, what: str, why: str) -> RefusedError:
    return RefusedError(
        f"{destination} {what}",
        why=f"--overwrite is {why}" if why.startswith("for") else f"it would go, {why}",
        hint="give another name",
        id="output-is-source",
    )
