"""An ONNX model (onnx/onnx.proto): its initializers, and what it says of itself.

The file is walked by range, so that weights of gigabytes cost nothing; graphs inside nodes
(the branches of an If) are counted with a list, never by recursion, and to a bounded depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ckpttool.errors import CorruptError
from ckpttool.formats.bounds import require_count, require_within
from ckpttool.formats.long_message import MessageBytes, fields_of
from ckpttool.formats.metagraph import Signature, TensorInfo
from ckpttool.formats.model_summary import ModelSummary, most_common
from ckpttool.formats.onnx_tensor import OnnxTensor, onnx_type, read_tensor, text_of
from ckpttool.formats.wire import signed64
from ckpttool.limits import Limits

__all__ = ["OnnxModel", "naming_onnx", "read_model"]

_IR, _PRODUCER, _PRODUCER_VERSION, _GRAPH, _OPSET, _FUNCTION = 1, 2, 3, 7, 8, 25
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2
_NODE, _INITIALIZER, _INPUT, _OUTPUT, _SPARSE = 1, 5, 11, 12, 15
_FUNCTION_NODE = 7
_OP, _ATTRIBUTE, _DOMAIN = 4, 5, 7
_SUBGRAPH, _SUBGRAPHS = 6, 11
_VALUE_NAME, _VALUE_TYPE, _TENSOR_TYPE, _ELEMENT, _SHAPE, _DIM, _DIM_VALUE = 1, 2, 1, 1, 2, 1, 1
#: The domain of ONNX's own ops, whose name in files is empty.
_OWN_DOMAIN = "ai.onnx"
#: Graphs inside nodes inside graphs; loops inside loops are a few.
_MOST_DEPTH = 32

_Place = tuple[int, int]


class OnnxModel(NamedTuple):
    """A model: its initializers as they lie, how many are sparse, and the rest of it."""

    tensors: tuple[OnnxTensor, ...]
    sparse: int
    summary: ModelSummary


def read_model(source: MessageBytes, limits: Limits) -> OnnxModel:
    """Read a whole file, but no elements.

    Raises:
        CorruptError: id ``onnx-malformed``; ``shape-overflow``, ``negative-dimension``.
        LimitError: ids ``limit-entries``, ``limit-rank``, ``limit-graph``, ``limit-keys``.
    """
    with naming_onnx(source.path):
        return _Parser(source, limits).model()


@contextmanager
def naming_onnx(path: str) -> Iterator[None]:
    """Turn what the wire reader found wrong into the error that names the file."""
    try:
        yield
    except CorruptError as error:
        if error.id != "message-malformed":
            raise
        raise _malformed(path, error.why) from None


def _malformed(path: str, why: str) -> CorruptError:
    return CorruptError(
        f"{path} is a malformed ONNX model",
        why=why,
        hint="take the file from another copy",
        id="onnx-malformed",
    )


class _Parser:
    """Walks one model; counts nodes and bytes of names."""

    def __init__(self, source: MessageBytes, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._ops: Counter[str] = Counter()
        self._nodes = 0
        self._text_bytes = 0

    def model(self) -> OnnxModel:
        writer = {_PRODUCER: "", _PRODUCER_VERSION: ""}
        opsets: dict[str, int] = {}
        graph: _Place | None = None
        version = 0
        for field, _, value in fields_of(self._source, 0, self._source.size):
            if isinstance(value, int):
                version = value if field == _IR else version
            elif field in writer:
                writer[field] = self._text(value)
            elif field == _GRAPH:
                graph = value
            elif field == _OPSET:
                domain, number = self._opset(value)
                opsets[domain or _OWN_DOMAIN] = number
            elif field == _FUNCTION:
                self._count(value, _FUNCTION_NODE)
        if graph is None:
            raise _malformed(self._source.path, "it has no graph: it may be cut off")
        tensors, sparse, ends = self._main(graph)
        summary = ModelSummary(
            " ".join(filter(None, writer.values())),
            f"ONNX IR {version}",
            opsets,
            (Signature("", "", *ends),),
            most_common(self._ops),
            0,
        )
        return OnnxModel(tuple(tensors), sparse, summary)

    def _main(
        self, graph: _Place
    ) -> tuple[list[OnnxTensor], int, tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]]:
        """The initializers of the main graph, its inputs and its outputs."""
        tensors: list[OnnxTensor] = []
        ends: dict[int, list[TensorInfo]] = {_INPUT: [], _OUTPUT: []}
        sparse = 0
        for field, _, value in fields_of(self._source, *graph):
            if isinstance(value, int):
                continue
            if field == _INITIALIZER:
                tensors.append(read_tensor(self._source, *value, self._limits))
                self._spend(len(tensors[-1].name))
                require_count(self._source.path, len(tensors), self._limits)
            elif field in ends:
                ends[field].append(self._value(value))
                require_count(self._source.path, len(ends[field]), self._limits)
            elif field == _SPARSE:
                sparse += 1
        names = {tensor.name for tensor in tensors}
        if len(names) < len(tensors):
            raise _malformed(self._source.path, "two of its initializers have one name")
        self._count(graph, _NODE)
        # Up to IR version 3 every initializer is among the inputs too.
        inputs = tuple(info for info in ends[_INPUT] if info.name not in names)
        return tensors, sparse, (inputs, tuple(ends[_OUTPUT]))

    def _count(self, place: _Place, field: int) -> None:
        """Count the nodes in field ``field`` of a message, and those of graphs inside them."""
        pending = [(place, field, 0)]
        while pending:
            graph, wanted, depth = pending.pop()
            if depth > _MOST_DEPTH:
                raise _malformed(
                    self._source.path, f"its graphs lie more than {_MOST_DEPTH} inside each other"
                )
            for number, _, value in fields_of(self._source, *graph):
                if number != wanted or isinstance(value, int):
                    continue
                self._nodes += 1
                path = self._source.path
                require_within(
                    f"the number of nodes in {path}", self._nodes, self._limits, "graph_nodes"
                )
                pending += ((inner, _NODE, depth + 1) for inner in self._node(value))

    def _node(self, place: _Place) -> list[_Place]:
        """Count a node; the graphs in its attributes."""
        op = domain = ""
        graphs: list[_Place] = []
        for field, _, value in fields_of(self._source, *place):
            if isinstance(value, int):
                continue
            if field == _OP:
                op = self._text(value)
            elif field == _DOMAIN:
                domain = self._text(value)
            elif field == _ATTRIBUTE:
                graphs += (
                    inner
                    for number, _, inner in fields_of(self._source, *value)
                    if number in {_SUBGRAPH, _SUBGRAPHS} and not isinstance(inner, int)
                )
        self._ops[op if domain in {"", _OWN_DOMAIN} else f"{domain}.{op}"] += 1
        return graphs

    def _opset(self, place: _Place) -> tuple[str, int]:
        domain, version = "", 0
        for field, _, value in fields_of(self._source, *place):
            if field == _OPSET_DOMAIN and not isinstance(value, int):
                domain = self._text(value)
            elif field == _OPSET_VERSION and isinstance(value, int):
                version = signed64(value)
        return domain, version

    def _value(self, place: _Place) -> TensorInfo:
        """An input or output; one that is no tensor has no dtype."""
        name, dtype, shape = "", "", None
        for field, _, value in fields_of(self._source, *place):
            if isinstance(value, int):
                continue
            if field == _VALUE_NAME:
                name = self._text(value)
            elif field == _VALUE_TYPE:
                for kind, _, inner in fields_of(self._source, *value):
                    if kind == _TENSOR_TYPE and not isinstance(inner, int):
                        dtype, shape = self._tensor_type(inner)
        return TensorInfo(name, name, dtype, shape)

    def _tensor_type(self, place: _Place) -> tuple[str, tuple[int, ...] | None]:
        """Dtype and shape; a dimension that has a name, or nothing, is -1."""
        dtype = ""
        sizes: list[int] | None = None
        for field, _, value in fields_of(self._source, *place):
            if field == _ELEMENT and isinstance(value, int):
                dtype = onnx_type(value).dtype
            elif field == _SHAPE and not isinstance(value, int):
                sizes = []
                for part, _, dim in fields_of(self._source, *value):
                    if part != _DIM or isinstance(dim, int):
                        continue
                    known = [
                        signed64(size)
                        for which, _, size in fields_of(self._source, *dim)
                        if which == _DIM_VALUE and isinstance(size, int)
                    ]
                    sizes.append(known[-1] if known else -1)
                    require_within("a number of dimensions", len(sizes), self._limits, "rank")
        return dtype, None if sizes is None else tuple(sizes)

    def _text(self, place: _Place) -> str:
        self._spend(place[1] - place[0])
        return text_of(self._source, *place, self._limits)

    def _spend(self, nbytes: int) -> None:
        self._text_bytes += nbytes
        require_within(
            f"the names in {self._source.path}", self._text_bytes, self._limits, "graph_text_bytes"
        )
