"""The other side of `repartition SRC DST`: RestoreV2, SaveV2 once a data file, Merge.

repartition.py SRC DST SHARDS PARTS: variables of a megabyte and more are cut into PARTS
slices along their first axis; what is then saved is spread over SHARDS by bytes.
"""

from __future__ import annotations

import sys
from heapq import heapify, heapreplace
from typing import Any

import tensorflow as tf

source, destination = sys.argv[1:3]
shards, parts = int(sys.argv[3]), int(sys.argv[4])

reader = tf.train.load_checkpoint(source)
shapes = reader.get_variable_to_shape_map()
dtypes = reader.get_variable_to_dtype_map()
names = sorted(shapes)
values = tf.raw_ops.RestoreV2(
    prefix=source,
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    dtypes=[dtypes[name] for name in names],
)
pieces: list[tuple[int, str, str, Any]] = []
for name, value in zip(names, values, strict=True):
    size = value.dtype.size * value.shape.num_elements()
    if parts == 1 or size < 2**20:
        pieces.append((size, name, "", value))
        continue
    whole, rest = shapes[name], ":".join("-" for _ in shapes[name][1:])
    rows = whole[0] // parts
    for part in range(parts):
        spec = f"{' '.join(map(str, whole))} {part * rows},{rows}:{rest}"
        pieces.append((size // parts, name, spec, value[part * rows : (part + 1) * rows]))

load = [(0, shard) for shard in range(shards)]
heapify(load)
files: list[list[tuple[int, str, str, Any]]] = [[] for _ in range(shards)]
for piece in sorted(pieces, key=lambda piece: -piece[0]):
    full, shard = load[0]
    files[shard].append(piece)
    heapreplace(load, (full + piece[0], shard))
prefixes = []
for shard, held in enumerate(files):
    prefixes.append(f"{destination}_temp/part-{shard:05d}-of-{shards:05d}")
    tf.raw_ops.SaveV2(
        prefix=prefixes[-1],
        tensor_names=[name for _, name, _, _ in held],
        shape_and_slices=[spec for _, _, spec, _ in held],
        tensors=[value for _, _, _, value in held],
    )
tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=destination)
