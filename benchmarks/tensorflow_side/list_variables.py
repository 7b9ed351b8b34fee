"""The other side of `list PREFIX`: names, dtypes and shapes by TensorFlow."""

from __future__ import annotations

import sys

import tensorflow as tf

reader = tf.train.load_checkpoint(sys.argv[1])
dtypes = reader.get_variable_to_dtype_map()
for name, shape in tf.train.list_variables(sys.argv[1]):
    print(name, dtypes[name].name, shape, sep="\t")
