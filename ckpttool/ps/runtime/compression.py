"""Gradients and parameters that travel in fewer bytes, in the graph, on TensorFlow's runtime.

What is made small on one device and large again on another crosses small: TensorFlow sends
the tensor between the two. int8 goes in blocks with a scale each (the largest magnitude
over 127), so one outlier coarsens its block and not all; bf16 is float32 with its mantissa cut.

It pays where the link is the bottleneck; on one machine it costs time. Works in a
``tf.function`` that a coordinator schedules and in a TensorFlow 1 graph alike::

    link = Link(push="int8", pull="bf16")
    weights = link.pull(variable)                 # read on its server, here as float32
    with tf.GradientTape() as tape:
        tape.watch(weights)
        loss = f(weights)
    gradient = link.push(tape.gradient(loss, weights), variable)   # on its server again
    with tf.device(variable.device):
        optimizer.apply_gradients([(gradient, variable)])

A block with a NaN or an infinity comes out without a finite element: nothing is hidden.
"""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf

from ckpttool.errors import UsageError
from ckpttool.ps.setup import CompressionSetup

__all__ = ["BLOCK", "Link", "dequantize", "quantize"]

#: Elements that share a scale; a scale is four bytes.
BLOCK = 2048
_LEVELS = 127.0


def quantize(values: tf.Tensor, block: int = BLOCK) -> tuple[tf.Tensor, tf.Tensor]:
    """float32 of any shape → int8 ``[blocks, block]`` and float32 scales ``[blocks, 1]``.

    The last block is filled with zeros. The error of an element is at most half its scale.
    """
    flat = tf.reshape(values, [-1])
    missing = -tf.size(flat) % block
    blocks = tf.reshape(tf.pad(flat, [[0, missing]]), [-1, block])
    scales = tf.reduce_max(tf.abs(blocks), axis=1, keepdims=True) / _LEVELS
    whole = tf.round(tf.math.divide_no_nan(blocks, scales))
    return tf.cast(tf.clip_by_value(whole, -_LEVELS, _LEVELS), tf.int8), scales


def dequantize(small: tf.Tensor, scales: tf.Tensor, shape: Any) -> tf.Tensor:
    """The values again, in their shape."""
    flat = tf.reshape(tf.cast(small, tf.float32) * scales, [-1])
    return tf.reshape(flat[: tf.reduce_prod(shape)], shape)


class Link:
    """How tensors travel between a worker and the servers of its variables.

    Args:
        push: of gradients: None (as they are) or ``int8``.
        pull: of parameters: None, ``bf16`` or ``int8``.
        error_feedback: add to a gradient what rounding took from the one before it. The
            remainder is a variable of the worker, as large as the gradient, and is lost
            with it: give one for each gradient to ``push``.
        block: elements that share a scale.

    Raises:
        UsageError: id ``compression``: no such form.
    """

    def __init__(
        self,
        push: Literal["int8"] | None = None,
        pull: Literal["bf16", "int8"] | None = None,
        *,
        error_feedback: bool = False,
        block: int = BLOCK,
    ) -> None:
        if push not in {None, "int8"} or pull not in {None, "bf16", "int8"}:
            raise UsageError(
                f"tensors cannot travel as push {push}, pull {pull}",
                why="gradients are pushed as they are or as int8, parameters pulled as they "
                "are, as bf16 or as int8",
                id="compression",
            )
        self._push = push
        self._pull = pull
        self._block = block
        self.error_feedback = error_feedback

    @classmethod
    def of(cls, setup: CompressionSetup) -> Link:
        """The link that ``serve-ps up --push … --pull …`` asked for."""
        return cls(setup.push, setup.pull, error_feedback=setup.error_feedback)  # type: ignore[arg-type]

    def pull(self, variable: Any) -> tf.Tensor:
        """A float32 variable, read on its server and given to whoever asks."""
        with tf.device(variable.device):
            value = variable.read_value()
            if self._pull is None:
                return value
            shape = variable.shape.as_list()
            sent = self._shrunk(value, _block_for(shape, self._block))
        return self._grown(sent, shape)

    def pull_rows(self, variable: Any, ids: tf.Tensor) -> tf.Tensor:
        """Some rows of a variable: only those travel, with a scale each."""
        with tf.device(variable.device):
            rows = tf.gather(variable, ids)
            if self._pull is None:
                return rows
            shape = tf.shape(rows)
            sent = self._shrunk(rows, _row(variable))
        return self._grown(sent, shape)

    def push(self, gradient: tf.Tensor, variable: Any, remainder: Any = None) -> tf.Tensor:
        """A gradient, on the server of its variable.

        Args:
            gradient: dense, of the variable's shape, on this worker.
            variable: whose it is.
            remainder: with ``error_feedback``, a float32 variable of this worker of the
                same shape, zero at first; it is read and written.

        Raises:
            UsageError: id ``compression``: ``error_feedback``, and no remainder.
        """
        if self._push is None:
            return gradient
        if self.error_feedback:
            gradient = gradient + _given(remainder)
        shape = variable.shape.as_list()
        small, scales = quantize(gradient, _block_for(shape, self._block))
        if self.error_feedback:
            kept = remainder.assign(gradient - dequantize(small, scales, shape))
            with tf.control_dependencies([kept]):
                small = tf.identity(small)
        with tf.device(variable.device):
            return dequantize(small, scales, shape)

    def push_rows(self, gradient: tf.Tensor, ids: tf.Tensor, variable: Any) -> tf.IndexedSlices:
        """The gradient of some rows, on the server of their variable; a scale a row.

        Args:
            gradient: of what ``pull_rows`` gave for these ids.
            ids: which rows; one may come several times.
            variable: whose they are.
        """
        shape = variable.shape.as_list()
        rows = tf.reshape(gradient, [-1, *shape[1:]])
        ids = tf.reshape(ids, [-1])
        if self._push is None:
            return tf.IndexedSlices(rows, ids, shape)
        small, scales = quantize(rows, _row(variable))
        with tf.device(variable.device):
            values = dequantize(small, scales, [tf.size(ids), *shape[1:]])
            return tf.IndexedSlices(values, tf.identity(ids), shape)

    def _shrunk(self, value: tf.Tensor, block: int) -> tuple[tf.Tensor, ...]:
        if self._pull == "bf16":
            return (tf.cast(value, tf.bfloat16),)
        return quantize(value, block)

    def _grown(self, sent: tuple[tf.Tensor, ...], shape: Any) -> tf.Tensor:
        if self._pull == "bf16":
            return tf.cast(sent[0], tf.float32)
        return dequantize(sent[0], sent[1], shape)


def _block_for(shape: list[int], block: int) -> int:
    """No block is larger than all there is, or it would be filled with zeros that travel."""
    elements = 1
    for size in shape:
        elements *= size
    return max(1, min(block, elements))


def _row(variable: Any) -> int:
    return _block_for(variable.shape.as_list()[1:], 2**31)


def _given(remainder: Any) -> Any:
    if remainder is None:
        raise UsageError(
            "error feedback has nowhere to keep what rounding takes",
            why="push() was given no remainder",
            hint="make a float32 variable on the worker for each gradient, and pass it",
            id="compression",
        )
    return remainder
