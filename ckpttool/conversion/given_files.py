"""Files that a conversion needs besides its source: looked for before TensorFlow is started.

What is in them is the child's affair, and so are its errors of the same ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckpttool.errors import NotFoundError, UsageError
from ckpttool.storage import stat_path

if TYPE_CHECKING:
    from ckpttool.conversion.request import Request

__all__ = ["require_given"]


def require_given(request: Request) -> None:
    """Check that the data and the code that a request names are there.

    Raises:
        NotFoundError: ids ``check-data``, ``calibration-data``.
        UsageError: ids ``check-data``, ``calibration-data``: no file; ``model-function``.
    """
    calibration = request.settings.calibration
    _require_data("--check-data", request.check.data, "check-data")
    if calibration is not None and not _require_code("--calibration", calibration):
        _require_data("--calibration", calibration, "calibration-data")
    if request.model is not None:
        _require_code("--model", request.model)


def _require_code(option: str, spec: str) -> bool:
    """Look for the file of ``FILE.py:FUNCTION``; False where that is no such word."""
    where, colon, _ = spec.rpartition(":")
    if not colon or spec.lower().endswith(".npz"):
        return False
    if where.endswith(".py"):
        there = stat_path(where)
        if there is None or there.kind != "file":
            raise UsageError(
                f"there is no file {where}",
                why=f"{option} names it",
                hint="check the path; it is relative to the working directory",
                id="model-function",
            )
    return True


def _require_data(option: str, path: str | None, id: str) -> None:
    if path is None:
        return
    there = stat_path(path)
    hint = "give an .npz with an array for each input, by name"
    if there is None:
        raise NotFoundError(f"there is no {path}", why=f"{option} names it", hint=hint, id=id)
    if there.kind == "directory":
        what = f"{option} {path} cannot be used as data"
        raise UsageError(what, why="it is a directory", hint=hint, id=id)
