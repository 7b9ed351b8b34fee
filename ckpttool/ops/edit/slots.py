"""Which variable a slot or an average belongs to.

In a name-based checkpoint the name says so. In an object-based one the graph does: its
slot variables, and the lists of an optimizer that run beside its list of variables.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ckpttool.formats.object_graph import Edges, ObjectGraph
from ckpttool.ops.edit.contents import Contents, EditedGraph, Item
from ckpttool.ops.slot_names import base_of_slot

__all__ = ["EVERYTHING_EDGE", "WEIGHTS_EDGE", "link_slots", "numbered_optimizers"]

#: A Keras 3 optimizer's list of the variables it trains, and of everything it has.
WEIGHTS_EDGE = "_trainable_variables"
EVERYTHING_EDGE = "_variables"
_FOLLOWING = frozenset({"optimizer", "ema"})


def link_slots(contents: Contents) -> None:
    """Find out for every slot and average which variable it follows."""
    if contents.graph is None:
        _link_by_name(contents)
    else:
        _link_by_graph(contents.items, contents.graph)


def _link_by_name(contents: Contents) -> None:
    items = contents.items
    variables = {name for name, item in items.items() if item.kind not in _FOLLOWING}
    for name, item in items.items():
        if item.kind in _FOLLOWING:
            found = base_of_slot(name, variables)
            if found is not None:
                item.follows = name[found[0] : found[1]]


def _link_by_graph(items: dict[str, Item], graph: EditedGraph) -> None:
    by_node: dict[int, str] = {}
    for key, node in zip(graph.parsed.keys, graph.parsed.owners, strict=True):
        by_node.setdefault(node, key)

    def link(slot: int, original: int) -> None:
        item = items.get(by_node.get(slot, ""))
        base = by_node.get(original)
        if item is not None and base in items and item.origin != base:
            item.follows = base

    for slot in graph.parsed.slots:
        link(slot.variable, slot.original)
    for _, weights, lists in numbered_optimizers(graph.parsed):
        for members in lists.values():
            for member, weight in zip(members, weights, strict=True):
                link(member, weight)
    # What the graph does not tie together: tf.train.ExponentialMovingAverage's variables
    # (w/ExponentialMovingAverage), and the state of Keras 2.11 and later (Adam/m/w).
    by_full_name = {
        item.full_name: key
        for key, item in items.items()
        if item.full_name and item.kind not in _FOLLOWING
    }
    for item in items.values():
        if item.kind in _FOLLOWING and item.follows is None and item.full_name:
            found = base_of_slot(item.full_name, by_full_name) or _longest_end(
                item.full_name, by_full_name
            )
            if found is not None:
                item.follows = by_full_name[item.full_name[found[0] : found[1]]]


def _longest_end(name: str, names: Container[str]) -> tuple[int, int] | None:
    """Where the longest end of a name begins that is a name of its own."""
    at = name.find("/")
    while at >= 0:
        if name[at + 1 :] in names:
            return at + 1, len(name)
        at = name.find("/", at + 1)
    return None


def numbered_optimizers(
    graph: ObjectGraph,
) -> Iterator[tuple[int, Sequence[int], dict[str, Sequence[int]]]]:
    """Optimizers that keep their state in lists beside the list of what they train.

    Gives each optimizer's node, the nodes of its variables, and of every list of the same
    length the name and the nodes: number k of a list belongs to number k of the variables.
    (keras/src/optimizers/base_optimizer.py)
    """
    for node, (ids, names) in graph.edges.items():
        if WEIGHTS_EDGE not in names:
            continue
        weights = _members(graph.edges.get(ids[names.index(WEIGHTS_EDGE)]))
        if not weights:
            continue
        lists = {}
        for child, name in zip(ids, names, strict=True):
            if name in {WEIGHTS_EDGE, EVERYTHING_EDGE}:
                continue
            members = _members(graph.edges.get(child))
            if len(members) == len(weights):
                lists[name] = members
        yield node, weights, lists


def _members(edges: Edges | None) -> Sequence[int]:
    """The nodes of a list, in its order; empty where it is no list, or has gaps."""
    if edges is None:
        return ()
    members = dict(zip(edges[1], edges[0], strict=True))
    try:
        return [members[str(number)] for number in range(len(edges[1]))]
    except KeyError:
        return ()
