"""The other side of `load PREFIX 'NAME[0:10]' -o OUT`: rows of a variable to a .npy file."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

prefix, name, rows, out = sys.argv[1:]
np.save(out, tf.train.load_checkpoint(prefix).get_tensor(name)[: int(rows)])
