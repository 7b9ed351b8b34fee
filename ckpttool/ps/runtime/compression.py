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

``link.optimizer(optimizer)`` does the push wherever that optimizer is used. Nobody waits for
anybody: each worker pushes when it has a gradient. Only float32 is made smaller.

A block with a NaN or an infinity comes out without a finite element: nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf

from ckpttool.errors import UsageError
from ckpttool.ps.runtime.optimizers import push_before_apply
from ckpttool.ps.runtime.remainders import Remainders
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
    shape = tf.cast(shape, tf.int32)  # of a scalar it is empty, and would be of floats
    flat = tf.reshape(tf.cast(small, tf.float32) * scales, [-1])
    return tf.reshape(flat[: tf.reduce_prod(shape)], shape)


class Link:
    """How tensors travel between a worker and the servers of its variables.

    Args:
        push: of gradients: None (as they are) or ``int8``.
        pull: of parameters: None, ``bf16`` or ``int8``.
        error_feedback: add to a gradient what rounding took from the one before it. The
            remainder is a variable of the worker, as large as the parameters (a whole table
            where rows are pushed), and is lost with it.
        block: elements that share a scale.
        strategy: the ``ParameterServerStrategy`` under whose coordinator steps run; only
            ``error_feedback`` has need of it, in TensorFlow 2.

    Attributes:
        used: ``push`` and ``pull``, each once a tensor has travelled that way.

    Raises:
        UsageError: id ``compression``: no such form, or feedback on what is not rounded.
    """

    def __init__(
        self,
        push: Literal["int8"] | None = None,
        pull: Literal["bf16", "int8"] | None = None,
        *,
        error_feedback: bool = False,
        block: int = BLOCK,
        strategy: Any = None,
    ) -> None:
        if push not in {None, "int8"} or pull not in {None, "bf16", "int8"}:
            raise UsageError(
                f"tensors cannot travel as push {push}, pull {pull}",
                why="gradients are pushed as they are or as int8, parameters pulled as they "
                "are, as bf16 or as int8",
                id="compression",
            )
        if error_feedback and push is None:
            raise UsageError(
                "there is nothing to feed back",
                why="gradients are pushed as they are: rounding takes nothing from them",
                hint="add push='int8', or leave error_feedback out",
                id="compression",
            )
        self._push = push
        self._pull = pull
        self._block = block
        self._remainders = Remainders(strategy) if error_feedback else None
        self.used: set[Literal["push", "pull"]] = set()

    @classmethod
    def of(cls, setup: CompressionSetup, strategy: Any) -> Link:
        """The link that ``serve-ps up --push … --pull …`` asked for."""
        return cls(
            setup.push,  # type: ignore[arg-type]
            setup.pull,  # type: ignore[arg-type]
            error_feedback=setup.error_feedback,
            strategy=strategy,
        )

    def optimizer(self, optimizer: Any) -> Any:
        """The same optimizer, which from now on pushes every gradient before it applies it.

        ::

            model.compile(ctx.optimizer(tf_keras.optimizers.Adagrad(0.1)), "mse")

        Args:
            optimizer: of tf_keras, Keras 3 or TensorFlow 1; not yet wrapped.
        """
        if self._push is not None:
            self.used.add("push")
            push_before_apply(optimizer, self._pushed)
        return optimizer

    def _pushed(self, gradient: Any, variable: Any) -> Any:
        """A gradient of any sort on the server of its variable."""
        if gradient is None:
            return None
        if isinstance(gradient, tf.IndexedSlices):
            return self.push_rows(gradient.values, gradient.indices, variable)
        return self.push(gradient, variable)

    def pull(self, variable: Any) -> tf.Tensor:
        """A variable, read on its server and given to whoever asks."""
        self.used.add("pull")
        with tf.device(variable.device):
            value = variable.read_value()
            if self._pull is None or value.dtype != tf.float32:
                return value
            shape = variable.shape.as_list()
            sent = self._shrunk(value, _block_for(shape, self._block))
        return self._grown(sent, shape)

    def pull_rows(self, variable: Any, ids: tf.Tensor) -> tf.Tensor:
        """Some rows of a variable: only those travel, with a scale each."""
        self.used.add("pull")
        with tf.device(variable.device):
            rows = tf.gather(variable, ids)
            if self._pull is None or rows.dtype != tf.float32:
                return rows
            shape = tf.shape(rows)
            sent = self._shrunk(rows, _row(variable))
        return self._grown(sent, shape)

    def push(self, gradient: tf.Tensor, variable: Any) -> tf.Tensor:
        """A gradient, on the server of its variable.

        Args:
            gradient: dense, of the variable's shape, on this worker.
            variable: whose it is.
        """
        self.used.add("push")
        if self._push is None or gradient.dtype != tf.float32:
            return gradient
        shape = variable.shape.as_list()
        block = _block_for(shape, self._block)
        if self._remainders is None:
            sent = quantize(gradient, block)
        else:
            sent = self._remainders.exchange(gradient, variable, _rounding(block, shape))
        with tf.device(variable.device):
            return dequantize(*sent, shape)

    def push_rows(self, gradient: tf.Tensor, ids: tf.Tensor, variable: Any) -> tf.IndexedSlices:
        """The gradient of some rows, on the server of their variable; a scale a row.

        With ``error_feedback`` what is left of a row waits until it is pushed again.

        Args:
            gradient: of what ``pull_rows`` gave for these ids.
            ids: which rows; one may come several times.
            variable: whose they are.
        """
        self.used.add("push")
        shape = variable.shape.as_list()
        rows = tf.reshape(gradient, [-1, *shape[1:]])
        ids = tf.reshape(ids, [-1])
        if self._push is None or rows.dtype != tf.float32:
            return tf.IndexedSlices(rows, ids, shape)
        if self._remainders is None:
            sent = quantize(rows, _row(variable))
        else:
            ids, which = tf.unique(ids)
            rows = tf.math.unsorted_segment_sum(rows, which, tf.size(ids))
            rounding = _rounding(_row(variable), tf.shape(rows))
            sent = self._remainders.exchange_rows(rows, ids, variable, rounding)
        with tf.device(variable.device):
            values = dequantize(*sent, [tf.size(ids), *shape[1:]])
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


def _rounding(
    block: int, shape: Any
) -> Callable[[tf.Tensor], tuple[tuple[tf.Tensor, ...], tf.Tensor]]:
    """What is sent of a tensor, and what arrives."""

    def rounded(values: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        sent = quantize(values, block)
        return sent, dequantize(*sent, shape)

    return rounded
