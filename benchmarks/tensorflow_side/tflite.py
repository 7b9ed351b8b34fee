"""The other side of `convert CKPT MODEL.tflite --no-check`: import, restore, convert.

tflite.py CKPT DST INPUT OUTPUT: a script of the fewest lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tensorflow as tf

tf1 = tf.compat.v1
source, destination, given, wanted = sys.argv[1:]
with tf.Graph().as_default() as graph, tf1.Session() as session:
    tf1.train.import_meta_graph(f"{source}.meta").restore(session, source)
    ends = [[graph.get_tensor_by_name(name)] for name in (given, wanted)]
    converter = tf1.lite.TFLiteConverter.from_session(session, *ends)
    Path(destination).write_bytes(converter.convert())
