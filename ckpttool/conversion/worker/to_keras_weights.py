"""The target ``h5`` for a model of Keras: the layout that its own ``load_weights`` reads.

Keras writes it, and reads it again: the variables of the model are overwritten in between,
so what does not come back from the file shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ckpttool.conversion.worker.model import variables_of
from ckpttool.conversion.worker.program import Written
from ckpttool.conversion.worker.restoring import mark, name_of
from ckpttool.conversion.worker.traced_program import TracedProgram
from ckpttool.errors import ResultDiffersError, UsageError

if TYPE_CHECKING:
    from ckpttool.conversion.request import Settings
    from ckpttool.conversion.worker.program import Program

__all__ = ["write"]

#: Variables that an error names.
_NAMED = 5


def write(program: Program, path: str, settings: Settings) -> Written:
    """Write a ``.weights.h5``, and load it.

    Args:
        program: of a Keras model.
        path: the file; Keras asks for the ending ``.weights.h5``.
        settings: none is understood.

    Raises:
        UsageError: id ``model-kind``: it is no Keras model.
        ResultDiffersError: a variable came back with another value, or not at all.
    """
    del settings  # none is understood, which was checked
    model = program.root if isinstance(program, TracedProgram) else None
    if model is None or not (hasattr(model, "save_weights") and hasattr(model, "load_weights")):
        raise UsageError(
            "only a Keras model has Keras weights",
            why=f"--model returns a {type(model).__name__}",
            hint="leave --model out: ckpttool writes the variables by their names",
            id="model-kind",
        )
    model.save_weights(path)
    variables = variables_of(model)
    before = [variable.numpy() for variable in variables]
    mark(variables)
    model.load_weights(path)
    different = [
        name_of(variable)
        for variable, value in zip(variables, before, strict=True)
        if not np.array_equal(_bytes(variable.numpy()), _bytes(value))
    ]
    if different:
        more = f" and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
        raise ResultDiffersError(
            "the weights that Keras wrote are not those of the model",
            why=f"loaded again they differ: {', '.join(different[:_NAMED])}{more}",
            hint="a layer that keeps variables of its own needs save_own_variables in Keras",
        )
    return Written((), facts={"variables": len(variables)})


def _bytes(value: np.ndarray) -> np.ndarray:
    """The bits, which tell NaNs apart and are equal where these are."""
    return np.frombuffer(value.tobytes(), np.uint8)
