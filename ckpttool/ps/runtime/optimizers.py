"""Optimizers of every kind → the same, which do something with each gradient first.

The object stays the one that it was, so that a model compiles with it and a checkpoint has
it: only its method that all others come down to is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["push_before_apply"]


def push_before_apply(optimizer: Any, pushed: Callable[[Any, Any], Any]) -> None:
    """Have an optimizer apply ``pushed(gradient, variable)`` in the place of each gradient.

    Keras 3 comes down to ``apply(gradients, variables)``, tf_keras and TensorFlow 1 to
    ``apply_gradients(pairs)``; ``minimize`` calls either.
    """
    if _is_keras_3(optimizer):
        apply = optimizer.apply

        def apply_pushed(grads: Iterable[Any], trainable_variables: Any = None) -> Any:
            variables = trainable_variables
            if variables is None:
                variables = optimizer._trainable_variables
            # A variable of Keras 3 holds one of TensorFlow.
            pairs = zip(grads, variables, strict=True)
            sent = [pushed(gradient, _held(variable)) for gradient, variable in pairs]
            return apply(sent, trainable_variables)

        optimizer.apply = apply_pushed
        return
    apply_gradients = optimizer.apply_gradients

    def apply_gradients_pushed(grads_and_vars: Iterable[Any], *words: Any, **named: Any) -> Any:
        sent = [(pushed(gradient, variable), variable) for gradient, variable in grads_and_vars]
        return apply_gradients(sent, *words, **named)

    optimizer.apply_gradients = apply_gradients_pushed


def _is_keras_3(optimizer: Any) -> bool:
    return any(kind.__module__.startswith("keras.src.") for kind in type(optimizer).__mro__)


def _held(variable: Any) -> Any:
    return getattr(variable, "_value", variable)
