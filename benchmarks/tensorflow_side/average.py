"""The other side of `average SRC… -o DST`: sums in float64 with NumPy, saved by TensorFlow.

average.py DST SRC…
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

destination, *sources = sys.argv[1:]
readers = [tf.train.load_checkpoint(source) for source in sources]
names = sorted(readers[-1].get_variable_to_shape_map())
means = []
for name in names:
    value = readers[-1].get_tensor(name)
    total = np.zeros(value.shape, np.float64)
    for reader in readers:
        total += reader.get_tensor(name)
    means.append((total / len(readers)).astype(value.dtype))
tf.raw_ops.SaveV2(
    prefix=destination,
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=[tf.constant(mean) for mean in means],
)
