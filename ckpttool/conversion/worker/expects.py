"""The task that builds a model and tells which values of a checkpoint it would take.

Nothing is restored: a restore stops at the first shape that does not fit. What an
object-based checkpoint gives is found by walking both object graphs; what a Keras file gives,
by comparing it with the file that Keras writes of this very model; else names decide.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Any

from ckpttool.conversion.asked import Asked, AskedVariable
from ckpttool.conversion.job import Job
from ckpttool.conversion.wire import decode, encode, plain
from ckpttool.conversion.worker.keras_safety import require_contained
from ckpttool.conversion.worker.model import RANDOM, built_model, functions_of, variables_of
from ckpttool.conversion.worker.model_functions import is_keras
from ckpttool.conversion.worker.object_paths import find_places, require_trackable
from ckpttool.conversion.worker.restoring import (
    KERAS,
    mark,
    marked,
    names_of,
    require_attributes,
)
from ckpttool.errors import UnsupportedError, UsageError
from ckpttool.limits import default_limits
from ckpttool.policy.words import count
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_source

__all__ = ["run"]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Do a ``Job``, whose ``artefact`` is a folder for files of this task; gives an ``Asked``.

    Raises:
        UsageError: ids ``model-function``, ``model-inputs``, ``model-kind``.
        ConversionError: ids ``model-function-failed``, ``model-call-failed``.
        UnsupportedError: id ``diff-model-source``.
    """
    return plain(_asked(decode(Job, encode(job))))  # type: ignore[return-value]


def _asked(job: Job) -> Asked:
    model = built_model(job)
    warnings = _made_variables(model, job)
    if not getattr(model, "variables", ()):
        raise UsageError(
            f"the model of {job.origin.graph} has no variables",
            why="so it would take nothing of the checkpoint",
            hint="return the model that was trained",
            id="model-kind",
        )
    assert job.origin.values is not None, "a model without a checkpoint is no question"
    with open_source(job.origin.values, default_limits()) as source:
        require_attributes(source, job.request.root)
        if source.kind in KERAS:
            asked = _of_keras(model, source, job)
        elif source.style == "object":
            asked = _by_objects(model, source, job)
        else:
            asked = _by_names(model, source)
    return Asked(asked.variables, asked.by, asked.casts, (*warnings, *asked.warnings))


def _made_variables(model: Any, job: Job) -> tuple[str, ...]:  # noqa: ANN401
    """Call the model, so that all of its variables exist; what is to be said about it.

    A ``tf.Module`` may well have them without being called, and does not say how it is.
    """
    try:
        functions_of(model, job)
    except UsageError as error:
        if error.id != "model-inputs" or is_keras(model) or not getattr(model, "variables", ()):
            raise
        said = "the model was not called: variables that it makes only then are not looked for"
        return (f"{said}; --input says what it is called with",)
    return ()


def _by_objects(model: Any, source: Source, job: Job) -> Asked:  # noqa: ANN401
    require_trackable(model, source.location)
    variables = variables_of(model)
    places = find_places(model, variables, source.location, job.request.root)
    above = "" if places.root is None else f"{places.root}/"
    found = []
    for one, variable in zip(model.variables, variables, strict=True):
        name = places.paths.get(id(variable), above + names_of(one)[0])
        found.append(_variable(name, variable, places.keys.get(id(variable))))
    hidden = sum(id(one) not in places.paths for one in variables)
    said = (
        f"in layers that a layer holds in a list or a dict: {count(hidden, 'variable')}, which "
        "Keras 3 leaves out of every tf.train.Checkpoint of the model; ckpttool convert finds the "
        "values where the checkpoint has the optimizer of the compiled model"
    )
    return Asked(_weights(found), "objects", warnings=(said,) if hidden else ())


def _by_names(model: Any, source: Source) -> Asked:  # noqa: ANN401
    found = []
    for one, variable in zip(model.variables, variables_of(model), strict=True):
        names = names_of(one)
        stored = (source.lookup(name) for name in names)
        key = next((each.key for each in stored if each is not None), None)
        found.append(_variable(names[0], variable, key))
    return Asked(_weights(found), "names")


def _weights(found: Sequence[AskedVariable]) -> tuple[AskedVariable, ...]:
    """All but the states of random generators: no weights, and most checkpoints lack them."""
    return tuple(one for one in found if one.key is not None or not one.name.endswith(RANDOM))


def _variable(name: str, variable: Any, key: str | None) -> AskedVariable:  # noqa: ANN401
    shape = None
    if variable.shape.rank is not None:
        shape = tuple(-1 if size is None else size for size in variable.shape.as_list())
    return AskedVariable(name, "model", variable.dtype.base_dtype.name, shape, key)


# Files of Keras -------------------------------------------------------------------------


def _of_keras(model: Any, source: Source, job: Job) -> Asked:  # noqa: ANN401
    """By the file that Keras writes of the model: it reads the same places.

    A file of another version of Keras may have others, which that Keras still knows. So
    where something is missing, Keras is asked to load it.
    """
    require_contained(source)
    if source.kind == "keras-h5":
        raise UnsupportedError(
            f"{source.location} is an HDF5 file in the manner of Keras 2",
            why="Keras gives its values to layers by their order, and not by their names",
            hint="ckpttool convert --model tells whether it loads; or save_weights to .weights.h5",
            id="diff-model-source",
        )
    if not is_keras(model) or not hasattr(model, "load_weights"):
        raise UsageError(
            f"{source.location} is a file of Keras, and --model returns a {type(model).__name__}",
            why="only a Keras model loads it",
            hint="return the Keras model itself",
            id="model-kind",
        )
    path = os.path.join(job.artefact, "asked.weights.h5")
    model.save_weights(path)
    stored = {one.key for one in source.variables()}
    with open_source(path, default_limits()) as own:
        found = tuple(
            AskedVariable(
                own.name_of(one, job.request.choice.names),
                one.kind,
                one.dtype,
                one.shape,
                one.key if one.key in stored else None,
            )
            for one in own.variables()
            if one.kind == "model"  # a use of it needs no optimizer, and Keras loads it without
        )
    if all(one.key is not None for one in found) or not _loads(model, source.location):
        return Asked(found, "keras", casts=True)
    said = f"{source.location} has values under other names than Keras writes today, and loads"
    return Asked(
        tuple(one for one in found if one.key is not None), "keras", casts=True, warnings=(said,)
    )


def _loads(model: Any, path: str) -> bool:  # noqa: ANN401
    """Whether Keras loads a file, and every variable has a value of it then."""
    variables = variables_of(model)
    mark(variables)
    try:
        model.load_weights(path)
    except Exception:  # noqa: BLE001 - whatever Keras raises, it does not load
        traceback.print_exc()
        return False
    return not marked(variables)
