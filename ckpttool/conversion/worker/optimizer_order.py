"""The values of variables that Keras 3 hides, by their places in the optimizer's list.

``tf.train.Checkpoint`` does not follow layers that a layer of Keras 3 holds in a list or a
dict: Keras puts those into containers of its own (keras/src/utils/tracking.py), and
TensorFlow wraps only plain ones (tensorflow/python/trackable/data_structures.py:
wrap_or_unwrap). The optimizer of a compiled model lists all that is trained, in the order of
``trainable_variables`` (keras/src/optimizers/base_optimizer.py), and TensorFlow does follow
that. Where this list fits the whole model, what is hidden is found by its place in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint.graph_view import ObjectGraphView

from ckpttool.conversion.worker.object_paths import OWN_VALUE, graph_of, own_variable

__all__ = ["hidden", "restore_by_place"]

_TRAINED, _COUNTER = "_trainable_variables", "_iterations"


def hidden(model: Any, variables: Sequence[Any]) -> list[Any]:  # noqa: ANN401
    """Those of a model's variables that no ``tf.train.Checkpoint`` of it has."""
    reached = {id(own_variable(one)) for one in ObjectGraphView(model).breadth_first_traversal()[0]}
    return [one for one in variables if id(one) not in reached]


def restore_by_place(
    model: Any,  # noqa: ANN401
    left: Sequence[Any],
    prefix: str,
    root: str | None,
) -> list[Any]:
    """Give variables that were not restored their values by the list of an optimizer.

    Args:
        model: the rest of whose variables is restored.
        left: variables without a value (``tf.Variable``).
        prefix: of the checkpoint.
        root: the attribute under which it was said to have the model; None: nothing was said.

    Returns:
        Those of them that have a value now: all that are trained, where just one list fits.
        It does where it has the dtypes and shapes of all that the model trains, in their
        order, and the very values of what was restored already. Of several, nothing tells
        which one is the model's.
    """
    trained = [own_variable(one) for one in getattr(model, "trainable_variables", ())]
    places = {id(one): at for at, one in enumerate(trained)}
    waiting = {id(one): one for one in left if id(one) in places}
    if not waiting:
        return []
    reader = tf.train.load_checkpoint(prefix)
    fitting = {
        tuple(keys) for keys in _lists(reader, root) if _fits(reader, keys, trained, waiting)
    }
    if len(fitting) != 1:
        return []
    (keys,) = fitting
    for own, one in waiting.items():
        one.assign(reader.get_tensor(keys[places[own]]))
    return list(waiting.values())


def _lists(reader: Any, root: str | None) -> Iterator[list[str]]:  # noqa: ANN401
    """The keys of what each optimizer of Keras 3 trains, in its order."""
    graph = graph_of(reader)
    for node in _possible(graph, root):
        children = {child.local_name: child.node_id for child in node.children}
        if _TRAINED not in children or _COUNTER not in children:
            continue
        members = {
            child.local_name: graph.nodes[child.node_id]
            for child in graph.nodes[children[_TRAINED]].children
        }
        keys = [
            one.checkpoint_key
            for at in range(len(members))
            if str(at) in members
            for one in members[str(at)].attributes
            if one.name == OWN_VALUE
        ]
        if keys and len(keys) == len(members):
            yield keys


def _possible(graph: Any, root: str | None) -> Sequence[Any]:  # noqa: ANN401
    """The nodes that may be the optimizer of a model under ``root``: below it, or beside it."""
    if root is None:
        return list(graph.nodes)
    beside = graph.nodes[0].children
    waiting = deque(child.node_id for child in beside if child.local_name == root)
    met = {child.node_id for child in beside}
    while waiting:
        for child in graph.nodes[waiting.popleft()].children:
            if child.node_id not in met:
                met.add(child.node_id)
                waiting.append(child.node_id)
    return [graph.nodes[place] for place in sorted(met)]


def _fits(
    reader: Any,  # noqa: ANN401
    keys: Sequence[str],
    trained: Sequence[Any],
    waiting: Container[int],
) -> bool:
    if len(keys) != len(trained):
        return False
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for key, one in zip(keys, trained, strict=True):
        if shapes.get(key) != one.shape.as_list() or dtypes.get(key) != one.dtype.base_dtype:
            return False
    return all(
        id(one) in waiting or _same(one.numpy(), reader.get_tensor(key))
        for key, one in zip(keys, trained, strict=True)
    )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()
