"""The other side of `stats PREFIX`: reads with TensorFlow, the same figures with NumPy."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

reader = tf.train.load_checkpoint(sys.argv[1])
for name in sorted(reader.get_variable_to_shape_map()):
    value = reader.get_tensor(name)
    if value.dtype == object:
        continue
    nan, inf = int(np.isnan(value).sum()), int(np.isinf(value).sum())
    finite = value[np.isfinite(value)] if nan or inf else value.ravel()
    counts, edges = np.histogram(finite, bins=20)
    figures = (
        finite.min(),
        finite.max(),
        finite.mean(dtype=np.float64),
        finite.std(dtype=np.float64),
        np.sqrt(np.square(finite, dtype=np.float64).sum()),
        finite.size - np.count_nonzero(finite),
        nan,
        inf,
    )
    print(name, *figures, *counts, *edges, sep="\t")
