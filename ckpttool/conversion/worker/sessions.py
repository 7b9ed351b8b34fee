"""A TensorFlow 1 session that holds a graph restored from a checkpoint.

The graph's own saver restores it where it has one, so that what is run owes nothing to our
reader; else the values are assigned one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ckpttool.conversion.worker.graph_variables import GraphVariable
from ckpttool.conversion.worker.values import Values

__all__ = ["Saver", "assign", "new_session", "quiet", "restored"]

tf1 = tf.compat.v1


@dataclass(frozen=True, slots=True)
class Saver:
    """How a graph restores itself: run ``operation`` with ``prefix`` fed to ``filename``."""

    operation: str
    filename: str
    prefix: str


def quiet() -> None:
    """Leave out the deprecation warnings of TensorFlow 1's functions, which are meant."""
    tf1.logging.set_verbosity(tf1.logging.ERROR)


def new_session(graph: Any) -> Any:  # noqa: ANN401
    """A session of a graph, on the CPU."""
    return tf1.Session(graph=graph, config=tf1.ConfigProto(allow_soft_placement=True))


def restored(
    graph_def: Any,  # noqa: ANN401
    variables: Iterable[GraphVariable],
    values: Values,
    saver: Saver | None,
    initializers: Sequence[str],
) -> Any:  # noqa: ANN401
    """A session in which the variables of a graph have their values, and tables theirs.

    Args:
        graph_def: the graph, with the operations of the saver.
        variables: those that are to have values.
        values: where from.
        saver: the graph's own; None: values are assigned.
        initializers: operations that fill tables.
    """
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    session = new_session(graph)
    if saver is None or not _by_saver(session, saver):
        assign(session, variables, values)
    for name in initializers:
        session.run(graph.get_operation_by_name(name))
    return session


def assign(session: Any, variables: Iterable[GraphVariable], values: Values) -> None:  # noqa: ANN401
    """Give variables their values, one at a time."""
    graph = session.graph
    for variable in variables:
        array = values.array(variable)
        with graph.as_default():
            tensor = graph.get_tensor_by_name(f"{variable.node}:0")
            value = tf1.placeholder(variable.dtype, array.shape)
            if variable.is_handle:
                operation = tf.raw_ops.AssignVariableOp(resource=tensor, value=value)
            else:
                operation = tf.raw_ops.Assign(ref=tensor, value=value, validate_shape=False).op
        session.run(operation, {value: array})


def _by_saver(session: Any, saver: Saver) -> bool:  # noqa: ANN401
    """Whether the graph's own saver could restore it.

    It cannot where the checkpoint lacks something that the outputs do not need: a slot of
    an optimizer that was stripped.
    """
    operation = session.graph.get_operation_by_name(saver.operation)
    try:
        session.run(operation, {saver.filename: saver.prefix})
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
        return False
    return True
