"""A whole Keras model in one file (``.keras``, ``.h5``) → a program.

The file's configuration says which layers to make. Keras' safe mode stays on, so nothing
that is code in it (a Lambda layer) is ever run: give the model's own code instead.
"""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ckpttool.convert.job import Job
from ckpttool.convert.targets import installed
from ckpttool.errors import ConversionError, UnsafeError

if TYPE_CHECKING:
    from ckpttool.convert.worker.traced_program import TracedProgram

__all__ = ["open_keras_file"]


def open_keras_file(job: Job) -> TracedProgram:
    """The program of a Keras file.

    Raises:
        UnsafeError: id ``keras-code``: it holds code. ConversionError: id ``keras-unloadable``.
    """
    from ckpttool.convert.worker.model import program_of

    path = job.origin.graph
    reasons = []
    for library in ("keras", "tf_keras"):  # what only Keras 2 can load, the second does
        if installed(library).version is None:
            continue
        try:
            return program_of(_load(library, path), job)
        except _Refused as error:
            reasons.append(f"{library}: {error}")
            if error.is_code:
                raise UnsafeError(
                    f"{path} holds code, which is not run",
                    why=str(error),
                    hint="give the code yourself: --model FILE.py:FUNCTION",
                    id="keras-code",
                ) from None
    raise ConversionError(
        f"{path} cannot be loaded by Keras",
        why="; ".join(reasons)[:700],
        hint="its weights can still be used: --model FILE.py:FUNCTION builds the model",
        id="keras-unloadable",
    )


class _Refused(Exception):
    """Why a library does not load a file; ``is_code``: because it holds code."""

    def __init__(self, error: Exception) -> None:
        text = " ".join(str(error).split())[:300]
        super().__init__(f"{type(error).__name__}: {text}")
        self.is_code = "safe_mode" in str(error) or "Lambda" in str(error)


def _load(library: str, path: str) -> Any:  # noqa: ANN401
    try:
        module = import_module(f"{library}.models")
        return module.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        traceback.print_exc()
        raise _Refused(error) from error
