"""Which key of a checkpoint a variable of a model takes, by the object graphs of both.

The same walk that a restore makes (tensorflow/python/checkpoint/restore.py): from the root
along the names that both graphs have; the first place at which an object is met counts.
Nothing is restored, so all that does not fit is known at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint.graph_view import ObjectGraphView
from tensorflow.python.trackable.base import Trackable

from ckpttool.errors import NotFoundError, UsageError
from ckpttool.sources.nearest import nearest

__all__ = [
    "OWN_VALUE",
    "Places",
    "find_places",
    "fitting_roots",
    "graph_of",
    "own_variable",
    "require_root",
    "require_trackable",
    "roots",
]

#: What an object that is a variable saves its value as.
OWN_VALUE = "VARIABLE_VALUE"

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
#: Attributes of a checkpoint that are never the model.
_OTHERS = {"save_counter", "optimizer", "step", "global_step", "epoch"}
#: Attributes that an error names.
_NAMED = 20


class Places(NamedTuple):
    """Where a checkpoint has the variables of a model, by ``id`` of ``own_variable``.

    Attributes:
        root: the attribute under which it has the model; None: the model is its root.
        keys: of those that it has a value for.
        paths: of all that a ``tf.train.Checkpoint`` of the model follows, from the root.
    """

    root: str | None
    keys: dict[int, str]
    paths: dict[int, str]


def graph_of(reader: Any) -> Any:  # noqa: ANN401
    """The object graph (``TrackableObjectGraph``) that a reader of a checkpoint has."""
    return trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.get_tensor(_GRAPH))


def require_trackable(model: Any, address: str) -> None:  # noqa: ANN401
    """Refuse a model that no object graph can have.

    Raises:
        UsageError: id ``model-kind``.
    """
    if not isinstance(model, Trackable):
        raise UsageError(
            f"{address} is an object-based checkpoint, and --model returns a "
            f"{type(model).__name__}",
            why="only a tf.Module or a Keras model has a place in one",
            hint="return the model that was saved, or derive its class from tf.Module",
            id="model-kind",
        )


def require_root(address: str, root: str) -> None:
    """Refuse the name of an attribute that an object-based checkpoint has not.

    Raises:
        NotFoundError: id ``model-root-unknown``.
    """
    known = [
        one.local_name for one in graph_of(tf.train.load_checkpoint(address)).nodes[0].children
    ]
    if root in known:
        return
    near = nearest(root, known)
    shown = list(dict.fromkeys([*near, *sorted(known)]))
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    raise NotFoundError(
        f"{address} has no attribute {root}",
        why=f"it has {', '.join(shown[:_NAMED]) or 'none'}{more}",
        hint=f"did you mean: --root {near[0]}" if near else "leave --root out to have it found",
        id="model-root-unknown",
    )


def own_variable(variable: Any) -> Any:  # noqa: ANN401
    """TensorFlow's own object of a variable; of Keras 3 it is an object around it."""
    return getattr(variable, "_value", variable)


def roots(graph: Any) -> Iterator[str | None]:  # noqa: ANN401
    """What the model may be called in a checkpoint, the likeliest first; None: it is the root."""
    names = [child.local_name for child in graph.nodes[0].children]
    likely = [name for name in names if name not in _OTHERS]
    yield from sorted(likely, key=lambda name: name not in {"model", "net", "module"})
    yield None


def find_places(
    model: Any,  # noqa: ANN401
    variables: Sequence[Any],
    prefix: str,
    root: str | None,
) -> Places:
    """Find the variables of a model in a checkpoint.

    Args:
        model: whose variables all exist.
        variables: all of them (``tf.Variable``).
        prefix: of an object-based checkpoint.
        root: the attribute under which the checkpoint has the model; None: the one under
            which it has most of it.
    """
    graph = graph_of(tf.train.load_checkpoint(prefix))
    view = ObjectGraphView(model)
    asked = {id(one) for one in variables}
    best: tuple[int, str | None, dict[int, str]] | None = None
    for attribute in [root] if root is not None else roots(graph):
        keys = _keys(view, model, graph, _node_of(graph, attribute))
        found = len(asked & keys.keys())
        if best is None or found > best[0]:
            best = (found, attribute, keys)
    assert best is not None, "the model itself is always tried"
    _, chosen, keys = best
    return Places(chosen, keys, _paths(view, chosen))


def fitting_roots(model: Any, variables: Sequence[Any], prefix: str) -> list[str | None]:  # noqa: ANN401
    """Under what a checkpoint has all variables of a model, each time others, as ``roots``."""
    graph = graph_of(tf.train.load_checkpoint(prefix))
    view = ObjectGraphView(model)
    asked = {id(one) for one in variables}
    found: dict[frozenset[str], str | None] = {}
    for attribute in roots(graph):
        keys = _keys(view, model, graph, _node_of(graph, attribute))
        if asked <= keys.keys():
            found.setdefault(frozenset(keys[one] for one in asked), attribute)
    return list(found.values())


def _node_of(graph: Any, attribute: str | None) -> int | None:  # noqa: ANN401
    if attribute is None:
        return 0
    children = graph.nodes[0].children
    return next((one.node_id for one in children if one.local_name == attribute), None)


def _keys(view: ObjectGraphView, model: Any, graph: Any, place: int | None) -> dict[int, str]:  # noqa: ANN401
    if place is None:
        return {}
    met = {id(model): model}  # the objects too: an ``id`` is one's own only while that lives
    waiting = deque([(model, graph.nodes[place])])
    keys = {}
    while waiting:
        one, node = waiting.popleft()
        for saved in node.attributes:
            if saved.name == OWN_VALUE:
                keys[id(own_variable(one))] = saved.checkpoint_key
        here = view.children(one) if node.children else {}
        for child in node.children:
            found = here.get(child.local_name)
            if found is not None and id(found) not in met:
                met[id(found)] = found
                waiting.append((found, graph.nodes[child.node_id]))
    return keys


def _paths(view: ObjectGraphView, root: str | None) -> dict[int, str]:
    objects, ways = view.breadth_first_traversal()
    above = () if root is None else (root,)
    return {
        id(own_variable(one)): "/".join((*above, *(step.name for step in ways[one])))
        for one in objects
    }
