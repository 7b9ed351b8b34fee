"""The other side of `merge --link SRC… -o DST`: MergeV2Checkpoints, which renames files.

merge.py DST SRC…; the sources are gone afterwards.
"""

from __future__ import annotations

import sys

import tensorflow as tf

destination, *sources = sys.argv[1:]
tf.raw_ops.MergeV2Checkpoints(
    checkpoint_prefixes=sources, destination_prefix=destination, delete_old_dirs=False
)
