"""A whole Keras model in one file (``.keras``, ``.h5``) → a program.

The file's configuration says which layers to make. What asks for code is refused before
Keras sees it, and Keras' safe mode stays on: give the model's own code instead.
"""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckpttool.conversion.job import Job
from ckpttool.conversion.targets import installed
from ckpttool.conversion.worker.keras_safety import require_contained, require_no_code
from ckpttool.errors import ConversionError
from ckpttool.limits import default_limits
from ckpttool.sources.registry import open_source

if TYPE_CHECKING:
    from ckpttool.conversion.worker.traced_program import TracedProgram

__all__ = ["open_keras_file"]


def open_keras_file(job: Job) -> TracedProgram:
    """The program of a Keras file.

    Raises:
        UnsafeError: ids ``keras-code``, ``hdf5-elsewhere``.
        ConversionError: id ``keras-unloadable``.
    """
    from ckpttool.conversion.worker.model import program_of

    path = job.origin.graph
    with open_source(path, default_limits()) as source:
        require_contained(source)
    require_no_code(path, default_limits())
    reasons = []
    for library in ("keras", "tf_keras"):  # what only Keras 2 can load, the second does
        if installed(library).version is None:
            continue
        try:
            return program_of(_load(library, path), job)
        except _RefusedError as error:
            reasons.append(f"{library}: {error}")
    raise ConversionError(
        f"{path} cannot be loaded by Keras",
        why="; ".join(reasons)[:700],
        hint="its weights can still be used: --model FILE.py:FUNCTION builds the model",
        id="keras-unloadable",
    )


class _RefusedError(Exception):
    """A library does not load a file."""


def _load(library: str, path: str) -> Any:  # noqa: ANN401
    try:
        module = import_module(f"{library}.models")
        return module.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())[:300]
        raise _RefusedError(f"{type(error).__name__}: {text}") from error
