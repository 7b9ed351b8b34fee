"""The other side of `edit SRC DST --strip-optimizer`: reads the rest and saves it."""

from __future__ import annotations

import sys

import tensorflow as tf

source, destination = sys.argv[1:]
reader = tf.train.load_checkpoint(source)
names = sorted(
    name for name in reader.get_variable_to_shape_map() if not name.endswith(("/Adam", "/Adam_1"))
)
dtypes = reader.get_variable_to_dtype_map()
values = tf.raw_ops.RestoreV2(
    prefix=source,
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    dtypes=[dtypes[name] for name in names],
)
tf.raw_ops.SaveV2(
    prefix=destination,
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=values,
)
