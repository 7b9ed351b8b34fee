"""``--like``: one checkpoint's values under another's keys, in its order and its graph.

What the layout has beyond the model's weights (slots of an optimizer, counters) and the
values' checkpoint has not is left out of the result, and out of its object graph.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from ckpttool.errors import RefusedError
from ckpttool.formats.dtypes import dtype_name
from ckpttool.ops.edit.contents import Contents, Item
from ckpttool.ops.edit.matching import Described, Matched, match
from ckpttool.ops.edit.select import settle_graph
from ckpttool.ops.rewrite.run import Change

__all__ = ["rekey", "take_values", "unplaced"]

#: Counts the saves of a ``tf.train.Checkpoint``. It belongs to the layout and to no
#: training, and ``Checkpoint.restore`` calls a checkpoint without it incomplete.
_SAVE_COUNTER = "save_counter"
_LEFT_OUT = "left out"
_WITHOUT_VALUES = "not in the result"
#: Variables that a note names; a plan has them all.
_NAMED = 3


def rekey(
    contents: Contents, layout: Contents, named: Mapping[str, str]
) -> tuple[Contents, list[Change]]:
    """Give a layout the values of a checkpoint.

    Args:
        contents: the values.
        layout: another checkpoint; changed, and what is given back.
        named: names of the first → names of the second.

    Raises:
        RefusedError: id ``like-unmatched``: not every variable of the model has exactly
            one place and one value; lists all of them. id ``bundles-differ``: byte orders.
    """
    if contents.big_endian != layout.big_endian:
        raise RefusedError(
            f"{contents.location} cannot take the layout of {layout.location}",
            why="one is little-endian and the other big-endian",
            hint="copy one of them with TensorFlow on this machine first",
            id="bundles-differ",
        )
    have = {f"have {item.origin}": item for item in contents.items.values()}
    want = {f"want {item.origin}": item for item in layout.items.values()}
    object_based = contents.graph is not None and layout.graph is not None
    matched = match(
        [_described(key, item, "have", object_based) for key, item in have.items()],
        [_described(key, item, "want", object_based) for key, item in want.items()],
        named,
    )
    if not matched.settled:
        raise _unmatched(contents, layout, matched)
    changes = []
    for key, place in want.items():
        if key not in matched.pairs:
            changes += _without_values(layout, place)
            continue
        source, how = matched.pairs[key]
        item = have.pop(source.id)
        take_values(place, item)
        words = f"takes the place of {place.name}" if place.name != item.name else "is taken over"
        changes.append(Change(item.name, words, how))
    for item in have.values():
        changes.append(Change(item.name, _LEFT_OUT, f"{layout.location} has no place for it"))
    settle_graph(layout)
    return layout, changes


def unplaced(changes: Sequence[Change], values: str, layout: str) -> list[str]:
    """In words, what `rekey` found on one side only: a person has to know without a plan."""
    notes = []
    for what, said in (
        (_LEFT_OUT, f"left out of {values}, since {layout} has no place for"),
        (_WITHOUT_VALUES, f"not in the result, since {values} has no values for"),
    ):
        names = [change.variable for change in changes if change.what == what]
        if names:
            more = f" and {len(names) - _NAMED} more (-n lists them)" if len(names) > _NAMED else ""
            notes.append(f"{said} {', '.join(names[:_NAMED])}{more}")
    return notes


def _described(key: str, item: Item, side: str, object_based: bool) -> Described:
    return Described(
        key,
        item.key,
        item.name if item.name != item.origin else item.key,
        item.path if object_based else "",
        item.full_name,
        item.kind,
        dtype_name(item.dtype),
        item.shape,
        None if item.follows is None else f"{side} {item.follows}",
    )


def take_values(place: Item, item: Item) -> None:
    """Put the values of an item in the place of a variable of the layout.

    They stay whole, or in the slices that they are stored in.
    """
    order, first = place.tensors[0] if place.tensors else (0, None)
    shard = 0 if first is None else first.shard
    place.tensors = [(order, tensor._replace(shard=shard)) for _, tensor in item.tensors]
    place.owner = item.owner


def _without_values(layout: Contents, place: Item) -> list[Change]:
    """What becomes of a variable of the layout that gets no values."""
    if place.key.partition("/")[0] == _SAVE_COUNTER and place.kind == "step":
        return [Change(place.name, "kept from the layout", "it counts its saves")]
    layout.remove(place.origin)
    return [Change(place.name, _WITHOUT_VALUES, "only the layout has it, and no values are there")]


def _unmatched(contents: Contents, layout: Contents, matched: Matched) -> RefusedError:
    values, place = contents.location, layout.location
    doubtful = [
        f"{one.words} may be {' or '.join(other.words for other in others)}"
        for one, others in matched.doubtful
    ]
    different = [f"{have.words} and {want.words}" for have, want in matched.different]
    found = [
        (f"in {place} and without values", [one.words for one in matched.missing]),
        (f"in {values} and without a place", [one.words for one in matched.homeless]),
        ("in doubt", doubtful),
        ("of another dtype or shape", different),
        ("in the map and in neither checkpoint", matched.unknown),
    ]
    words = "; ".join(f"{len(names)} {what}: {_list(names)}" for what, names in found if names)
    only_dtypes = all(one.shape == other.shape for one, other in matched.different)
    hint = (
        f"--cast {matched.different[0][1].dtype}"
        if matched.different and only_dtypes and not (matched.missing or matched.doubtful)
        else "say which is which with --map FILE (JSON or CSV, old,new), or leave out with --drop; "
        f"ckpttool list {shlex.quote(place)} shows the names"
    )
    return RefusedError(
        f"{values} does not fit into the layout of {place}",
        why=words,
        hint=hint,
        id="like-unmatched",
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
