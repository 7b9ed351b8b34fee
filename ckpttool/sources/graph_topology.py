"""What feeds what in a graph: node names → positions, producers, ancestors, descendants.

Pure, over the nodes of a ``Graph`` (not those of its functions). Every walk is a loop with
a set of what it has seen, so cycles and a million nodes are plain data.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from functools import cached_property

from ckpttool.formats.graphdef import Graph, Node

__all__ = ["Topology", "split_tensor"]


def split_tensor(text: str) -> tuple[str, int]:
    """``x:1`` → (``x``, 1), ``x`` → (``x``, 0), ``^x`` (only an order) → (``x``, -1)."""
    if text.startswith("^"):
        return text[1:], -1
    name, colon, number = text.rpartition(":")
    if colon and number.isascii() and number.isdigit() and len(number) < 10:
        return name, int(number)
    return text, 0


class Topology:
    """The edges of one graph.

    Attributes:
        nodes: its nodes, by position.
        positions: name → position; of two nodes with one name the last.
        producers: position → positions of the nodes that it takes tensors from, in order;
            names that no node has are left out.
        controls: position → those that only have to run before it; of nodes that have any.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = graph.nodes
        self.positions = {node.name: place for place, node in enumerate(graph.nodes)}
        self.producers: list[tuple[int, ...]] = []
        self.controls: dict[int, tuple[int, ...]] = {}
        position = self.positions.get
        append = self.producers.append
        for place, (_, _, inputs, _, _, _) in enumerate(graph.nodes):
            found = []
            controls: list[int] = []
            for text in inputs:
                producer = position(text)
                if producer is not None:
                    found.append(producer)
                    continue
                name, output = split_tensor(text)
                producer = position(name)
                if producer is not None:
                    (found if output >= 0 else controls).append(producer)
            append(tuple(found))
            if controls:
                self.controls[place] = tuple(controls)

    def ancestors(
        self, of: Iterable[int], *, controls: bool = True, until: Container[int] = ()
    ) -> set[int]:
        """These nodes and everything that they need to run; ``until`` those that need nothing."""
        seen = set(of)
        waiting = list(seen)
        while waiting:
            place = waiting.pop()
            if place in until:
                continue
            before = self.producers[place]
            if controls and place in self.controls:
                before += self.controls[place]
            for producer in before:
                if producer not in seen:
                    seen.add(producer)
                    waiting.append(producer)
        return seen

    def descendants(self, of: Iterable[int], among: set[int]) -> set[int]:
        """These nodes and all of ``among`` that their tensors flow into."""
        seen = set(of)
        waiting = list(seen)
        consumers = self.consumers
        while waiting:
            for consumer in consumers.get(waiting.pop(), ()):
                if consumer not in seen and consumer in among:
                    seen.add(consumer)
                    waiting.append(consumer)
        return seen

    @cached_property
    def consumers(self) -> dict[int, list[int]]:
        """Position → positions of the nodes that take a tensor from it."""
        consumers: dict[int, list[int]] = {}
        for place, producers in enumerate(self.producers):
            for producer in producers:
                consumers.setdefault(producer, []).append(place)
        return consumers

    def consumed(self, among: Iterable[int]) -> set[int]:
        """The nodes whose tensors one of ``among`` takes."""
        return {producer for place in among for producer in self.producers[place]}

    def of_names(self, names: Iterable[str]) -> Iterator[int]:
        """The positions of tensors or nodes that exist."""
        for name in names:
            place = self.positions.get(split_tensor(name)[0])
            if place is not None:
                yield place
