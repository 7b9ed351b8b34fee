"""``--keep``, ``--drop`` and ``--strip-optimizer``: which variables stay.

Slots and averages go with their variable, and stay with it. In an object-based checkpoint
a whole object goes or none of it, for its restoring asks for all that it saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ckpttool.errors import RefusedError
from ckpttool.ops.edit.contents import Contents, EditedGraph, Item
from ckpttool.ops.edit.slots import EVERYTHING_EDGE, WEIGHTS_EDGE, numbered_optimizers
from ckpttool.ops.rewrite.run import Change
from ckpttool.ops.rewrite.slice_rules import glob

__all__ = ["drop", "keep", "require_something", "settle_graph", "strip_optimizer"]

Unmatched = Callable[[str], None]


def keep(contents: Contents, patterns: Sequence[str], unmatched: Unmatched) -> list[Change]:
    """Take out everything that no pattern matches and that follows nothing that stays."""
    staying: dict[str, str] = {}
    for pattern in patterns:
        for item in _matching(contents, pattern, f"--keep {pattern}", unmatched):
            staying.setdefault(item.origin, pattern)
    return [
        _removed(contents, item, "no --keep matches it")
        for item in list(contents.items.values())
        if item.origin not in staying and item.follows not in staying
    ]


def drop(contents: Contents, patterns: Sequence[str], unmatched: Unmatched) -> list[Change]:
    """Take out what a pattern matches, and what follows it."""
    going: dict[str, str] = {}
    for pattern in patterns:
        for item in _matching(contents, pattern, f"--drop {pattern}", unmatched):
            going.setdefault(item.origin, f"--drop {pattern}")
    for item in contents.items.values():
        if item.follows in going:
            going.setdefault(item.origin, f"follows {contents.items[item.follows].name}")
    return [_removed(contents, contents.items[origin], why) for origin, why in going.items()]


def strip_optimizer(contents: Contents) -> list[Change]:
    """Take out what is an optimizer's own; steps and averages stay.

    In an object-based checkpoint the optimizer's own counter goes with it: no object is
    left that could take it, and TensorFlow would call it unrestored.

    Raises:
        RefusedError: id ``no-optimizer``.
    """
    changes = [
        _removed(contents, item, "the optimizer's")
        for item in list(contents.items.values())
        if item.kind == "optimizer"
    ]
    graph = contents.graph
    if graph is not None:
        counters = _optimizer_counters(graph)
        changes += [
            _removed(contents, item, "counts the optimizer's steps, and goes with it")
            for item in list(contents.items.values())
            if item.kind == "step" and graph.node_of.get(item.origin) in counters
        ]
    if not changes:
        raise RefusedError(
            f"{contents.location} holds nothing of an optimizer",
            why=f"none of its {len(contents.items)} variables is one's",
            hint="leave out --strip-optimizer, or choose variables with --drop",
            id="no-optimizer",
        )
    return changes


def require_something(contents: Contents) -> None:
    """Refuse to write a checkpoint without variables.

    Raises:
        RefusedError: id ``nothing-left``.
    """
    if not contents.items:
        raise RefusedError(
            f"no variable of {contents.location} would be left",
            why="--keep, --drop and --strip-optimizer take all of them out",
            hint="choose fewer; -n shows what each takes out",
            id="nothing-left",
        )


def settle_graph(contents: Contents) -> None:
    """Make the object graph agree with what was taken out.

    Raises:
        RefusedError: id ``part-of-object``: some of what an object saved stays, and some
            goes; id ``optimizer-by-number``: an optimizer would be left that knows its
            variables only by their numbers, which a variable's going changes.
    """
    graph = contents.graph
    if graph is None or not graph.patch.dropped:
        return
    _require_whole_objects(contents, graph)
    dropped = {graph.node_of[key] for key in graph.patch.dropped}
    kinds, paths = graph.walked.kinds, graph.walked.paths
    weights_of = {node: weights for node, weights, _ in numbered_optimizers(graph.parsed)}
    for node, (_, names) in graph.parsed.edges.items():
        if kinds[node] != "optimizer" or EVERYTHING_EDGE not in names:
            continue
        own = _own_variables(graph, node)
        weights = weights_of.get(node, ())
        if own - dropped:
            gone = [weight for weight in weights if weight in dropped]
            gone += _bases_gone(contents, graph, own & dropped)
            if gone:
                raise _by_number(contents, graph, gone[0])
        elif all(not _inside(paths[weight], paths[node]) for weight in weights):
            # The list would bind what it leads to, by number, to what a new optimizer trains.
            graph.patch.edges[node, WEIGHTS_EDGE] = None


def _bases_gone(contents: Contents, graph: EditedGraph, slots: set[int]) -> list[int]:
    """The variables that went, of slots that went."""
    removed = contents.removed
    return [
        graph.node_of[item.follows]
        for item in removed.values()
        if item.follows in removed and graph.node_of.get(item.origin) in slots
    ]


def _own_variables(graph: EditedGraph, optimizer: int) -> set[int]:
    """The nodes of the variables that an optimizer made for itself."""
    edges = graph.parsed.edges
    saved = set(graph.parsed.owners)
    own = set()
    for child, name in zip(*edges[optimizer], strict=True):
        if name == WEIGHTS_EDGE:
            continue
        for member in (child, *edges.get(child, ((), ()))[0]):
            if member in saved and graph.walked.kinds[member] in {"optimizer", "ema"}:
                own.add(member)
    return own


def _optimizer_counters(graph: EditedGraph) -> set[int]:
    """The nodes of counters to which an optimizer leads."""
    kinds = graph.walked.kinds
    return {
        child
        for node, (ids, _) in graph.parsed.edges.items()
        if kinds[node] == "optimizer"
        for child in ids
        if kinds[child] == "step"
    }


def _inside(path: str | None, optimizer: str | None) -> bool:
    return path is None or optimizer is None or path.startswith(f"{optimizer}/")


def _require_whole_objects(contents: Contents, graph: EditedGraph) -> None:
    gone = {
        graph.node_of[item.saved_as]: item
        for item in contents.removed.values()
        if item.saved_as is not None
    }
    for item in contents.items.values():
        other = None if item.saved_as is None else gone.get(graph.node_of[item.saved_as])
        if other is not None:
            raise RefusedError(
                f"{other.name} cannot go without {item.name}",
                why=f"one object of {contents.location} saved both, and restores from both",
                hint="choose both of them, or neither",
                id="part-of-object",
            )


def _by_number(contents: Contents, graph: EditedGraph, gone: int) -> RefusedError:
    key = next(key for key, node in graph.node_of.items() if node == gone)
    return RefusedError(
        f"{contents.removed[key].name} cannot go while the optimizer stays",
        why=f"the optimizer of {contents.location} knows its variables by their numbers, and "
        "without this one they would be others",
        hint="add --strip-optimizer",
        id="optimizer-by-number",
    )


def _matching(contents: Contents, pattern: str, option: str, unmatched: Unmatched) -> list[Item]:
    matches = glob(pattern)
    found = [item for item in contents.items.values() if item.matches(matches)]
    if not found:
        unmatched(option)
    return found


def _removed(contents: Contents, item: Item, why: str) -> Change:
    contents.remove(item.origin)
    return Change(item.name, "dropped", why)
