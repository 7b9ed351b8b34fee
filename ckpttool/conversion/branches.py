"""Which branches of a graph are never taken, once an input like ``is_training`` is fixed.

TensorFlow 1 writes a condition as ``Switch`` (whose second output is taken where the
predicate is true) and ``Merge`` (which gives what arrived):
tensorflow/core/ops/control_flow_ops.cc. Pure: nodes are names, ops and inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["BranchNode", "Branches", "follow"]

_SWITCHES = {"Switch", "RefSwitch"}
_MERGES = {"Merge", "RefMerge"}


class BranchNode(NamedTuple):
    """A node, as far as it matters here."""

    name: str
    op: str
    inputs: tuple[str, ...]


class Branches(NamedTuple):
    """What is known of a graph.

    Attributes:
        dead: nodes that never run.
        switches: nodes that hand on their data, always to the same side.
        merges: node → the number of the input that is the only one to arrive.
        values: node → its constant truth value, of those that have one.
    """

    dead: frozenset[str]
    switches: frozenset[str]
    merges: dict[str, int]
    values: dict[str, bool]


def follow(nodes: Iterable[BranchNode], known: Mapping[str, bool]) -> Branches:
    """Find what never runs where some truth values are fixed.

    Args:
        nodes: of the graph, in any order.
        known: operation → its constant value.
    """
    by_name = {node.name: node for node in nodes}
    users: defaultdict[str, list[str]] = defaultdict(list)
    for node in by_name.values():
        for one in node.inputs:
            users[_split(one)[0]].append(node.name)
    known = {name: value for name, value in known.items() if name in by_name}
    found = _Found(by_name, dict(known), {}, set())
    waiting = [user for name in known for user in users[name]]
    while waiting:
        name = waiting.pop()
        if found.learn(by_name[name]):
            waiting.extend(users[name])
    merges = {}
    for node in by_name.values():
        if node.op in _MERGES and node.name not in found.dead:
            data = [one for one in node.inputs if not one.startswith("^")]
            live = [at for at, one in enumerate(data) if not found.never(one)]
            if len(live) == 1 and len(data) > 1:
                merges[node.name] = live[0]
    sides = frozenset(found.sides.keys() - found.dead)
    return Branches(frozenset(found.dead), sides, merges, found.values)


class _Found(NamedTuple):
    """What is known so far: constants, the sides that switches take, what never runs."""

    nodes: dict[str, BranchNode]
    values: dict[str, bool]
    sides: dict[str, bool]
    dead: set[str]

    def learn(self, node: BranchNode) -> bool:
        """Whether more is known of a node than before."""
        name = node.name
        if name in self.dead:
            return False
        if self._is_dead(node):
            self.dead.add(name)
            return True
        if node.op in _SWITCHES:
            side = self.values.get(_split(node.inputs[1])[0])
            if side is None or name in self.sides:
                return False
            self.sides[name] = side
            data = self.values.get(_split(node.inputs[0])[0])
            if data is not None:
                self.values[name] = data
            return True
        value = self._value(node)
        if value is None or name in self.values:
            return False
        self.values[name] = value
        return True

    def never(self, tensor: str) -> bool:
        """Whether a tensor never arrives."""
        name, index = _split(tensor)
        if name in self.dead:
            return True
        return index >= 0 and name in self.sides and index != int(self.sides[name])

    def _is_dead(self, node: BranchNode) -> bool:
        if node.op in _MERGES:
            data = [one for one in node.inputs if not one.startswith("^")]
            return bool(data) and all(map(self.never, data))
        return any(map(self.never, node.inputs))

    def _value(self, node: BranchNode) -> bool | None:
        """The constant that a node computes of constants; None where that is not known."""
        given = [self.values.get(_split(one)[0]) for one in node.inputs if one[:1] != "^"]
        if node.op in {"Identity", "StopGradient"} and given:
            return given[0]
        if node.op == "LogicalNot" and given and given[0] is not None:
            return not given[0]
        if node.op == "LogicalAnd":
            return False if False in given else (True if given == [True, True] else None)
        if node.op == "LogicalOr":
            return True if True in given else (False if given == [False, False] else None)
        return None


def _split(tensor: str) -> tuple[str, int]:
    if tensor.startswith("^"):
        return tensor[1:], -1
    name, _, index = tensor.partition(":")
    return name, int(index or 0)
