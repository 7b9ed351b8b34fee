"""What rounding took from pushed gradients: a variable for each, on the worker that rounded.

In TensorFlow 2 a strategy's per-worker variable: one function is traced, and in each worker
it reads that worker's own (tensorflow/python/distribute/ps_values.py: ``PerWorkerVariable``;
its scope is not entered, for there may be one already). In TensorFlow 1 a local variable of
the graph, beside the gradient. All start at zero, and end with the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

__all__ = ["Remainders"]

tf1 = tf.compat.v1
_R = tf.raw_ops
_ATTRIBUTE = "_ckpttool_remainders"


@dataclass(frozen=True, slots=True)
class _InGraph:
    """What a graph has of the variables of a ``Link``, by variable.

    Attributes:
        local: remainders, of TensorFlow 1.
        last: the last exchange of each: a variable that is pushed twice in a step has two,
            the second after the first.
    """

    local: dict[Any, Any] = field(default_factory=dict)
    last: dict[Any, Any] = field(default_factory=dict)


class Remainders:
    """Of the variables of one ``Link``.

    Args:
        strategy: the ``ParameterServerStrategy`` under whose coordinator steps run; None:
            there is none (TensorFlow 1, or a single process).
    """

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self._variables: dict[Any, Any] = {}

    def exchange(
        self,
        gradient: tf.Tensor,
        variable: Any,
        rounded: Callable[[tf.Tensor], tuple[tuple[tf.Tensor, ...], tf.Tensor]],
    ) -> tuple[tf.Tensor, ...]:
        """Add to a gradient what was left of the last one, round it, and keep the rest.

        Args:
            gradient: of the variable's shape.
            variable: whose it is.
            rounded: float32 → what is sent, and the same as float32 again.
        """
        handle = self._of(variable, gradient).handle
        with tf.control_dependencies(self._before(variable)):
            whole = gradient + _R.ReadVariableOp(resource=handle, dtype=tf.float32)
        sent, back = rounded(whole)
        kept = _R.AssignVariableOp(resource=handle, value=whole - back)
        return self._after(variable, kept, sent)

    def exchange_rows(
        self,
        rows: tf.Tensor,
        ids: tf.Tensor,
        variable: Any,
        rounded: Callable[[tf.Tensor], tuple[tuple[tf.Tensor, ...], tf.Tensor]],
    ) -> tuple[tf.Tensor, ...]:
        """The same for some rows, none of which comes twice."""
        handle = self._of(variable, rows).handle
        with tf.control_dependencies(self._before(variable)):
            whole = rows + _R.ResourceGather(resource=handle, indices=ids, dtype=tf.float32)
        sent, back = rounded(whole)
        kept = _R.ResourceScatterUpdate(resource=handle, indices=ids, updates=whole - back)
        return self._after(variable, kept, sent)

    def _before(self, variable: Any) -> list[Any]:
        if tf.executing_eagerly():
            return []
        last = self._here().last
        return [last[variable.ref()]] if variable.ref() in last else []

    def _after(
        self, variable: Any, kept: Any, sent: tuple[tf.Tensor, ...]
    ) -> tuple[tf.Tensor, ...]:
        if tf.executing_eagerly():
            return sent
        self._here().last[variable.ref()] = kept
        # Nothing else asks for what is kept.
        with tf.control_dependencies([kept]):
            return tuple(tf.identity(tensor) for tensor in sent)

    def _of(self, variable: Any, gradient: tf.Tensor) -> Any:
        """The remainder of a variable; made at its first push."""
        if not tf1.executing_eagerly_outside_functions():
            local = self._here().local
            if variable.ref() not in local:
                local[variable.ref()] = _local_variable(variable, gradient)
            return local[variable.ref()]
        if variable.ref() not in self._variables:
            with tf.init_scope(), tf.device(None):
                self._variables[variable.ref()] = self._per_worker(variable.shape)
        return self._variables[variable.ref()]

    def _here(self) -> _InGraph:
        """What belongs to the default graph, kept by the graph itself.

        A dictionary of graphs here would never let one go: its values lead back to its keys.
        """
        graph = tf1.get_default_graph()
        of_all: WeakKeyDictionary[Remainders, _InGraph] | None = getattr(graph, _ATTRIBUTE, None)
        if of_all is None:
            of_all = WeakKeyDictionary()
            setattr(graph, _ATTRIBUTE, of_all)
        return of_all.setdefault(self, _InGraph())

    def _per_worker(self, shape: Any) -> Any:
        def make(**_: Any) -> Any:
            # Not tf.Variable: where a strategy's scope is open it would go to a server.
            return ResourceVariable(lambda: tf.zeros(shape), trainable=False)

        if self._strategy is None:
            return make()
        return self._strategy.extended._create_per_worker_variable(make)


def _local_variable(variable: Any, gradient: tf.Tensor) -> Any:
    """On the device of the gradient; ``replica_device_setter`` leaves it there."""
    with tf1.device(gradient.device or None):
        return ResourceVariable(
            lambda: tf.zeros(variable.shape),
            trainable=False,
            collections=[tf1.GraphKeys.LOCAL_VARIABLES],
            name=f"{variable.op.name}/remainder",
        )
