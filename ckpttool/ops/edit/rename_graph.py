"""What renaming means where TensorFlow restores through the object graph.

A variable of an object-based checkpoint has three names, and a rule applies to each:

- its object path, by which ``tf.train.Checkpoint`` finds it: the edges on the way get other
  names. A rule can rename the objects on a path; it cannot move a variable elsewhere.
- its full name, by which ``tf.compat.v1.train.Saver`` finds it, and people.
- its key, which has to be the same in the graph and in the index. Where it spells a path
  it follows that path; an ``OLD=NEW`` that names a key changes just the key, but for the
  end that says which attribute it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ckpttool.errors import RefusedError
from ckpttool.ops.edit.contents import Contents, EditedGraph, Item
from ckpttool.ops.edit.rules import Exact, Rule, reason_of
from ckpttool.ops.rewrite.run import Change
from ckpttool.ops.slot_names import base_of_slot
from ckpttool.sources.graph_walk import escape_name
from ckpttool.sources.naming import readable_path

__all__ = ["rename_in_graph"]

_SLOT = "/.OPTIMIZER_SLOT/"
_ATTRIBUTES = "/.ATTRIBUTES/"

#: A node and the name of an edge that leaves it.
_Edge = tuple[int, str]


@dataclass(slots=True)
class _Names:
    """The three names of a variable while rules are applied.

    ``path`` is None where the variable has none of its own: a slot's is made of two
    others. ``escaped`` says how it is spelled.
    """

    item: Item
    path: str | None
    escaped: bool
    full_name: str
    key: str


def rename_in_graph(
    contents: Contents, graph: EditedGraph, rules: Sequence[Rule], unmatched: Callable[[str], None]
) -> list[Change]:
    """Apply rules to paths, full names and keys; raises and tells as ``rename.rename``.

    Raises:
        RefusedError: id ``rename-moves``: a path would have more or fewer components; id
            ``rename-splits``: an object would have two names, for variables below it are
            renamed differently; id ``duplicate-key``; id ``name-unusable``.
    """
    before = _names(contents, graph)
    after = _names(contents, graph)
    for rule in rules:
        _apply(after, rule, unmatched)
    edges = _renamed_edges(graph, before, after)
    speller = _Speller(graph, edges)
    _require_different_siblings(speller)
    _require_different_names(before, after)
    graph.patch.edges.update(edges)
    reason = reason_of(rules)
    changes = []
    for origin, names in after.items():
        item, old = names.item, before[origin]
        saved_as = item.saved_as or ""
        key = names.key if names.key != old.key else speller.key(names.key)
        what = []
        if names.path is not None and names.path != old.path:
            what.append(f"path renamed to {names.path}")
            item.path = names.path
        if names.full_name != old.full_name:
            what.append(f"full name changed to {names.full_name}")
            graph.patch.full_names[saved_as] = item.full_name = names.full_name
        if key != old.key:
            if not what:
                what.append(f"key changed to {key}")
            item.key = key
            graph.patch.keys[saved_as] = key if saved_as == origin else speller.key(saved_as)
        if what:
            changes.append(Change(item.name, ", ".join(what), reason))
    return changes


def _names(contents: Contents, graph: EditedGraph) -> dict[str, _Names]:
    """The names of everything that the graph knows."""
    found = {}
    for origin, item in contents.items.items():
        if item.saved_as is None:
            continue
        path = graph.walked.paths[graph.node_of[item.saved_as]]
        if path is not None and _SLOT in path:
            path = None
        escaped = path is not None and ".S" in path
        spelled = path if path is None or escaped else readable_path(path)
        found[origin] = _Names(item, spelled, escaped, item.full_name, item.key)
    return found


def _apply(names: dict[str, _Names], rule: Rule, unmatched: Callable[[str], None]) -> None:
    old_full_names = {origin: one.full_name for origin, one in names.items()}
    missing = set(rule.names) if isinstance(rule, Exact) else {rule.text}
    for one in names.values():
        before = (one.path, one.full_name, one.key)
        if one.path is not None:
            one.path = rule.replace(one.path)
        if one.full_name:
            one.full_name = rule.replace(one.full_name)
        if isinstance(rule, Exact):
            one.key = rule.replace(one.key)
            missing.difference_update(name for name in before if name is not None)
        elif (one.path, one.full_name, one.key) != before:
            missing.clear()
    for one in names.values():
        _follow(one, names, old_full_names)
        if one.key != one.item.key and not _is_usable(one):
            raise _unusable(one.item, one.key)
    for text in sorted(missing):
        unmatched(f"{rule.text}: {text}" if isinstance(rule, Exact) else text)


def _follow(one: _Names, names: dict[str, _Names], old_full_names: dict[str, str]) -> None:
    """Rename a slot's full name with its variable's."""
    origin = one.item.origin
    base = names.get(one.item.follows or "")
    if base is None or one.full_name != old_full_names[origin]:
        return
    old, new = old_full_names[base.item.origin], base.full_name
    if not old or old == new:
        return
    text = one.full_name
    flat = old.replace("/", "_")  # adam/dense_kernel_momentum: Keras 3
    found = base_of_slot(text, {old})
    if found is not None:
        one.full_name = text[: found[0]] + new + text[found[1] :]
    elif text.endswith(f"/{old}"):
        one.full_name = text[: -len(old)] + new
    elif f"/{flat}_" in text:
        one.full_name = text.replace(f"/{flat}_", f"/{new.replace('/', '_')}_", 1)


def _is_usable(one: _Names) -> bool:
    """Whether a key can be one, and names the same attribute of an object as before.

    (TensorFlow looks for that end: restore.py, _extract_saveable_name.)
    """
    path, sign, attribute = one.key.partition(_ATTRIBUTES)
    same = bool(sign) and attribute == one.item.key.partition(_ATTRIBUTES)[2]
    return (
        same and bool(path) and not path.startswith("\0") and one.item.saved_as == one.item.origin
    )


def _renamed_edges(
    graph: EditedGraph, before: dict[str, _Names], after: dict[str, _Names]
) -> dict[_Edge, str | None]:
    """The edges that get other names, so that every path becomes the one it should be."""
    children = _Children(graph)
    wanted: dict[_Edge, tuple[str, Item]] = {}
    for origin, old in before.items():
        new = after[origin]
        if old.path is None or new.path is None or not old.path:
            continue
        steps, names = old.path.split("/"), new.path.split("/")
        if len(steps) != len(names):
            raise _moves(old.item, new.path)
        node = 0
        for step, name in zip(steps, names, strict=True):
            if old.escaped:
                step, name = readable_path(step), readable_path(name)  # noqa: PLW2901
            if not name:
                raise _unusable(old.item, new.path)
            edge = (node, step)
            known, item = wanted.setdefault(edge, (name, old.item))
            if known != name:
                raise _splits(step, known, item, name, old.item)
            following = children.of(node).get(step)
            if following is None:
                break  # no such edge: the path was made of something else
            node = following
    return {edge: name for edge, (name, _) in wanted.items() if name != edge[1]}


class _Children:
    """Where the edges of a node lead, by their names; of many nodes, each made once."""

    def __init__(self, graph: EditedGraph) -> None:
        self._edges = graph.parsed.edges
        self._known: dict[int, dict[str, int]] = {}

    def of(self, node: int) -> dict[str, int]:
        """The edges of a node."""
        known = self._known.get(node)
        if known is None:
            ids, names = self._edges.get(node, ((), ()))
            known = self._known[node] = dict(zip(names, ids, strict=True))
        return known


class _Speller:
    """Spells keys anew after edges were renamed."""

    def __init__(self, graph: EditedGraph, edges: dict[_Edge, str | None]) -> None:
        self.children = _Children(graph)
        self.edges = edges

    def key(self, key: str) -> str:
        """The key of what a key names, where it spells a path."""
        path, sign, attribute = key.partition(_ATTRIBUTES)
        if not sign or not self.edges:
            return key
        variable, slot_sign, slot = path.partition(_SLOT)
        if not slot_sign:
            return self._path(path) + sign + attribute
        optimizer, slash, name = slot.rpartition("/")
        return f"{self._path(variable)}{_SLOT}{self._path(optimizer)}{slash}{name}{sign}{attribute}"

    def _path(self, path: str) -> str:
        node: int | None = 0
        spelled = []
        for step in path.split("/"):
            if node is None:
                spelled.append(step)
                continue
            local = readable_path(step)
            new = self.edges.get((node, local))
            spelled.append(step if new is None else escape_name(new))
            node = self.children.of(node).get(local)
        return "/".join(spelled)


def _require_different_siblings(speller: _Speller) -> None:
    for node in {node for node, _ in speller.edges}:
        known: dict[str, str] = {}
        for name in speller.children.of(node):
            new = speller.edges.get((node, name)) or name
            other = known.setdefault(new, name)
            if other != name:
                raise RefusedError(
                    f"two objects beside each other would have the name {new}",
                    why=f"{other} and {name} both would",
                    hint="choose another name for one of them",
                    id="duplicate-key",
                )


def _require_different_names(before: dict[str, _Names], after: dict[str, _Names]) -> None:
    """Two variables may have had one full name; a rule must not add to that."""
    known: dict[str, str] = {}
    for origin, names in after.items():
        if not names.full_name:
            continue
        other = known.setdefault(names.full_name, origin)
        if other != origin and before[other].full_name != before[origin].full_name:
            raise RefusedError(
                f"two variables would have the full name {names.full_name}",
                why=f"{before[other].item.name} and {names.item.name} both would",
                hint="choose another name for one of them, or --drop one",
                id="duplicate-key",
            )


def _unusable(item: Item, name: str) -> RefusedError:
    return RefusedError(
        f"{item.name} cannot be renamed to '{name}'",
        why="it is empty, or begins with a zero byte, or is a key that does not end as the old one "
        "does, which says what it holds",
        hint="change the rule",
        id="name-unusable",
    )


def _moves(item: Item, path: str) -> RefusedError:
    return RefusedError(
        f"{item.name} cannot be moved to {path}",
        why=f"its object path is {item.path}: a rule can rename the objects on it, and this one "
        "asks for others",
        hint="save once from the program with the new structure, and add --like THAT_CHECKPOINT",
        id="rename-moves",
    )


def _splits(step: str, one: str, first: Item, other: str, second: Item) -> RefusedError:
    return RefusedError(
        f"the object {step} would have two names: {one} and {other}",
        why=f"it is on the way to {first.path} and to {second.path}, and the rules rename one "
        "of them differently",
        hint="rename all that is below it alike, or add --like with a checkpoint of the new "
        "structure",
        id="rename-splits",
    )
