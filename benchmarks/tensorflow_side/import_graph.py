"""The other side of `inspect FILE.meta --graph`: parse a MetaGraph and import it.

import_graph.py FILE: prints the number of ops, and each with its count, as ckpttool does.
"""

from __future__ import annotations

import sys
from collections import Counter

import tensorflow as tf

with tf.Graph().as_default() as graph:
    tf.compat.v1.train.import_meta_graph(sys.argv[1])
    ops = Counter(op.type for op in graph.get_operations())
    placeholders = [
        (op.name, op.get_attr("dtype").name, op.outputs[0].shape)
        for op in graph.get_operations()
        if op.type == "Placeholder"
    ]
print(sum(ops.values()), placeholders)
for name, number in ops.most_common():
    print(name, number, sep="\t")
