"""A checkpoint and the code that builds its model → a program; never silently random.

Keras builds some models only when they are first called, and a restore before that leaves
them as they were initialised, while TensorFlow says that all is matched. So a model is
called first; then every variable is marked; then it is restored; and a mark that is still
there afterwards is a variable that was not (which no private part of TensorFlow tells).
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ckpttool.conversion.job import Job
from ckpttool.conversion.worker.factory import build_model
from ckpttool.conversion.worker.model_functions import Entry, entries, trace_all, zeros_for
from ckpttool.conversion.worker.own_code import FAILURES, line_of, print_own, said_of
from ckpttool.conversion.worker.restoring import name_of, restore, unmatched_error
from ckpttool.conversion.worker.traced_program import TracedFunction, TracedProgram
from ckpttool.errors import ConversionError, UsageError

__all__ = ["RANDOM", "built_model", "functions_of", "open_model", "program_of", "variables_of"]

#: What Keras calls the state of a random generator.
RANDOM = "seed_generator_state"


def open_model(job: Job) -> TracedProgram:
    """The program of a model, restored.

    Raises:
        IncompleteError: id ``model-unmatched``: variables that the checkpoint has not.
        CkpttoolError: as ``built_model`` and ``functions_of``.
    """
    request, origin = job.request, job.origin
    model = built_model(job)
    functions = functions_of(model, job)
    assert origin.values is not None, "a model without a checkpoint is no conversion"
    variables = variables_of(model)
    left, warnings, hidden = restore(model, variables, origin.values, request.root)
    used = {id(one.handle) for function in functions for one in function.concrete.variables}
    needed = [one for one in left if id(one.handle) in used]
    if needed:
        raise unmatched_error(needed, hidden, len(variables), origin.values, origin.graph)
    if not used:
        raise UsageError(
            f"the model of {origin.graph} uses no variables",
            why="so nothing of the checkpoint would be in the result",
            hint="return the model that was trained",
            id="model-kind",
        )
    # The state of a random generator is no weight, and most checkpoints lack it.
    idle = [name for one in left if not (name := name_of(one)).endswith(RANDOM)]
    said = "1 variable that nothing uses has no value there"
    if len(idle) > 1:
        said = f"{len(idle)} variables that nothing uses have no value there"
    said += f": {', '.join(idle[:3])}"
    return TracedProgram(functions, model, (*warnings, said) if idle else warnings)


def built_model(job: Job) -> Any:  # noqa: ANN401
    """The model that a person's code builds; its variables may not exist yet.

    Raises:
        UsageError: ids ``model-function``, ``model-kind``.
        ConversionError: id ``model-function-failed``.
    """
    spec = job.origin.graph
    model = build_model(spec, job.request.model_args)
    if not callable(model) and not isinstance(model, tf.Module):
        raise UsageError(
            f"--model {spec} returns a {type(model).__name__}",
            why="it has to return a Keras model or layer, or a tf.Module",
            hint="return the model itself",
            id="model-kind",
        )
    return model


def functions_of(model: Any, job: Job) -> list[TracedFunction]:  # noqa: ANN401
    """What a model computes; afterwards all of its variables exist.

    Raises:
        UsageError: id ``model-inputs``: it is not known what it is called with.
        ConversionError: id ``model-call-failed``.
    """
    found = entries(model, job.request)
    for one in found:
        _call(one, job.origin.graph)
    return trace_all(found, job.request.outputs)


def program_of(model: Any, job: Job) -> TracedProgram:  # noqa: ANN401
    """The program of a model that has its values already."""
    found = entries(model, job.request)
    return TracedProgram(trace_all(found, job.request.outputs), model)


def variables_of(model: Any) -> Sequence[Any]:  # noqa: ANN401
    """The model's variables as TensorFlow's own objects, each once.

    Those of Keras 3 are objects around them.
    """
    return [one if isinstance(one, tf.Variable) else one.value for one in model.variables]


def _call(entry: Entry, spec: str) -> None:
    """Call a model once, so that all of its variables exist."""
    try:
        entry.body(*zeros_for(entry))
    except tf.errors.OpError:
        # It does not take zeros, or a picture of one pixel. All of its variables exist all
        # the same once it is traced, which is before it is restored.
        traceback.print_exc()
    except FAILURES as error:
        print_own(error)
        place = line_of(error)
        raise ConversionError(
            f"the model of {spec} cannot be called",
            why=said_of(error) + (f" ({place})" if place else ""),
            hint="check what it is called with: --input NAME:DTYPE[SHAPE]",
            id="model-call-failed",
        ) from error
