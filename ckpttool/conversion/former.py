"""What belongs to a former result beside it, and goes when that is replaced.

Its report, which would be about another file, and the weights that an ONNX model had beside
it. Only what is proven to be of it: anything else of such a name is somebody's.
"""

from __future__ import annotations

import os
from contextlib import closing

from ckpttool.conversion.report import REPORT_ENDING, files_below, is_report
from ckpttool.conversion.targets import Target
from ckpttool.errors import CkpttoolError
from ckpttool.limits import Limits
from ckpttool.storage import open_directory, stat_path

__all__ = ["WEIGHTS_ENDING", "companions", "files_of", "written_to"]

#: What is put behind the name of an ONNX model for the file with its weights.
WEIGHTS_ENDING = ".data"


def companions(destination: str, target: Target, limits: Limits) -> set[str]:
    """The names beside a destination that belong to what stands there now.

    Args:
        destination: the path of the former result, or of none.
        target: the kind of it.
        limits: bounds on what it may claim.
    """
    destination = destination.rstrip("/")
    found = set()
    if stat_path(destination) is not None:
        if is_report(destination + REPORT_ENDING):
            found.add(os.path.basename(destination + REPORT_ENDING))
        if target.name == "onnx" and _names_weights(destination, limits):
            found.add(os.path.basename(destination + WEIGHTS_ENDING))
    return found


def written_to(destination: str, report: str | None) -> list[str]:
    """The paths that a conversion may write to, whatever its target: nothing else may be there."""
    base = destination.rstrip("/")
    also = [] if report is None else [report]
    return [base, base + WEIGHTS_ENDING, base + REPORT_ENDING, *also]


def files_of(destination: str, target: Target, limits: Limits) -> list[str]:
    """The files of what stands at a destination, made by anyone: with the weights beside it."""
    found = files_below(destination)
    if target.name == "onnx":
        folder = os.path.dirname(destination)
        named = (os.path.join(folder, one) for one in sorted(_weights(destination, limits)))
        found += [path for path in named if os.path.isfile(path)]
    return found


def _names_weights(path: str, limits: Limits) -> bool:
    """Whether a model says that weights lie in the file beside it that is called as it is."""
    return f"{os.path.basename(path)}{WEIGHTS_ENDING}" in _weights(path, limits)


def _weights(path: str, limits: Limits) -> set[str]:
    """The files in a model's folder in which it says that weights lie; none of no model."""
    from ckpttool.formats.long_message import FileBytes
    from ckpttool.formats.onnx import read_model

    folder, name = os.path.split(path)
    try:
        with open_directory(folder or ".") as directory, closing(directory.open(name)) as file:
            tensors = read_model(FileBytes(file), limits).tensors
    except CkpttoolError:
        return set()
    named = {one.external.location for one in tensors if one.external is not None}
    return {one for one in named if one and not os.path.isabs(one) and ".." not in one.split("/")}
