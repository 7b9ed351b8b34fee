"""The model of 100 MB that is exported and refreshed; imports TensorFlow.

`python -m benchmarks.served_model DIRECTORY` writes an export, and a checkpoint of later
values with Adam's slots.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

__all__ = ["Served", "write"]

_LAYERS, _WIDTH = 25, 1000


class Served(tf.Module):  # type: ignore[misc]
    """Twenty-five matrix products of 4 MB each."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = [
            tf.Variable(tf.zeros((_WIDTH, _WIDTH)), name=f"layer_{number}/kernel")
            for number in range(_LAYERS)
        ]

    @tf.function  # type: ignore[untyped-decorator]
    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        for kernel in self.kernels:
            x = tf.nn.relu(tf.matmul(x, kernel))
        return x

    def signature(self) -> Any:
        """What is served."""
        return self.__call__.get_concrete_function(tf.TensorSpec([None, _WIDTH], name="x"))


def write(folder: Path) -> None:
    """Write ``export`` and ``model.ckpt-1``."""
    model = Served()
    tf.saved_model.save(model, str(folder / "export"), signatures=model.signature())
    optimizer = tf.keras.optimizers.Adam()
    optimizer.build(model.kernels)
    for number, kernel in enumerate(model.kernels):
        kernel.assign(tf.random.stateless_normal(kernel.shape, (1, number)))
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(folder / "model.ckpt-1"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
