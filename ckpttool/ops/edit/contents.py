"""A checkpoint while it is edited: its variables with their names, and its object graph.

Every step of an edit changes the ``Item`` of a variable, or takes it out; ``bundle`` puts
together what is to be written. A variable goes by its first key (``origin``) throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ckpttool.errors import RefusedError
from ckpttool.formats.bundle_writer import encode_string
from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY, ObjectGraph, parse_object_graph
from ckpttool.formats.object_graph_writer import GraphPatch, patch_object_graph
from ckpttool.formats.saved_names import saved_under
from ckpttool.formats.sstable import quote_key
from ckpttool.limits import Limits
from ckpttool.model import Kind
from ckpttool.ops.rewrite.reading import bundle_from
from ckpttool.ops.rewrite.tensors import Bundle, Computed, Input, Owner, Tensor
from ckpttool.sources.base import Source
from ckpttool.sources.graph_walk import WalkedGraph, walk_graph
from ckpttool.sources.naming import GraphNames, label_of_name
from ckpttool.sources.v2 import BundleSource

__all__ = ["Contents", "EditedGraph", "Item", "read_contents"]


@dataclass(slots=True)
class Item:
    """One variable.

    Attributes:
        origin: the key it had when the checkpoint was read.
        key: the key it gets.
        name: the readable name it had: for messages and for patterns.
        path: its object path; of a name-based checkpoint the key.
        full_name: its own name in the program that wrote it; may be empty.
        kind: what it is for.
        dtype: TensorFlow's number.
        shape: None where the rank is unknown.
        tensors: the entries that hold it, each with its place in the data files.
        owner: its own entry when it is partitioned.
        follows: the variable that it is a slot or an average of, by its ``origin``.
        saved_as: what the object graph calls it: its key, or how its key begins where an
            object saved several tensors; None where the graph does not know it.
    """

    origin: str
    key: str
    name: str
    path: str
    full_name: str
    kind: Kind
    dtype: int
    shape: tuple[int, ...] | None
    tensors: list[tuple[int, Tensor]]
    owner: Owner | None = None
    follows: str | None = None
    saved_as: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return sum(tensor.content.nbytes for _, tensor in self.tensors)

    def names(self) -> tuple[str, str, str]:
        """What a pattern is compared with."""
        return self.name, self.path, self.origin

    def present_names(self) -> set[str]:
        """The names that it has by now."""
        return {self.key, self.path, self.full_name} - {""}

    def matches(self, pattern: Callable[[str], bool]) -> bool:
        """Whether a pattern fits one of its names."""
        return any(pattern(name) for name in dict.fromkeys(self.names()))

    def entries(self) -> Iterator[tuple[int, Tensor]]:
        """Its entries with their final keys."""
        variable = self.key.encode("utf-8", "surrogateescape")
        if self.owner is None:
            for place, tensor in self.tensors:
                if tensor.key == variable:
                    yield place, tensor
                else:
                    yield place, tensor._replace(key=variable, variable=variable)
            return
        old = self.owner.key
        keys = {spec.key(old): spec.key(variable) for spec in self.owner.slices}
        for place, tensor in self.tensors:
            yield place, tensor._replace(key=keys[tensor.key], variable=variable)

    def final_owner(self) -> Owner | None:
        """Its own entry under its final key."""
        owner = self.owner
        if owner is None:
            return None
        key = self.key.encode("utf-8", "surrogateescape")
        return Owner(key, owner.dtype, owner.shape, owner.slices, owner.raw)


@dataclass(slots=True)
class EditedGraph:
    """The object graph of an object-based checkpoint, and what changes in it.

    ``node_of`` is the node that saved each key.
    """

    data: bytes
    parsed: ObjectGraph
    walked: WalkedGraph
    patch: GraphPatch = field(default_factory=GraphPatch)
    node_of: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.node_of = dict(zip(self.parsed.keys, self.parsed.owners, strict=True))


@dataclass(slots=True)
class Contents:
    """What is edited.

    Attributes:
        location: its prefix, for messages.
        items: its variables by their ``origin``, in the order of their bytes.
        inputs: the files that all of this was read from.
        removed: those that were taken out.
        graph: of an object-based checkpoint.
        graph_tensor: the entry of that graph, and its place.
        header: the stored message of the empty key.
        big_endian: the byte order.
        shards: how many data files there are.
    """

    location: str
    items: dict[str, Item]
    graph: EditedGraph | None
    graph_tensor: tuple[int, Tensor] | None
    header: bytes
    big_endian: bool
    shards: int
    inputs: tuple[Input, ...]
    removed: dict[str, Item] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the variables."""
        return sum(item.nbytes for item in self.items.values())

    def remove(self, origin: str) -> Item:
        """Take a variable out, of the object graph too."""
        item = self.removed[origin] = self.items.pop(origin)
        if self.graph is not None and item.saved_as is not None:
            self.graph.patch.dropped.add(item.saved_as)
        return item

    def bundle(self) -> Bundle:
        """What is to be written.

        Raises:
            RefusedError: id ``duplicate-key``.
        """
        self._require_different()
        entries = [entry for item in self.items.values() for entry in item.entries()]
        if self.graph_tensor is not None:
            entries.append((self.graph_tensor[0], self._graph_entry(self.graph_tensor[1])))
        entries.sort(key=_place)
        owners = {
            owner.key: owner
            for item in self.items.values()
            if (owner := item.final_owner()) is not None
        }
        tensors = [tensor for _, tensor in entries]
        return Bundle(tensors, owners, self.header, self.big_endian, self.shards, self.inputs)

    def _graph_entry(self, tensor: Tensor) -> Tensor:
        assert self.graph is not None, "there is an entry of it"
        if not self.graph.patch:
            return tensor
        data = patch_object_graph(self.graph.data, self.graph.parsed, self.graph.patch)
        payload, crc32c = encode_string(data, big_endian=self.big_endian)
        return tensor._replace(
            content=Computed(lambda: iter((payload,)), len(payload), crc32c, for_threads=True)
        )

    def _require_different(self) -> None:
        known: dict[str, Item] = {}
        for item in self.items.values():
            other = known.setdefault(item.key, item)
            if other is not item:
                key = item.key.encode("utf-8", "surrogateescape")
                raise RefusedError(
                    f"two variables would have the key {quote_key(key)}",
                    why=f"{other.name} and {item.name} both would",
                    hint="choose another name for one of them, or --drop one",
                    id="duplicate-key",
                )


def _place(entry: tuple[int, Tensor]) -> tuple[int, int]:
    return entry[1].shard, entry[0]


def read_contents(source: Source, limits: Limits) -> Contents:
    """Everything of an open checkpoint.

    Raises:
        CorruptError: id ``object-graph-malformed``: an object-based checkpoint whose graph
            cannot be read cannot be edited consistently.
        CkpttoolError: as ``bundle_from``.
    """
    bundle = bundle_from(source)
    graph = None
    names = None
    kinds = {} if isinstance(source, BundleSource) else _kinds_of(source)
    if isinstance(source, BundleSource) and source.style == "object":
        data = source.graph_bytes()
        parsed = parse_object_graph(data, limits)
        graph = EditedGraph(data, parsed, walk_graph(parsed))
        names = GraphNames(parsed)
    items: dict[str, Item] = {}
    graph_tensor = None
    for place, tensor in enumerate(bundle.tensors):
        key = tensor.variable.decode("utf-8", "surrogateescape")
        if graph is not None and key == OBJECT_GRAPH_KEY:
            graph_tensor = (place, tensor)
            continue
        item = items.get(key)
        if item is None:
            owner = bundle.owners.get(tensor.variable)
            item = items[key] = _item(key, tensor, owner, names)
            item.kind = kinds.get(key, item.kind)
        item.tensors.append((place, tensor))
    for key_bytes, owner in bundle.owners.items():
        key = key_bytes.decode("utf-8", "surrogateescape")
        if key not in items:  # none of its slices is there: kept as it is
            items[key] = _item(key, owner, owner, names)
    if graph is not None:
        _find_in_graph(items, graph)
    return Contents(
        source.location,
        items,
        graph,
        graph_tensor,
        bundle.header,
        bundle.big_endian,
        bundle.shards,
        bundle.inputs,
    )


def _kinds_of(source: Source) -> dict[str, Kind]:
    """What a source of another sort says of its variables, by the keys that they get."""
    from ckpttool.ops.rewrite.from_source import written_as

    written = written_as(source)
    return {written[variable.key]: variable.kind for variable in source.variables()}


def _find_in_graph(items: dict[str, Item], graph: EditedGraph) -> None:
    """Find out what the graph calls every variable."""
    known = graph.node_of
    stems = known.keys() - items.keys()
    for key, item in items.items():
        if key in known:
            item.saved_as = key
        elif stems:
            item.saved_as = saved_under(key, stems)


def _item(key: str, entry: Tensor | Owner, owner: Owner | None, names: GraphNames | None) -> Item:
    described = owner or entry
    if names is None:
        name, kind = label_of_name(key)
        path = full_name = key
    else:
        name, kind = names.label(key)
        path, full_name = names.path(key), names.full_name(key)
    return Item(key, key, name, path, full_name, kind, described.dtype, described.shape, [], owner)
