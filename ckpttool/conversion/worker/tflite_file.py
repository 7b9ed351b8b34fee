"""What stands in a TensorFlow Lite file, for whoever writes or runs one; runs nothing itself.

Read with our own reader (``formats/tflite.py``), which tells what the interpreter does not:
operations, and how each value is stored.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing

from ckpttool.formats.long_message import FileBytes
from ckpttool.formats.model_summary import most_common
from ckpttool.formats.tflite import TfliteModel, TfliteTensor, read_model
from ckpttool.limits import default_limits
from ckpttool.model import numel
from ckpttool.storage import open_directory

__all__ = ["flex_operators", "float_operators", "float_weights", "operators_text", "read_file"]

#: TensorFlow's own operations are custom ones of this prefix
#: (tensorflow/lite/delegates/flex/util.h).
_FLEX = "Flex"
#: Operators that only lead from floats to integers and back.
_BETWEEN = {"QUANTIZE", "DEQUANTIZE"}
#: What the converter puts in front of names.
_CALLS = ("StatefulPartitionedCall/", "PartitionedCall/")


def read_file(path: str) -> TfliteModel:
    """What a file says of itself.

    Raises:
        NotFoundError: there is none. CorruptError: id ``tflite-malformed``.
    """
    folder, name = os.path.split(path)
    with open_directory(folder or ".") as directory, closing(directory.open(name)) as file:
        return read_model(FileBytes(file), default_limits())


def flex_operators(model: TfliteModel) -> dict[str, int]:
    """TensorFlow's own operations in it, and how often each is there."""
    return {name: count for name, count in model.summary.ops.items() if name.startswith(_FLEX)}


def operators_text(operators: dict[str, int]) -> str:
    """``FlexErf (2), FlexInv``."""
    return ", ".join(
        f"{name} ({count})" if count > 1 else name for name, count in operators.items()
    )


def float_weights(model: TfliteModel, elements: int) -> list[str]:
    """Weights of float32 that have so many elements or more."""
    return [
        _name(tensor)
        for subgraph in model.subgraphs
        for tensor in subgraph.tensors
        if tensor.offset is not None
        and tensor.type.dtype == "float32"
        and numel(tensor.shape) >= elements
    ]


def float_operators(model: TfliteModel) -> dict[str, int]:
    """The operators that compute with float32, and how often each is there."""
    found: Counter[str] = Counter()
    for tensors, operators in model.subgraphs:
        for one in operators:
            if one.name not in _BETWEEN and any(
                tensors[index].type.dtype == "float32" for index in one.outputs if index >= 0
            ):
                found[one.name] += 1
    return most_common(found)


def _name(tensor: TfliteTensor) -> str:
    """A tensor's name without what the converter puts in front; of fused ones the last."""
    name = tensor.name.rpartition(";")[2]
    for prefix in _CALLS:
        name = name.removeprefix(prefix)
    return name
