"""The other side of `verify PREFIX`: reads every variable, which checks every checksum."""

from __future__ import annotations

import sys

import tensorflow as tf

reader = tf.train.load_checkpoint(sys.argv[1])
for name in reader.get_variable_to_shape_map():
    reader.get_tensor(name)
