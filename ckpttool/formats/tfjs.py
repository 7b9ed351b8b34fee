"""The JSON of a TensorFlow.js model: which weights are in which files, and how.

``model.json`` of graph models and layers models, and the ``weights_manifest.json`` that
stands beside the ``.pb`` of the form before 1.0. The weights of a group lie one after the
other in its files, as if those were one (tfjs-core/src/io/types.ts and io_utils.ts). The
topology is read for a summary, and never built.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ckpttool.errors import CkpttoolError, UnsupportedError
from ckpttool.formats.bounds import require_count, require_shape
from ckpttool.formats.json_text import json_malformed, parse_json
from ckpttool.formats.metagraph import Signature, TensorInfo
from ckpttool.formats.model_summary import ModelSummary, most_common
from ckpttool.limits import Limits
from ckpttool.model import numel

__all__ = ["SIZES", "Quantisation", "TfjsModel", "Weight", "WeightGroup", "parse_model"]

#: Bytes of an element as stored; a string has four of length, and its own.
SIZES = {"float32": 4, "int32": 4, "bool": 1, "complex64": 8, "string": 0}
_QUANTISED = {"uint8": 1, "uint16": 2, "float16": 2}


class Quantisation(NamedTuple):
    """A weight is stored as ``dtype``, and stands for ``minimum + stored * scale``.

    ``float16`` stands for itself, and has neither.
    """

    dtype: str
    minimum: float
    scale: float


class Weight(NamedTuple):
    """A weight; ``dtype`` is that of the numbers it stands for."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantisation: Quantisation | None

    @property
    def itemsize(self) -> int:
        """Bytes of an element as stored; 0 for strings."""
        stored = self.quantisation
        return SIZES[self.dtype] if stored is None else _QUANTISED[stored.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes as stored; 0 for strings."""
        return numel(self.shape) * self.itemsize


class WeightGroup(NamedTuple):
    """Weights that lie one after the other in files that are one after the other."""

    paths: tuple[str, ...]
    weights: tuple[Weight, ...]


class TfjsModel(NamedTuple):
    """A model: its weights, and what it says of itself (None of a manifest alone)."""

    groups: tuple[WeightGroup, ...]
    summary: ModelSummary | None


def parse_model(data: bytes, path: str, limits: Limits) -> TfjsModel:
    """Read the JSON of a model; the caller has bounded its length.

    Raises:
        CorruptError: id ``json-malformed``; ``shape-overflow``, ``negative-dimension``.
        LimitError: ids ``limit-entries``, ``limit-shards``, ``limit-rank``.
        UnsupportedError: id ``dtype-unsupported``: a type whose size is not known.
    """
    found = parse_json(data, path)
    alone = isinstance(found, list)
    manifest = found.get("weightsManifest", []) if isinstance(found, dict) else found
    parser = _Parser(path, limits)
    if not isinstance(manifest, list):
        raise json_malformed(path, "it has no weightsManifest")
    groups = tuple(parser.group(group) for group in manifest)
    summary = None if alone or not isinstance(found, dict) else _summary(found, groups)
    return TfjsModel(groups, summary)


class _Parser:
    """Reads the manifest; counts what all groups have together."""

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._names: set[str] = set()
        self._paths = 0

    def group(self, group: object) -> WeightGroup:
        if not isinstance(group, dict):
            raise self._malformed("a group of weights is no object")
        paths, weights = group.get("paths"), group.get("weights")
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise self._malformed("the paths of a group are no texts")
        if not isinstance(weights, list):
            raise self._malformed("a group has no weights")
        self._paths += len(paths)
        require_count(self._path, max(self._paths, len(self._names) + len(weights)), self._limits)
        return WeightGroup(tuple(paths), tuple(map(self._weight, weights)))

    def _weight(self, weight: object) -> Weight:
        if not isinstance(weight, dict):
            raise self._malformed("a weight is no object")
        name, dtype, shape = (weight.get(key) for key in ("name", "dtype", "shape"))
        if not isinstance(name, str) or not isinstance(dtype, str):
            raise self._malformed("a weight has no name or no dtype")
        if name in self._names:
            raise self._malformed(f"the weight {name} is there twice")
        self._names.add(name)
        if dtype not in SIZES:
            raise UnsupportedError(
                f"{name} in {self._path} has an unknown type",
                why=f"TensorFlow.js has no {dtype}, so where the weights behind it lie is not "
                "known",
                id="dtype-unsupported",
            )
        if not isinstance(shape, list) or not all(type(size) is int for size in shape):
            raise self._malformed(f"the shape of {name} is not of numbers")
        checked = require_shape(name, shape, self._limits)
        quantisation = weight.get("quantization")
        return Weight(
            name,
            dtype,
            checked,
            None if quantisation is None else self._quantisation(name, dtype, quantisation),
        )

    def _quantisation(self, name: str, dtype: str, value: object) -> Quantisation | None:
        stored = value.get("dtype") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(stored, str) or stored not in _QUANTISED:
            raise self._malformed(f"the quantization of {name} is of no known type")
        if dtype not in {"float32", "int32"} or (stored == "float16" and dtype != "float32"):
            raise self._malformed(f"{name} is {dtype}, which is not quantised to {stored}")
        if stored == "float16":
            return Quantisation(stored, 0.0, 1.0)
        numbers = [value.get(key) for key in ("min", "scale")]
        if not all(isinstance(number, int | float) for number in numbers):
            raise self._malformed(f"the quantization of {name} has no min or no scale")
        try:
            minimum, scale = (float(number) for number in numbers)  # type: ignore[arg-type]
        except OverflowError:
            minimum = scale = math.inf
        if not math.isfinite(minimum) or not math.isfinite(scale):
            raise self._malformed(f"the quantization of {name} has a min or scale past all bounds")
        return Quantisation(stored, minimum, scale)

    def _malformed(self, why: str) -> CkpttoolError:
        return json_malformed(self._path, why)


def _summary(model: dict[str, object], groups: tuple[WeightGroup, ...]) -> ModelSummary:
    """What is said beside the weights; anything of another form is left out."""
    writers = [model.get(key) for key in ("generatedBy", "convertedBy")]
    topology = model.get("modelTopology")
    form = model.get("format")
    layers = form == "layers-model" or (
        isinstance(topology, dict) and ("model_config" in topology or "class_name" in topology)
    )
    ops = Counter(_layers(topology) if layers else _nodes(topology))
    quantised = sum(w.quantisation is not None for group in groups for w in group.weights)
    return ModelSummary(
        ", ".join(writer for writer in writers if isinstance(writer, str)),
        form if isinstance(form, str) else "layers-model" if layers else "graph-model",
        {},
        _signatures(model),
        most_common(ops),
        quantised,
    )


def _nodes(topology: object) -> Iterator[str]:
    """The ops of a graph and of its functions."""
    graph = topology if isinstance(topology, dict) else {}
    lists = [graph.get("node")]
    library = graph.get("library")
    functions = library.get("function") if isinstance(library, dict) else None
    lists.extend(
        function.get("nodeDef") if isinstance(function, dict) else None
        for function in (functions if isinstance(functions, list) else ())
    )
    for nodes in lists:
        for node in nodes if isinstance(nodes, list) else ():
            if isinstance(node, dict) and isinstance(op := node.get("op"), str):
                yield op


def _layers(topology: object) -> Iterator[str]:
    """The classes of a Keras model's layers, also of models inside it."""
    config = topology.get("model_config", topology) if isinstance(topology, dict) else None
    pending = [config]
    while pending:
        model = pending.pop()
        inner = model.get("config") if isinstance(model, dict) else None
        layers = inner.get("layers") if isinstance(inner, dict) else inner
        for layer in layers if isinstance(layers, list) else ():
            if isinstance(layer, dict) and isinstance(name := layer.get("class_name"), str):
                yield name
                pending.append(layer)


def _signatures(model: dict[str, object]) -> tuple[Signature, ...]:
    signature = model.get("signature") or model.get("userDefinedMetadata", {})
    if isinstance(signature, dict) and isinstance(signature.get("signature"), dict):
        signature = signature["signature"]
    if not isinstance(signature, dict):
        return ()
    ends = [tuple(_tensors(signature.get(key))) for key in ("inputs", "outputs")]
    return (Signature("", "", ends[0], ends[1]),) if any(ends) else ()


def _tensors(tensors: object) -> Iterator[TensorInfo]:
    for name, tensor in sorted(tensors.items()) if isinstance(tensors, dict) else ():
        if not isinstance(tensor, dict):
            continue
        inner, dtype = tensor.get("name"), tensor.get("dtype")
        yield TensorInfo(
            name,
            inner if isinstance(inner, str) else "",
            _WORDS.get(dtype, dtype) if isinstance(dtype, str) else "",
            _shape(tensor.get("tensorShape")),
        )


#: The words of TensorFlow's DataType enum that differ from its own small ones.
_WORDS = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
    "DT_BOOL": "bool",
    "DT_STRING": "string",
    "DT_UINT8": "uint8",
    "DT_HALF": "float16",
    "DT_COMPLEX64": "complex64",
}


def _shape(shape: object) -> tuple[int, ...] | None:
    if not isinstance(shape, dict) or shape.get("unknownRank") is True:
        return None
    dims = shape.get("dim", [])
    if not isinstance(dims, list):
        return None
    try:
        return tuple(int(dim["size"]) for dim in dims)
    except (KeyError, TypeError, ValueError):
        return None
