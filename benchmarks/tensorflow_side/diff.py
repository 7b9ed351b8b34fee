"""The other side of `diff A B`: every value of both, and how far they are apart."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

a, b = (tf.train.load_checkpoint(prefix) for prefix in sys.argv[1:3])
for name in sorted(a.get_variable_to_shape_map()):
    left, right = a.get_tensor(name), b.get_tensor(name)
    if np.array_equal(left, right):
        continue
    apart = np.abs(left - right)
    relative = apart / np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-45)
    print(
        name,
        apart.max(),
        relative.max(),
        np.sqrt(np.mean(np.square(apart, dtype=np.float64))),
        np.count_nonzero(apart),
        sep="\t",
    )
