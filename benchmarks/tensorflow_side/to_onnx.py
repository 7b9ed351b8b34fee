"""The other side of `convert CKPT MODEL.onnx --no-check`: restore, freeze, tf2onnx.

to_onnx.py CKPT DST INPUT OUTPUT: a script of the fewest lines.
"""

from __future__ import annotations

import sys

import tensorflow as tf
import tf2onnx.convert

tf1 = tf.compat.v1
source, destination, given, wanted = sys.argv[1:]
with tf.Graph().as_default() as graph, tf1.Session() as session:
    tf1.train.import_meta_graph(f"{source}.meta").restore(session, source)
    names = [wanted.partition(":")[0]]
    frozen = tf1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), names)
tf2onnx.convert.from_graph_def(
    frozen, input_names=[given], output_names=[wanted], opset=18, output_path=destination
)
