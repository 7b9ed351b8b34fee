"""``MetaGraphDef``: a graph with what is said about it: a ``.meta``, or a part of a SavedModel.

Field numbers are those of tensorflow/core/protobuf/{meta_graph,saver,variable,
saved_object_graph}.proto. The graph itself (``graphdef.py``), the variables and the object
graph, which are most of the bytes, are read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from ckpttool.errors import LimitError
from ckpttool.formats import wire
from ckpttool.formats.graph_errors import graph_malformed, naming_graph
from ckpttool.formats.graphdef import Graph, parse_graph
from ckpttool.formats.long_message import AT_HAND, MessageBytes, fields_of
from ckpttool.formats.tensor_proto import base_dtype
from ckpttool.formats.tensor_shape import PartialShape, read_shape
from ckpttool.limits import Limits

__all__ = [
    "Asset",
    "Collection",
    "MetaGraph",
    "SaverInfo",
    "Signature",
    "SliceInfo",
    "TensorInfo",
    "VariableInfo",
    "parse_metagraph",
]

_T = TypeVar("_T")
Place = tuple[int, int]

# MetaGraphDef
_META_INFO, _GRAPH, _SAVER, _COLLECTION, _SIGNATURE, _ASSET, _OBJECTS = 1, 2, 3, 4, 5, 6, 7
# MetaInfoDef
_VERSION, _OPS, _TAG, _TF_VERSION, _GIT_VERSION = 1, 2, 4, 5, 6
# Entries of maps
_KEY, _VALUE = 1, 2
_COLLECTION_KINDS = {1: "nodes", 2: "bytes", 3: "integers", 4: "floats", 5: "any"}
#: Collections whose members are VariableDefs (tensorflow/python/framework/ops.py: GraphKeys).
_VARIABLES = (
    "variables",
    "local_variables",
    "metric_variables",
    "model_variables",
    "trainable_variables",
    "moving_average_variables",
    "trainable_resource_variables",
)
#: tensorflow/python/saved_model/constants.py: ASSETS_KEY.
_ASSETS = "saved_model_assets"
_SAVER_VERSIONS = {0: "V1", 1: "V1", 2: "V2"}


class TensorInfo(NamedTuple):
    """A tensor of a signature.

    ``tensor`` is its name in the graph (``x:0``); empty where it is made of several, as a
    sparse one is.
    """

    name: str
    tensor: str
    dtype: str
    shape: PartialShape


class Signature(NamedTuple):
    """What a graph is used for: its inputs and outputs by names of their own, sorted."""

    name: str
    method: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


class SaverInfo(NamedTuple):
    """The ``tf.compat.v1.train.Saver`` that a graph was saved with; ``version`` V1 or V2."""

    filename_tensor: str
    save_tensor: str
    restore_op: str
    sharded: bool
    version: str


class SliceInfo(NamedTuple):
    """Which part of which variable a variable is; one number a dimension."""

    full_name: str
    full_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]


class VariableInfo(NamedTuple):
    """A ``VariableDef``; the names are of tensors and ops of the graph (``w:0``)."""

    name: str
    initializer: str
    snapshot: str
    initial_value: str
    resource: bool
    trainable: bool
    slice: SliceInfo | None


class Collection(NamedTuple):
    """A collection: ``kind`` is nodes, bytes, integers, floats or any; ``place``: its list."""

    name: str
    kind: str
    place: Place


class Asset(NamedTuple):
    """A file that goes with a SavedModel, and the tensor that its name is fed to."""

    tensor: str
    filename: str


@dataclass(frozen=True)
class MetaGraph:
    """A parsed ``MetaGraphDef``.

    Attributes:
        source, limits: for what is read later.
        version: ``meta_graph_version``, which nothing but users sets.
        tags: of a SavedModel's.
        tensorflow_version, git_version: of the writer; empty before TF 0.12.
        ops: what the writer's TensorFlow calls the ops in it (the stripped op list).
        graph_place: where its ``GraphDef`` lies; an empty one where there is none.
        saver: None where it was not saved by one.
        collections, signatures, assets: as stored; signatures by name.
        objects: where its ``SavedObjectGraph`` lies (TF 2.x); None where there is none.
    """

    source: MessageBytes
    limits: Limits
    version: str
    tags: tuple[str, ...]
    tensorflow_version: str
    git_version: str
    ops: tuple[str, ...]
    graph_place: Place
    saver: SaverInfo | None
    collections: tuple[Collection, ...]
    signatures: tuple[Signature, ...]
    assets: tuple[Asset, ...]
    objects: Place | None

    def graph(self) -> Graph:
        """Its graph, which is read once; raises as ``parse_graph``."""
        return self._graph

    @cached_property
    def _graph(self) -> Graph:
        return parse_graph(self.source, *self.graph_place, self.limits)

    def variables(self) -> Iterator[VariableInfo]:
        """The variables of its collections, each once.

        Raises:
            CorruptError: id ``graph-malformed``.
        """
        seen: set[str] = set()
        for collection in self.collections:
            if collection.kind != "bytes" or collection.name not in _VARIABLES:
                continue
            with naming_graph(self.source.path, f"collection {collection.name}"):
                for number, _, place in fields_of(self.source, *collection.place):
                    if number == 1 and not isinstance(place, int):
                        info = _variable(self.source, place)
                        if info.name not in seen:
                            seen.add(info.name)
                            yield info


def parse_metagraph(source: MessageBytes, start: int, end: int, limits: Limits) -> MetaGraph:
    """Parse the ``MetaGraphDef`` in ``[start, end)``, but for its graph.

    Raises:
        CorruptError: id ``graph-malformed``.
        LimitError: id ``limit-graph``: more than ``limits.graph_items`` ops, signatures, …
    """
    with naming_graph(source.path):
        return _Parser(source, limits).metagraph(start, end)


class _Parser:
    """One MetaGraph; counts what all its parts claim together."""

    def __init__(self, source: MessageBytes, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._left = limits.graph_items

    def metagraph(self, start: int, end: int) -> MetaGraph:
        info: dict[int, list[str]] = {}
        ops: list[str] = []
        graph: Place = (end, end)
        saver: SaverInfo | None = None
        objects: Place | None = None
        collections: list[Collection] = []
        signatures: list[Signature] = []
        assets: list[Asset] = []
        for number, value in self._messages((start, end)):
            if number == _META_INFO:
                info, ops = self._meta_info(value)
            elif number == _GRAPH:
                graph = value
            elif number == _SAVER:
                saver = self._saver(value)
            elif number == _COLLECTION:
                collections += self._entry(value, self._collection)
            elif number == _SIGNATURE:
                signatures += self._entry(value, self._signature)
            elif number == _ASSET:
                assets.append(self._asset(value))
            elif number == _OBJECTS:
                objects = value
        if not assets:
            assets = self._assets_of(collections)
        return MetaGraph(
            self._source,
            self._limits,
            "".join(info.get(_VERSION, [])[-1:]),
            tuple(info.get(_TAG, [])),
            "".join(info.get(_TF_VERSION, [])[-1:]),
            "".join(info.get(_GIT_VERSION, [])[-1:]),
            tuple(ops),
            graph,
            saver,
            tuple(collections),
            tuple(sorted(signatures, key=lambda signature: signature.name)),
            tuple(assets),
            objects,
        )

    def _meta_info(self, place: Place) -> tuple[dict[int, list[str]], list[str]]:
        info: dict[int, list[str]] = {}
        ops: list[str] = []
        for number, value in self._messages(place):
            if number in (_VERSION, _TAG, _TF_VERSION, _GIT_VERSION):
                info.setdefault(number, []).append(self._text(value))
            elif number == _OPS:
                for inner, op in self._messages(value):
                    if inner == 1:
                        ops.append(self._texts(op).get(1, ""))
        return info, ops

    def _saver(self, place: Place) -> SaverInfo:
        texts = self._texts(place)
        numbers = self._numbers(place)
        return SaverInfo(
            texts.get(1, ""),
            texts.get(2, ""),
            texts.get(3, ""),
            bool(numbers.get(5)),
            _SAVER_VERSIONS.get(numbers.get(7, 0), "V2"),
        )

    def _collection(self, name: str, place: Place) -> Collection:
        kind, contents = "nodes", (place[1], place[1])
        for number, value in self._messages(place):
            if number in _COLLECTION_KINDS:
                kind, contents = _COLLECTION_KINDS[number], value
        return Collection(name, kind, contents)

    def _signature(self, name: str, place: Place) -> Signature:
        method = ""
        inputs: list[TensorInfo] = []
        outputs: list[TensorInfo] = []
        for number, value in self._messages(place):
            if number == 3:
                method = self._text(value)
            elif number in (1, 2):
                (inputs if number == 1 else outputs).extend(self._entry(value, self._tensor))
        return Signature(name, method, _by_name(inputs), _by_name(outputs))

    def _tensor(self, name: str, place: Place) -> TensorInfo:
        tensor, shape = "", None
        for number, value in self._messages(place):
            if number == 1:
                tensor = self._text(value)
            elif number == 3:
                shape = read_shape(self._bytes(value))
        dtype = base_dtype(wire.signed32(self._numbers(place).get(2, 0)))
        return TensorInfo(name, tensor, dtype, shape)

    def _assets_of(self, collections: list[Collection]) -> list[Asset]:
        """Those of a TF 1.x SavedModel: AssetFileDefs in a collection, each in an ``Any``."""
        return [
            self._asset(value)
            for collection in collections
            if collection.name == _ASSETS and collection.kind == "any"
            for number, wrapped in self._messages(collection.place)
            if number == 1
            for inner, value in self._messages(wrapped)
            if inner == _VALUE
        ]

    def _asset(self, place: Place) -> Asset:
        tensor = filename = ""
        for number, value in self._messages(place):
            if number == 1:
                tensor = self._texts(value).get(1, "")
            elif number == 2:
                filename = self._text(value)
        return Asset(tensor, filename)

    # ----------------------------------------------------------------------------------

    def _entry(self, place: Place, read: Callable[[str, Place], _T]) -> Iterator[_T]:
        """What ``read`` makes of an entry of a map; a value that is left out is empty."""
        key, value = "", (place[1], place[1])
        for number, found in self._messages(place):
            if number == _KEY:
                key = self._text(found)
            elif number == _VALUE:
                value = found
        yield read(key, value)

    def _messages(self, place: Place) -> Iterator[tuple[int, Place]]:
        """The length-delimited fields, each of which counts."""
        for number, _, value in fields_of(self._source, *place):
            if isinstance(value, int):
                continue
            self._left -= 1
            if self._left < 0:
                limit = self._limits.graph_items
                raise LimitError(
                    f"{self._source.path} has too large a MetaGraph",
                    why=f"it has more than {limit} parts besides its graph (the limit graph_items)",
                    hint=f"raise it with CKPTTOOL_LIMITS=graph_items={4 * limit}",
                    id="limit-graph",
                )
            yield number, value

    def _bytes(self, place: Place) -> bytes:
        return _bytes(self._source, place)

    def _text(self, place: Place) -> str:
        return self._bytes(place).decode("utf-8", "surrogateescape")

    def _texts(self, place: Place) -> dict[int, str]:
        """The first three fields of a message as text, where they have any."""
        return {number: self._text(value) for number, value in self._messages(place) if number < 4}

    def _numbers(self, place: Place) -> dict[int, int]:
        found = fields_of(self._source, *place)
        return {number: value for number, _, value in found if isinstance(value, int)}


def _by_name(tensors: list[TensorInfo]) -> tuple[TensorInfo, ...]:
    return tuple(sorted(tensors, key=lambda tensor: tensor.name))


def _bytes(source: MessageBytes, place: Place) -> bytes:
    size = place[1] - place[0]
    if size > AT_HAND:
        raise graph_malformed(source.path, f"a name of {size} bytes at byte {place[0]}")
    return source.get(*place)


def _variable(source: MessageBytes, place: Place) -> VariableInfo:
    texts: dict[int, str] = {}
    numbers = {7: 1}
    part: SliceInfo | None = None
    data = _bytes(source, place)
    for number, _, value in wire.fields(data):
        if isinstance(value, int):
            numbers[number] = value
        elif number == 4:
            part = _slice(data, value)
        else:
            texts[number] = data[value[0] : value[1]].decode("utf-8", "surrogateescape")
    return VariableInfo(
        texts.get(1, ""),
        texts.get(2, ""),
        texts.get(3, ""),
        texts.get(6, ""),
        bool(numbers.get(5)),
        bool(numbers[7]),
        part,
    )


def _slice(data: bytes, place: Place) -> SliceInfo:
    name = ""
    lists: dict[int, list[int]] = {2: [], 3: [], 4: []}
    for number, _, value in wire.fields(data, *place):
        if number == 1 and not isinstance(value, int):
            name = data[value[0] : value[1]].decode("utf-8", "surrogateescape")
        elif number in lists:
            if isinstance(value, int):
                lists[number].append(wire.signed64(value))
                continue
            at, end = value
            while at < end:
                one, at = wire.read_varint(data, at, end)
                lists[number].append(wire.signed64(one))
    return SliceInfo(name, tuple(lists[2]), tuple(lists[3]), tuple(lists[4]))
