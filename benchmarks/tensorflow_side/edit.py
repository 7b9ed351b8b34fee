"""The other side of `edit SRC DST`: reads what stays, changes it and saves it.

edit.py SRC DST HOW: ``strip`` leaves Adam's slots out, ``rename`` puts ``new/`` before every
name, ``cast`` makes bfloat16 of float32.
"""

from __future__ import annotations

import sys

import tensorflow as tf

source, destination, how = sys.argv[1:]
reader = tf.train.load_checkpoint(source)
dtypes = reader.get_variable_to_dtype_map()
names = sorted(name for name in dtypes if how != "strip" or not name.endswith(("/Adam", "/Adam_1")))
values = tf.raw_ops.RestoreV2(
    prefix=source,
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    dtypes=[dtypes[name] for name in names],
)
if how == "cast":
    values = [
        tf.cast(value, tf.bfloat16) if value.dtype == tf.float32 else value for value in values
    ]
tf.raw_ops.SaveV2(
    prefix=destination,
    tensor_names=[f"new/{name}" for name in names] if how == "rename" else names,
    shape_and_slices=[""] * len(names),
    tensors=values,
)
