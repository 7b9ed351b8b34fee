"""An ONNX model as files: its initializers in it or in a file beside it, written in pieces.

The message is put together by hand around weights that are never all in memory
(onnx/onnx.proto: the graph is field 7 of a model, an initializer field 5 of a graph, the
bytes of a tensor field 9). In a file beside it every weight begins at a page, so that a
runtime can map it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, BinaryIO

from ckpttool.conversion.worker.onnx_weights import LaidOut
from ckpttool.errors import ChangedError, UsageError
from ckpttool.formats.wire import encode_varint

__all__ = ["tensor_type", "write_model"]

_GRAPH, _INITIALIZER, _RAW = 7, 5, 9
_LENGTH_DELIMITED = 2
_PAGE = 4096


def write_model(model: Any, weights: Mapping[str, LaidOut], path: str, *, beside: bool) -> None:  # noqa: ANN401
    """Write a model; ``beside``: its weights into ``path`` + ``.data``.

    Args:
        model: a ModelProto without those weights.
        weights: initializer → weight, in the order in which they are written.
        path: of the model.
        beside: whether the weights get a file of their own.

    Raises:
        UsageError: id ``onnx-file-name``: the model cannot say the name of that file.
        ChangedError: a weight does not have the bytes that it had.
    """
    if beside:
        _write_beside(model, weights, path)
    else:
        _write_inside(model, weights, path)


def tensor_type(dtype: str) -> int:
    """ONNX's number of TensorFlow's word."""
    from tf2onnx.tf_utils import TF_TO_ONNX_DTYPE

    from ckpttool.formats.dtypes import BY_NAME

    number: int = TF_TO_ONNX_DTYPE[BY_NAME[dtype].number]
    return number


def _write_inside(model: Any, weights: Mapping[str, LaidOut], path: str) -> None:  # noqa: ANN401
    heads = {name: _described(name, one).SerializeToString() for name, one in weights.items()}
    graph = model.graph.SerializeToString(deterministic=True)
    lengths = {
        name: len(head) + len(_tag(_RAW, weights[name].nbytes)) + weights[name].nbytes
        for name, head in heads.items()
    }
    total = sum(len(_tag(_INITIALIZER, length)) + length for length in lengths.values())
    rest = type(model)()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    with open(path, "wb") as file:
        file.write(rest.SerializeToString(deterministic=True))
        file.write(_tag(_GRAPH, len(graph) + total))
        file.write(graph)
        for name, head in heads.items():
            file.write(_tag(_INITIALIZER, lengths[name]))
            file.write(head)
            file.write(_tag(_RAW, weights[name].nbytes))
            _write_elements(file, name, weights[name])


def _write_beside(model: Any, weights: Mapping[str, LaidOut], path: str) -> None:  # noqa: ANN401
    from onnx import TensorProto

    location = f"{os.path.basename(path)}.data"
    try:
        location.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"a model with weights beside it cannot be called {os.path.basename(path)}",
            why="it names the file with its weights, and an ONNX model holds text only",
            hint="choose a name that is UTF-8",
            id="onnx-file-name",
        ) from None
    with open(f"{path}.data", "wb") as file:
        for name, one in weights.items():
            file.write(bytes(-file.tell() % _PAGE))
            tensor = _described(name, one)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", location),
                ("offset", str(file.tell())),
                ("length", str(one.nbytes)),
            ):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            model.graph.initializer.append(tensor)
            _write_elements(file, name, one)
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


def _described(name: str, weight: LaidOut) -> Any:  # noqa: ANN401
    from onnx import TensorProto

    return TensorProto(name=name, data_type=tensor_type(weight.dtype), dims=weight.shape)


def _tag(field: int, length: int) -> bytes:
    return encode_varint(field << 3 | _LENGTH_DELIMITED) + encode_varint(length)


def _write_elements(file: BinaryIO, name: str, weight: LaidOut) -> None:
    written = sum(map(file.write, weight.chunks()))
    if written != weight.nbytes:
        raise ChangedError(
            f"the weight {name} changed while it was written",
            why=f"{written} bytes were read, and it has {weight.nbytes}",
            hint="run the command again",
        )
