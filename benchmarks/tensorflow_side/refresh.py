"""The other side of `convert CKPT DST --to savedmodel --like EXPORT`: build, restore, save.

refresh.py CKPT DST: what a training loop does without ckpttool; it needs the model's code.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from benchmarks.served_model import Served

source, destination = sys.argv[1:]
model = Served()
tf.train.Checkpoint(model=model).read(source).assert_existing_objects_matched()
tf.saved_model.save(model, destination, signatures=model.signature())
