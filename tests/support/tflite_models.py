"""Models for the tests of TensorFlow Lite, as programs in memory: no checkpoint is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ckpttool.conversion.ports import Port
from ckpttool.conversion.worker.traced_program import TracedProgram, traced

__all__ = [
    "corners",
    "double",
    "inverse",
    "no_operation",
    "not_integer",
    "program",
    "small",
    "text",
    "two",
]

Body = Callable[..., dict[str, Any]]


def program(module: tf.Module, **signatures: tuple[dict[str, tuple[str, Any]], Body]) -> Any:
    """A program of functions: name → (input → (dtype, shape), what it computes)."""
    functions = [
        traced(
            name,
            [Port(key, dtype, shape) for key, (dtype, shape) in inputs.items()],
            body,
        )
        for name, (inputs, body) in signatures.items()
    ]
    return TracedProgram(functions, module)


def weights(module: tf.Module, *shapes: list[int], dtype: str = "float32") -> list[Any]:
    """Seeded variables, which the module owns."""
    generator = np.random.default_rng(7)
    module.owned = [
        tf.Variable(generator.normal(0, 0.3, shape).astype(np.float32).astype(dtype), dtype=dtype)
        for shape in shapes
    ]
    return list(module.owned)


def two() -> Any:
    """Two signatures with large weights; the inputs of one are not in the order of names."""
    module = tf.Module()
    a, b = weights(module, [64, 64], [64, 32])
    rows = ("float32", (None, 64))
    return program(
        module,
        serving_default=(
            {"signal": rows, "bias": ("float32", (None, 32))},
            lambda signal, bias: {"y": tf.nn.relu(signal @ a) @ b + bias},
        ),
        scores=({"x": rows}, lambda x: {"probs": tf.nn.softmax(x @ b)}),
    )


def small() -> Any:
    """Weights that are too small to be quantised on their own."""
    module = tf.Module()
    (a,) = weights(module, [8, 4])
    return program(
        module, serving_default=({"x": ("float32", (None, 8))}, lambda x: {"y": tf.tanh(x @ a)})
    )


def not_integer() -> Any:
    """An operation that no quantiser knows, after one that all do."""
    module = tf.Module()
    (a,) = weights(module, [64, 64])
    return program(
        module,
        serving_default=(
            {"x": ("float32", (None, 64))},
            lambda x: {"y": tf.math.atan2(x @ a, x)},
        ),
    )


def inverse() -> Any:
    """An operation that TensorFlow has and TensorFlow Lite has not."""
    module = tf.Module()
    (a,) = weights(module, [4, 4])
    return program(
        module,
        serving_default=(
            {"x": ("float32", (None, 4, 4))},
            lambda x: {"y": tf.linalg.inv(x + 3 * tf.eye(4)) @ a},
        ),
    )


def double() -> Any:
    """A dtype that it has an operation for, but not this one."""
    module = tf.Module()
    (a,) = weights(module, [4, 4], dtype="float64")
    return program(module, serving_default=({"x": ("float64", (None, 4))}, lambda x: {"y": x @ a}))


def no_operation() -> Any:
    """An operation that neither of the two can lend it."""
    module = tf.Module()
    (a,) = weights(module, [4, 4])
    return program(
        module,
        serving_default=(
            {"x": ("float32", (None, 4))},
            lambda x: {"y": tf.raw_ops.NthElement(input=x @ a, n=1)},
        ),
    )


def text() -> Any:
    """Text that is handed on beside numbers."""
    module = tf.Module()
    (a,) = weights(module, [3, 2])
    return program(
        module,
        serving_default=(
            {"words": ("string", (None,)), "x": ("float32", (None, 3))},
            lambda words, x: {"words": words, "y": x @ a},
        ),
    )


def corners() -> Any:
    """A scalar, an input that nothing uses, outputs that are the same, an input, a constant."""
    module = tf.Module()
    (a,) = weights(module, [3, 3])

    def body(x: Any, unused: Any, rate: Any) -> dict[str, Any]:
        del unused
        y = x @ a * rate
        return {"first": y, "again": y, "given": x, "fixed": tf.constant([1.0, 2.0])}

    rows = ("float32", (None, 3))
    return program(
        module,
        serving_default=({"x": rows, "unused": rows, "rate": ("float32", ())}, body),
    )
