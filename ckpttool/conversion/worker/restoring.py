"""The values of a checkpoint into the variables of a model, and proof that they arrived.

Every variable is marked first, with a value that no training leaves; what still has its
mark afterwards was not restored. So nothing rests on which objects TensorFlow says that it
matched, which is all of those that it knew of at that moment.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ckpttool.conversion.worker.keras_safety import require_contained
from ckpttool.conversion.worker.object_paths import (
    Places,
    find_places,
    fitting_roots,
    graph_of,
    own_variable,
    require_root,
    require_trackable,
    roots,
)
from ckpttool.conversion.worker.optimizer_order import hidden, restore_by_place
from ckpttool.errors import IncompleteError, UsageError
from ckpttool.limits import default_limits
from ckpttool.policy.words import count
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_source
from ckpttool.sources.selection import Selection

__all__ = [
    "KERAS",
    "Restored",
    "mark",
    "marked",
    "name_of",
    "names_of",
    "require_attributes",
    "restore",
    "unmatched_error",
]

#: Kinds of sources that Keras loads itself.
KERAS = {"keras-weights", "keras-h5", "keras-v3"}
_NAMED = 20


class Restored(NamedTuple):
    """What came of it.

    Attributes:
        left: the variables that got no value.
        warnings: what a person should know.
        hidden: those of ``left`` that no ``tf.train.Checkpoint`` of the model has.
    """

    left: list[Any]
    warnings: tuple[str, ...] = ()
    hidden: tuple[Any, ...] = ()


def restore(model: Any, variables: Sequence[Any], address: str, root: str | None) -> Restored:  # noqa: ANN401
    """Restore a model.

    Args:
        model: whose variables all exist.
        variables: all of them (``tf.Variable``).
        address: of the source with the values.
        root: the attribute under which the checkpoint has the model; None: found.

    Raises:
        CkpttoolError: the source cannot be read, or a variable has another shape there.
        NotFoundError: id ``model-root-unknown``: there is no such attribute.
        UsageError: ids ``options-contradict``: an attribute, of what has none;
            ``model-kind``: no object-based checkpoint can have such a model.
    """
    with open_source(address, default_limits()) as source:
        require_attributes(source, root)
        if source.kind in KERAS:
            require_contained(source)
            mark(variables)
            model.load_weights(source.location)
            return Restored(marked(variables))
        if source.style == "object":
            require_trackable(model, source.location)
            return _by_objects_or_place(model, variables, source.location, root)
        mark(variables)
        _by_names(model, source)
    return Restored(marked(variables))


def require_attributes(source: Source, root: str | None) -> None:
    """Refuse ``--root`` where the values have no object graph, or none with that name.

    Raises:
        UsageError: id ``options-contradict``.
        NotFoundError: id ``model-root-unknown``.
    """
    if root is not None and (source.kind in KERAS or source.style != "object"):
        raise UsageError(
            f"--root means nothing for {source.location}",
            why="only an object-based checkpoint has the model under an attribute",
            hint="leave it out",
            id="options-contradict",
        )
    if root is not None:
        require_root(source.location, root)


def name_of(variable: Any) -> str:  # noqa: ANN401
    """A variable's name as people know it."""
    return str(variable.name).partition(":")[0]


def names_of(one: Any) -> Sequence[str]:  # noqa: ANN401
    """The names of a model's variable under which a name-based source may have it."""
    variable = one if isinstance(one, tf.Variable) else one.value
    names = (getattr(one, "path", ""), name_of(variable), name_of(one))
    return [name for name in dict.fromkeys(names) if name]


def unmatched_error(
    unmatched: Sequence[Any],
    hidden: Sequence[Any],
    of: int,
    address: str,
    spec: str,
) -> IncompleteError:
    """The error of variables that a checkpoint had no value for, of so many in the model.

    Args:
        unmatched: those.
        hidden: what no ``tf.train.Checkpoint`` of the model has, these or others.
        of: variables of the model.
        address: of the checkpoint.
        spec: the code that builds the model.
    """
    why = (
        f"{len(unmatched)} of its {count(of, 'variable')} got no value, and would be as "
        f"initialised: {_listed(unmatched)}"
    )
    hint = (
        f"ckpttool list {shlex.quote(address)} shows what it has; Keras 2's checkpoints need a "
        "tf_keras model, and another size of model its arguments (--model-arg)"
    )
    unseen = {id(one) for one in hidden} & {id(one) for one in unmatched}
    if unseen:
        why += (
            f"; of them, in layers that a layer holds in a list or a dict: {len(unseen)}, which "
            "Keras 3 leaves out of a tf.train.Checkpoint without a word"
        )
        hint = (
            "they are not in the checkpoint: save with model.save_weights('run.weights.h5'), or "
            "the compiled model with its optimizer"
        )
    return IncompleteError(
        f"the model of {spec} does not fit {address}", why=why, hint=hint, id="model-unmatched"
    )


def _listed(variables: Sequence[Any]) -> str:
    names = [f"{name_of(one)} {list(one.shape)}" for one in variables]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _by_objects_or_place(
    model: Any,  # noqa: ANN401
    variables: Sequence[Any],
    prefix: str,
    root: str | None,
) -> Restored:
    """By the object graph; what Keras hides from that by its place in the optimizer's list."""
    left = _by_objects(model, variables, prefix, root)
    if not left:
        return Restored([], () if root is not None else _taken_of_several(model, variables, prefix))
    unseen = hidden(model, left)
    placed = restore_by_place(model, unseen, prefix, root) if unseen else []
    if not placed:
        return Restored(left, hidden=tuple(unseen))
    said = (
        "Keras 3 leaves layers that a layer holds in a list or a dict out of a checkpoint; the "
        f"values of {count(len(placed), 'variable')} of such were found in the optimizer's list, "
        f"by their place in it: {_listed(placed)}"
    )
    found = {id(one) for one in placed}
    still = [[one for one in some if id(one) not in found] for some in (left, unseen)]
    return Restored(still[0], (said,), tuple(still[1]))


def _taken_of_several(
    model: Any,  # noqa: ANN401
    variables: Sequence[Any],
    prefix: str,
) -> tuple[str, ...]:
    """What is to be said where a checkpoint has such a model more than once."""
    taken, *others = fitting_roots(model, variables, prefix) or [None]
    if not others:
        return ()
    named = [one if one is not None else "its top" for one in (taken, *others)]
    return (f"such a model is under {', '.join(named)}: {named[0]} was taken; --root chooses",)


def _by_objects(
    model: Any,  # noqa: ANN401
    variables: Sequence[Any],
    prefix: str,
    root: str | None,
) -> list[Any]:
    """By the object graph, under the attribute that fits: the one that leaves least over."""
    best: tuple[int, str | None, list[Any]] | None = None
    stopped: dict[str | None, ValueError] = {}
    attributes = [root] if root is not None else roots(graph_of(tf.train.load_checkpoint(prefix)))
    for attribute in attributes:
        try:
            left = _read_as(model, variables, prefix, attribute)
        except ValueError as error:  # the first shape that does not fit ends a restore
            stopped[attribute] = error
            continue
        if not left:
            return []
        if best is None or len(left) < best[0]:
            best = (len(left), attribute, left)
    if stopped:
        places = find_places(model, variables, prefix, root)
        if best is None or places.root in stopped:
            _require_shapes(variables, places, prefix)
            raise next(iter(stopped.values()))
    assert best is not None, "the model itself is always tried"
    return _read_as(model, variables, prefix, best[1])


def _require_shapes(variables: Sequence[Any], places: Places, prefix: str) -> None:
    """Refuse a model whose variables have other shapes than their values."""
    stored = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    for variable in variables:
        place = id(own_variable(variable))
        shape = stored.get(places.keys.get(place, ""))
        if shape is not None and not variable.shape.is_compatible_with(shape):
            raise _other_shape(places.paths.get(place, name_of(variable)), prefix, shape, variable)


def _other_shape(name: str, address: str, shape: Sequence[int], variable: Any) -> IncompleteError:  # noqa: ANN401
    return IncompleteError(
        f"{name} has another shape in {address}",
        why=f"it is {list(shape)} there, and {list(variable.shape)} in the model",
        hint="build the model as it was trained: --model-arg",
        id="model-shape",
    )


def _read_as(model: Any, variables: Sequence[Any], prefix: str, attribute: str | None) -> list[Any]:  # noqa: ANN401
    mark(variables)
    whole = (
        tf.train.Checkpoint(model)
        if attribute is None
        else tf.train.Checkpoint(**{attribute: model})
    )
    whole.read(prefix).expect_partial()
    return marked(variables)


def _by_names(model: Any, source: Source) -> None:  # noqa: ANN401
    """By name: what TensorFlow 1 or another program saved."""
    for one in model.variables:
        variable = one if isinstance(one, tf.Variable) else one.value
        for name in names_of(one):
            found = source.lookup(name)
            if found is None or found.shape is None:
                continue
            if found.shape != tuple(variable.shape):
                raise _other_shape(name, source.location, found.shape, variable)
            array = source.read(found, Selection.whole(found.shape))
            variable.assign(tf.constant(array, variable.dtype))
            break


def mark(variables: Sequence[Any]) -> None:
    """Overwrite variables with values that no training leaves."""
    for variable in variables:
        variable.assign(tf.fill(variable.shape, _mark_of(variable.dtype)))


def marked(variables: Sequence[Any]) -> list[Any]:
    """Those that still have their mark in every element."""
    shown = [one for one in variables if one.shape.num_elements() and one.dtype != tf.bool]
    return [one for one in shown if _is_marked(one)]


def _is_marked(variable: Any) -> bool:  # noqa: ANN401
    dtype, value = variable.dtype.base_dtype, variable.read_value()
    if dtype.is_complex:
        dtype, value = tf.float64, tf.cast(tf.math.real(value), tf.float64)
    same = tf.math.is_nan(value) if dtype.is_floating else tf.equal(value, _mark_of(dtype))
    return bool(tf.reduce_all(same))


def _mark_of(dtype: Any) -> Any:  # noqa: ANN401
    """A value that no training leaves in all elements of a variable."""
    dtype = dtype.base_dtype
    if dtype.is_floating or dtype.is_complex:
        return tf.cast(float("nan"), dtype)
    if dtype == tf.string:
        return tf.constant("\0ckpttool: not restored")
    if dtype == tf.bool:
        return tf.constant(False)
    return tf.constant(dtype.min if dtype.min < 0 else dtype.max, dtype)
