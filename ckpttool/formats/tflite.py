"""A TFLite model: the tensors that hold values, where those lie, and what it says of itself.

The fields are those of tensorflow/compiler/mlir/lite/schema/schema.fbs. Read by range, so
that weights of gigabytes cost nothing. Nothing is run or interpreted.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ckpttool.formats.bounds import require_count, require_shape
from ckpttool.formats.flatbuffer import FlatBuffer, Table
from ckpttool.formats.long_message import FileBytes
from ckpttool.formats.metagraph import Signature, TensorInfo
from ckpttool.formats.model_summary import ModelSummary, most_common
from ckpttool.formats.tflite_ops import CUSTOM, operator_name
from ckpttool.limits import Limits
from ckpttool.model import numel

__all__ = [
    "TfliteModel",
    "TfliteOperator",
    "TfliteSubgraph",
    "TfliteTensor",
    "TfliteType",
    "read_model",
]

# Numbers of fields, in the order of the schema.
_VERSION, _OPCODES, _SUBGRAPHS, _DESCRIPTION, _BUFFERS, _SIGNATURES = 0, 1, 2, 3, 4, 7
_TENSORS, _INPUTS, _OUTPUTS, _OPERATORS = 0, 1, 2, 3
_SHAPE, _TYPE, _BUFFER, _NAME, _QUANTISATION, _SPARSITY, _SIGNED_SHAPE = 0, 1, 2, 3, 4, 6, 7
_EXTERNAL_BUFFER = 10
_DATA, _OFFSET, _SIZE = 0, 1, 2
_OLD_CODE, _CUSTOM_CODE, _CODE = 0, 1, 3
_OPCODE_INDEX, _OPERATOR_INPUTS, _OPERATOR_OUTPUTS = 0, 1, 2
_SCALE = 2
_SIGNATURE_INPUTS, _SIGNATURE_OUTPUTS, _SIGNATURE_KEY, _SIGNATURE_SUBGRAPH = 0, 1, 2, 4
_MAP_NAME, _MAP_TENSOR = 0, 1

_KNOWN_VERSION = 3


class TfliteType(NamedTuple):
    """An element type: TensorFlow's word and its bits; 0 where it has no fixed size."""

    dtype: str
    bits: int


#: schema.fbs: TensorType.
_TYPES = (
    TfliteType("float32", 32),
    TfliteType("float16", 16),
    TfliteType("int32", 32),
    TfliteType("uint8", 8),
    TfliteType("int64", 64),
    TfliteType("string", 0),
    TfliteType("bool", 8),
    TfliteType("int16", 16),
    TfliteType("complex64", 64),
    TfliteType("int8", 8),
    TfliteType("float64", 64),
    TfliteType("complex128", 128),
    TfliteType("uint64", 64),
    TfliteType("resource", 0),
    TfliteType("variant", 0),
    TfliteType("uint32", 32),
    TfliteType("uint16", 16),
    TfliteType("int4", 4),
    TfliteType("bfloat16", 16),
    TfliteType("int2", 2),
    TfliteType("uint4", 4),
)


class TfliteTensor(NamedTuple):
    """A tensor of a subgraph.

    Attributes:
        name: as in the file; may be empty, or that of another one too.
        shape: one size a dimension; of an input, what it has unless it is resized.
        full_shape: the same with -1 where any size will do.
        offset, nbytes: where its values lie in the file; both None where it has none.
        quantised: whether its integers stand for other numbers by a scale.
        sparse: whether only those of its values are stored that are not zero.
        external: whether its values are in another file.
    """

    name: str
    type: TfliteType
    shape: tuple[int, ...]
    full_shape: tuple[int, ...]
    offset: int | None
    nbytes: int | None
    quantised: bool
    sparse: bool
    external: bool

    @property
    def packed_bytes(self) -> int:
        """Bytes of its elements by its shape; 0 where they have no fixed size."""
        return (numel(self.shape) * self.type.bits + 7) // 8


class TfliteOperator(NamedTuple):
    """An operator, and the numbers of its tensors in its subgraph; -1 where it takes none."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class TfliteSubgraph(NamedTuple):
    """A graph of a model: its tensors, and its operators in the order in which they run."""

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]


class TfliteModel(NamedTuple):
    """A model: its graphs, and what it says of itself."""

    subgraphs: tuple[TfliteSubgraph, ...]
    summary: ModelSummary


def read_model(source: FileBytes, limits: Limits) -> TfliteModel:
    """Read a whole file, but no values.

    Raises:
        CorruptError: id ``tflite-malformed``; ``shape-overflow``, ``negative-dimension``.
        LimitError: ids ``limit-entries``, ``limit-rank``, ``limit-keys``.
    """
    return _Parser(FlatBuffer(source, limits, "TFLite model", "tflite-malformed"), limits).model()


class _Parser:
    """Reads one model."""

    def __init__(self, buffer: FlatBuffer, limits: Limits) -> None:
        self._buffer = buffer
        self._limits = limits
        self._tensors = 0
        self._ops: Counter[str] = Counter()

    def model(self) -> TfliteModel:
        buffer = self._buffer
        root = buffer.root()
        version = buffer.number(root, _VERSION, "I")
        if version != _KNOWN_VERSION:
            raise buffer.malformed(
                f"its schema has version {version}, and {_KNOWN_VERSION} is known"
            )
        places = [self._place(buffer.table(at)) for at in buffer.tables(root, _BUFFERS)]
        codes = [self._code(buffer.table(at)) for at in buffer.tables(root, _OPCODES)]
        graphs = [buffer.table(at) for at in buffer.tables(root, _SUBGRAPHS)]
        subgraphs = tuple(self._subgraph(graph, places, codes) for graph in graphs)
        signatures = tuple(
            self._signature(buffer.table(at), subgraphs) for at in buffer.tables(root, _SIGNATURES)
        )
        if not signatures and graphs:
            signatures = (self._unnamed(graphs[0], subgraphs[0].tensors),)
        summary = ModelSummary(
            buffer.text(root, _DESCRIPTION),
            f"TFLite schema {version}",
            {},
            signatures,
            most_common(self._ops),
            sum(t.quantised and t.offset is not None for graph in subgraphs for t in graph.tensors),
        )
        return TfliteModel(subgraphs, summary)

    def _place(self, table: Table) -> tuple[int, int]:
        """Where a buffer lies; those of large models lie behind everything else."""
        offset = self._buffer.number(table, _OFFSET, "Q")
        if offset <= 1:
            return self._buffer.vector(table, _DATA, 1)
        size = self._buffer.number(table, _SIZE, "Q")
        if offset + size > self._buffer.source.size:
            raise self._buffer.malformed(
                f"a buffer is at bytes {offset} to {offset + size}, and the file has "
                f"{self._buffer.source.size}"
            )
        return offset, size

    def _code(self, table: Table) -> str:
        old = self._buffer.number(table, _OLD_CODE, "b")
        code = max(old, self._buffer.number(table, _CODE, "i"))
        name = self._buffer.text(table, _CUSTOM_CODE) if code == CUSTOM else ""
        return name or operator_name(code)

    def _subgraph(
        self, graph: Table, places: list[tuple[int, int]], codes: list[str]
    ) -> TfliteSubgraph:
        operators = tuple(
            self._operator(self._buffer.table(at), codes)
            for at in self._buffer.tables(graph, _OPERATORS)
        )
        starts = self._buffer.tables(graph, _TENSORS)
        self._tensors += len(starts)
        require_count(self._buffer.source.path, self._tensors, self._limits)
        tensors = tuple(self._tensor(self._buffer.table(at), places) for at in starts)
        for operator in operators:
            if any(not -1 <= one < len(tensors) for one in operator.inputs + operator.outputs):
                raise self._buffer.malformed(
                    f"a {operator.name} is of tensors that are not there: its subgraph has "
                    f"{len(tensors)}"
                )
        return TfliteSubgraph(tensors, operators)

    def _operator(self, table: Table, codes: list[str]) -> TfliteOperator:
        buffer = self._buffer
        index = buffer.number(table, _OPCODE_INDEX, "I")
        if index >= len(codes):
            raise buffer.malformed(f"an operator is number {index} of {len(codes)}")
        self._ops[codes[index]] += 1
        inputs, outputs = (
            buffer.numbers(buffer.vector(table, slot, 4), "i")
            for slot in (_OPERATOR_INPUTS, _OPERATOR_OUTPUTS)
        )
        return TfliteOperator(codes[index], inputs, outputs)

    def _tensor(self, table: Table, places: list[tuple[int, int]]) -> TfliteTensor:
        buffer = self._buffer
        name = buffer.text(table, _NAME)
        what = name or "a tensor"
        shape = require_shape(
            what, buffer.numbers(buffer.vector(table, _SHAPE, 4), "i"), self._limits
        )
        signed = buffer.numbers(buffer.vector(table, _SIGNED_SHAPE, 4), "i")
        number = buffer.number(table, _TYPE, "b")
        kind = _TYPES[number] if 0 <= number < len(_TYPES) else TfliteType(f"tflite_{number}", 0)
        index = buffer.number(table, _BUFFER, "I")
        if index >= len(places) and index:
            raise buffer.malformed(f"{what} is in buffer {index} of {len(places)}")
        start, nbytes = places[index] if index else (0, 0)
        quantisation = buffer.inner(table, _QUANTISATION)
        return TfliteTensor(
            name,
            kind,
            shape,
            signed if len(signed) == len(shape) else shape,
            start if nbytes else None,
            nbytes or None,
            quantisation is not None and buffer.vector(quantisation, _SCALE, 4).length > 0,
            buffer.inner(table, _SPARSITY) is not None,
            buffer.number(table, _EXTERNAL_BUFFER, "I") > 0,
        )

    def _signature(self, table: Table, subgraphs: tuple[TfliteSubgraph, ...]) -> Signature:
        index = self._buffer.number(table, _SIGNATURE_SUBGRAPH, "I")
        if index >= len(subgraphs):
            raise self._buffer.malformed(f"a signature is of subgraph {index} of {len(subgraphs)}")
        tensors = subgraphs[index].tensors
        ends = [
            tuple(self._mapped(self._buffer.table(at), tensors) for at in places)
            for places in (
                self._buffer.tables(table, _SIGNATURE_INPUTS),
                self._buffer.tables(table, _SIGNATURE_OUTPUTS),
            )
        ]
        return Signature(self._buffer.text(table, _SIGNATURE_KEY), "", ends[0], ends[1])

    def _mapped(self, table: Table, tensors: tuple[TfliteTensor, ...]) -> TensorInfo:
        name = self._buffer.text(table, _MAP_NAME)
        return self._end(self._buffer.number(table, _MAP_TENSOR, "I"), tensors, name)

    def _unnamed(self, graph: Table, tensors: tuple[TfliteTensor, ...]) -> Signature:
        """What a model without signatures takes and gives."""
        ends = [
            tuple(
                self._end(index, tensors)
                for index in self._buffer.numbers(self._buffer.vector(graph, slot, 4), "i")
            )
            for slot in (_INPUTS, _OUTPUTS)
        ]
        return Signature("", "", ends[0], ends[1])

    def _end(self, index: int, tensors: tuple[TfliteTensor, ...], name: str = "") -> TensorInfo:
        if not 0 <= index < len(tensors):
            raise self._buffer.malformed(f"an input or output is tensor {index} of {len(tensors)}")
        tensor = tensors[index]
        return TensorInfo(name or tensor.name, tensor.name, tensor.type.dtype, tensor.full_shape)
