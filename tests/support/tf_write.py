"""Writes checkpoints with TensorFlow, in the test's own process.

TensorFlow is imported inside the functions: call `pytest.importorskip("tensorflow")`
first. Its import takes seconds, once a process, so tests that write with it should
stand together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["write_name_based", "write_object_based", "write_sharded", "write_slices"]

#: A slice to write: start, extent (one number a dimension), and its elements.
SlicePart = tuple[Sequence[int], Sequence[int], Any]


def _save(prefix: str, names: list[str | bytes], specs: list[str], tensors: list[Any]) -> None:
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=tf.constant(names, tf.string),
        shape_and_slices=tf.constant(specs, tf.string),
        tensors=[tf.convert_to_tensor(tensor) for tensor in tensors],
    )


def write_name_based(
    prefix: str | os.PathLike[str], variables: Mapping[str, Any] | Mapping[bytes, Any]
) -> str:
    """Write a name-based checkpoint of one shard; values are arrays or tensors.

    Returns:
        The prefix.
    """
    path = os.fspath(prefix)
    names: list[str | bytes] = list(variables)
    _save(path, names, [""] * len(names), list(variables.values()))
    return path


def write_sharded(prefix: str | os.PathLike[str], shards: Sequence[Mapping[str, Any]]) -> str:
    """Write a name-based checkpoint with one data file for each member of ``shards``."""
    import tensorflow as tf

    path = os.fspath(prefix)
    parts = [
        write_name_based(f"{path}_temp/part-{number:05d}", variables)
        for number, variables in enumerate(shards)
    ]
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=path)
    return path


def write_slices(
    prefix: str | os.PathLike[str],
    name: str,
    full_shape: Sequence[int],
    parts: Sequence[SlicePart],
    others: Mapping[str, Any] | None = None,
) -> str:
    """Write one partitioned variable (and whole ``others`` beside it)."""
    path = os.fspath(prefix)
    names: list[str | bytes] = []
    specs: list[str] = []
    tensors: list[Any] = []
    for start, extent, elements in parts:
        ranges = ":".join(f"{first},{count}" for first, count in zip(start, extent, strict=True))
        names.append(name)
        specs.append(f"{' '.join(map(str, full_shape))} {ranges}")
        tensors.append(elements)
    for other, value in (others or {}).items():
        names.append(other)
        specs.append("")
        tensors.append(value)
    _save(path, names, specs, tensors)
    return path


def write_object_based(prefix: str | os.PathLike[str], **objects: Any) -> str:
    """Write an object-based checkpoint of these trackable objects."""
    import tensorflow as tf

    return str(tf.train.Checkpoint(**objects).write(os.fspath(prefix)))
