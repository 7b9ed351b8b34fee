"""``--rename`` and ``--map`` on names: slots and averages follow their variable.

In a name-based checkpoint the key is the name. What renaming means for an object-based one
is in ``rename_graph``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ckpttool.errors import RefusedError
from ckpttool.ops.edit.contents import Contents, Item
from ckpttool.ops.edit.rename_graph import rename_in_graph
from ckpttool.ops.edit.rules import Exact, Rule, reason_of
from ckpttool.ops.rewrite.run import Change
from ckpttool.ops.slot_names import base_of_slot

__all__ = ["rename"]

Unmatched = Callable[[str], None]


def rename(contents: Contents, rules: Sequence[Rule], unmatched: Unmatched) -> list[Change]:
    """Apply rules one after the other; a name that none fits stays.

    Args:
        contents: changed in place.
        rules: in their order.
        unmatched: told of a rule, or of a name in one, that fits nothing.

    Raises:
        RefusedError: id ``name-unusable``: no key can be so; those of
            ``rename_in_graph``.
    """
    if contents.graph is not None:
        return rename_in_graph(contents, contents.graph, rules, unmatched)
    before = {origin: item.key for origin, item in contents.items.items()}
    for rule in rules:
        _apply(contents, rule, unmatched)
    reason = reason_of(rules)
    return [
        Change(item.name, f"renamed to {item.key}", _followed(contents, item) or reason)
        for origin, item in contents.items.items()
        if item.key != before[origin]
    ]


def _apply(contents: Contents, rule: Rule, unmatched: Unmatched) -> None:
    items = contents.items
    old = {origin: item.key for origin, item in items.items()}
    if isinstance(rule, Exact):
        present = set(old.values())
        for name in rule.names:
            if name not in present:
                unmatched(f"{rule.text}: {name}")
    new = {origin: rule.replace(key) for origin, key in old.items()}
    if not isinstance(rule, Exact) and all(new[origin] == old[origin] for origin in new):
        unmatched(rule.text)
    for origin, item in items.items():
        base = item.follows
        named = isinstance(rule, Exact) and old[origin] in rule.names
        if base in items and new[base] != old[base] and not named:
            found = base_of_slot(old[origin], {old[base]})
            if found is not None:
                new[origin] = old[origin][: found[0]] + new[base] + old[origin][found[1] :]
    for origin, item in items.items():
        if not new[origin] or new[origin].startswith("\0"):
            raise RefusedError(
                f"{item.name} cannot be renamed to '{new[origin]}'",
                why="the empty name and names that begin with a zero byte are the format's own",
                hint=f"change {rule.text}",
                id="name-unusable",
            )
        item.key = new[origin]


def _followed(contents: Contents, item: Item) -> str:
    base = contents.items.get(item.follows or "")
    return "" if base is None or base.key == base.origin else f"follows {base.name}"
