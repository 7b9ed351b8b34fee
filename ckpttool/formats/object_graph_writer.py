"""Changes an object graph on the wire: what a change does not concern is kept to the byte.

Nodes keep their numbers, for edges and slots refer to them: a variable that goes leaves a
node that nothing leads to and that holds nothing, which TensorFlow passes over when it
asks whether everything was restored. Fields that this version does not know survive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ckpttool.formats import wire
from ckpttool.formats.object_graph import ObjectGraph

__all__ = ["GraphPatch", "patch_object_graph"]

# Field numbers of TrackableObject (trackable_object_graph.proto).
_CHILDREN, _ATTRIBUTES, _SLOTS, _REGISTERED_SAVER, _HAS_VALUES = 1, 2, 3, 4, 5
_NODES = 1


@dataclass(slots=True)
class GraphPatch:
    """What is to be different.

    Attributes:
        dropped: keys of saved tensors that go; so do the edges to a node that has no
            other, and the slots that such a node has or is.
        keys: other keys for saved tensors, by their old one.
        full_names: other full names of variables, by their old key.
        edges: other names for edges, by the node they leave and their old name; None for
            an edge that goes.
    """

    dropped: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)
    full_names: dict[str, str] = field(default_factory=dict)
    edges: dict[tuple[int, str], str | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.dropped or self.keys or self.full_names or self.edges)


def patch_object_graph(data: bytes, graph: ObjectGraph, patch: GraphPatch) -> bytes:
    """A serialised ``TrackableObjectGraph`` with the changes of a patch.

    Args:
        data: the message.
        graph: what ``parse_object_graph`` made of it.
        patch: the changes.

    Raises:
        CorruptError: ``data`` is no such message.
    """
    return _Patcher(data, graph, patch).run()


class _Patcher:
    def __init__(self, data: bytes, graph: ObjectGraph, patch: GraphPatch) -> None:
        self._data = data
        self._graph = graph
        self._patch = patch
        self._gone = _emptied(graph, patch.dropped)
        self._renamed = {node for node, _ in patch.edges}
        self._empty = self._without_values() if patch.dropped else set[int]()

    def run(self) -> bytes:
        touched = self._touched()
        result = []
        node = 0
        for number, value, raw in wire.raw_fields(self._data):
            if number != _NODES or not isinstance(value, tuple):
                result.append(raw)
                continue
            changed = node in touched
            result.append(wire.encode_field(_NODES, self._node(node, *value)) if changed else raw)
            node += 1
        return b"".join(result)

    def _touched(self) -> set[int]:
        """The nodes whose message changes."""
        patch, graph, gone = self._patch, self._graph, self._gone
        touched = self._renamed | self._empty
        concerned = patch.dropped | patch.keys.keys() | patch.full_names.keys()
        for node, key in zip(graph.owners, graph.keys, strict=True):
            if key in concerned:
                touched.add(node)
        if gone:
            touched.update(
                node for node, (ids, _) in graph.edges.items() if not gone.isdisjoint(ids)
            )
            touched.update(
                slot.optimizer
                for slot in graph.slots
                if slot.variable in gone or slot.original in gone
            )
        return touched

    def _node(self, node: int, start: int, end: int) -> bytes:
        kept = []
        for number, value, raw in wire.raw_fields(self._data, start, end):
            changed: bytes | None = raw
            if isinstance(value, tuple):
                if number == _CHILDREN:
                    changed = self._edge(node, value, raw)
                elif number == _ATTRIBUTES:
                    changed = self._attribute(value, raw)
                elif number == _SLOTS:
                    changed = self._slot(value, raw)
                elif number == _HAS_VALUES and node in self._empty:
                    changed = wire.encode_field(_HAS_VALUES, b"")  # false, and not unknown
            if changed is not None:
                kept.append(changed)
        return b"".join(kept)

    def _edge(self, node: int, span: tuple[int, int], raw: bytes) -> bytes | None:
        child, name = self._numbers_and_texts(span, 1, 2)
        if child in self._gone:
            return None
        if node not in self._renamed:
            return raw
        new = self._patch.edges.get((node, name), name)
        if new is None:
            return None
        return raw if new == name else self._with_texts(_CHILDREN, span, {2: new})

    def _attribute(self, span: tuple[int, int], raw: bytes) -> bytes | None:
        _, key = self._numbers_and_texts(span, 0, 3)
        patch = self._patch
        if key in patch.dropped:
            return None
        texts = {}
        if key in patch.keys:
            texts[3] = patch.keys[key]
        if key in patch.full_names:
            texts[2] = patch.full_names[key]
        return self._with_texts(_ATTRIBUTES, span, texts) if texts else raw

    def _slot(self, span: tuple[int, int], raw: bytes) -> bytes | None:
        original, _ = self._numbers_and_texts(span, 1, 2)
        variable, _ = self._numbers_and_texts(span, 3, 2)
        return None if original in self._gone or variable in self._gone else raw

    def _numbers_and_texts(
        self, span: tuple[int, int], number_field: int, text_field: int
    ) -> tuple[int, str]:
        """The number and the string that stand in two fields of a message."""
        number, text = 0, ""
        for at, _, value in wire.fields(self._data, *span):
            if isinstance(value, tuple):
                if at == text_field:
                    text = self._data[value[0] : value[1]].decode("utf-8", "surrogateescape")
            elif at == number_field:
                number = value
        return number, text

    def _with_texts(self, number: int, span: tuple[int, int], texts: dict[int, str]) -> bytes:
        """A message in its field, with other strings at their place."""
        waiting = {at: text.encode("utf-8", "surrogateescape") for at, text in texts.items()}
        kept = []
        for at, _, raw in wire.raw_fields(self._data, *span):
            kept.append(wire.encode_field(at, waiting.pop(at)) if at in waiting else raw)
        kept += [wire.encode_field(at, text) for at, text in sorted(waiting.items())]
        return wire.encode_field(number, b"".join(kept))

    def _without_values(self) -> set[int]:
        """The nodes at and below which nothing is saved any more, as TensorFlow counts.

        (tensorflow/python/checkpoint/util.py: add_checkpoint_values_check.)
        """
        graph, patch, gone = self._graph, self._patch, self._gone
        full = {
            node
            for node, key in zip(graph.owners, graph.keys, strict=True)
            if key not in patch.dropped
        }
        full.update(
            slot.optimizer
            for slot in graph.slots
            if slot.variable not in gone and slot.original not in gone
        )
        full |= self._with_registered_saver(set(range(graph.size)) - full)
        parents: dict[int, list[int]] = {}
        for node, (ids, names) in graph.edges.items():
            for child, name in zip(ids, names, strict=True):
                if child not in gone and patch.edges.get((node, name), name) is not None:
                    parents.setdefault(child, []).append(node)
        queue = list(full)
        for node in queue:  # grows while it is walked
            for parent in parents.get(node, ()):
                if parent not in full:
                    full.add(parent)
                    queue.append(parent)
        return set(range(graph.size)) - full

    def _with_registered_saver(self, among: Iterable[int]) -> set[int]:
        """The nodes that another saver than TensorFlow's own has written."""
        wanted = set(among)
        found = set()
        node = 0
        for number, _, value in wire.fields(self._data):
            if number != _NODES or not isinstance(value, tuple):
                continue
            if node in wanted and any(
                at == _REGISTERED_SAVER for at, _, _ in wire.fields(self._data, *value)
            ):
                found.add(node)
            node += 1
        return found


def _emptied(graph: ObjectGraph, dropped: set[str]) -> set[int]:
    """The nodes that had saved tensors, and have none any more."""
    if not dropped:
        return set()
    before: set[int] = set()
    after: set[int] = set()
    for node, key in zip(graph.owners, graph.keys, strict=True):
        (before if key in dropped else after).add(node)
    return before - after
