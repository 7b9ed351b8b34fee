"""Which variable of a checkpoint has the value that an export needs: by name, never by place.

An export of Keras 3 holds most variables twice (``variables/0`` and ``_all_variables/0``),
in two orders, and a checkpoint keys them through the optimizer. All they have in common is
the variable's full name, in the object graph of either. Where that is nobody's own (all
that nobody named are called ``Variable``) the attribute under which the model has it tells;
a position in a list that Keras makes does not. Reads no values.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ckpttool.errors import RefusedError
from ckpttool.formats.dtypes import dtype_name
from ckpttool.ops.edit.matching import Described, match
from ckpttool.ops.rewrite.tensors import Stored
from ckpttool.sources.naming import says_something

if TYPE_CHECKING:
    from ckpttool.model import Kind
    from ckpttool.ops.edit.contents import Contents, Item

__all__ = ["Refill", "pair_up"]

#: Lists whose order Keras and TensorFlow choose.
_LISTS = frozenset(
    {
        "variables",
        "_all_variables",
        "trainable_variables",
        "_trainable_variables",
        "non_trainable_variables",
        "_non_trainable_variables",
    }
)
#: What is served; counters, slots of an optimizer and metrics are not.
_SERVED = frozenset({"model", "ema"})


class Refill(NamedTuple):
    """Where the values of an export come from.

    Attributes:
        pairs: key in the export → key in the source.
        kept: keys of the export that the source has nothing for, and that are not served.
        unused: names of the source's variables of the model that the export has no place for.
    """

    pairs: dict[str, str]
    kept: tuple[str, ...]
    unused: tuple[str, ...]


class _Side(NamedTuple):
    """One checkpoint: what stands for each of its variables, and which keys it stands for."""

    described: list[Described]
    keys: dict[str, list[str]]


def pair_up(source: Contents, export: Contents, named: Mapping[str, str]) -> Refill:
    """Find the source of every value of an export.

    Args:
        source: has the values.
        export: needs them.
        named: names of the source → names of the export, as a person said.

    Raises:
        RefusedError: id ``refresh-unmatched``: names all that is missing, in doubt, or of
            another dtype or shape.
    """
    want = _side(export, "want", {})
    have = _side(source, "have", {one.full_name: one.kind for one in want.described})
    matched = match(have.described, want.described, named, shapes=False)
    paired = {one: pair[0] for one, pair in matched.pairs.items()}
    missing = [one for one in want.described if one.id not in paired and one.kind in _SERVED]
    doubtful = {one.id: others for one, others in matched.doubtful}
    if missing or doubtful or matched.different or matched.unknown:
        raise _refusal(
            source,
            export,
            [one.words for one in missing if one.id not in doubtful],
            [_doubt(one, others) for one, others in matched.doubtful],
            [f"{one.words} and {other.words}" for one, other in matched.different],
            matched.unknown,
        )
    return Refill(
        {key: have.keys[one.id][0] for id, one in paired.items() for key in want.keys[id]},
        tuple(key for one in want.described if one.id not in paired for key in want.keys[one.id]),
        tuple(one.name for one in matched.homeless),
    )


def _side(contents: Contents, side: str, known: Mapping[str, Kind]) -> _Side:
    """What a checkpoint has.

    ``known``: names of the other side, and what they are for. What a name is for is a guess
    where no object graph tells, and then the other side knows better.
    """
    groups: dict[str, list[Item]] = defaultdict(list)
    for item in contents.items.values():
        groups[item.full_name.removesuffix(":0")].append(item)
    described: list[Described] = []
    keys: dict[str, list[str]] = {}
    for full_name, items in groups.items():
        if says_something(full_name) and _is_one(items):
            members = [(full_name, items)]
        else:
            members = [(_by_attribute(item, known), [item]) for item in items]
        for name, same in members:
            first, id = same[0], f"{side} {same[0].key}"
            keys[id] = [item.key for item in same]
            kind = first.kind if contents.graph is not None else known.get(name, first.kind)
            dtype = dtype_name(first.dtype)
            described.append(
                Described(id, first.key, first.name, "", name, kind, dtype, first.shape)
            )
    return _Side(described, keys)


def _is_one(items: Sequence[Item]) -> bool:
    """Whether all of these are the same variable, saved several times: their checksums tell."""
    return len({_mark(item) for item in items}) == 1


def _mark(item: Item) -> tuple[object, ...]:
    """Dtype, shape, size and stored checksum; of what is not stored whole its own key."""
    if item.owner is None and len(item.tensors) == 1:
        content = item.tensors[0][1].content
        if isinstance(content, Stored) and content.crc32c is not None:
            return item.dtype, item.shape, content.nbytes, content.crc32c
    return (item.key,)


def _by_attribute(item: Item, known: Container[str]) -> str:
    """The object path of a variable whose name says nothing; empty where that says no more.

    In a checkpoint it begins with what the model was called there.
    """
    parts = item.path.split("/")
    if parts[-1].isdecimal() and (len(parts) < 2 or parts[-2] in _LISTS):
        return ""
    inner = "/".join(parts[1:])
    return inner if item.path not in known and inner in known else item.path


def _doubt(one: Described, others: Iterable[Described]) -> str:
    return f"{one.words} may be {' or '.join(other.words for other in others)}"


def _refusal(
    source: Contents,
    export: Contents,
    missing: Sequence[str],
    doubtful: Sequence[str],
    different: Sequence[str],
    unknown: Sequence[str],
) -> RefusedError:
    found = [
        ("without a value", missing),
        ("in doubt", doubtful),
        ("of another dtype or shape", different),
        ("in the map and in neither of them", unknown),
    ]
    return RefusedError(
        f"{export.location} cannot be refreshed from {source.location}",
        why="; ".join(f"{len(names)} {what}: {', '.join(names)}" for what, names in found if names),
        hint="export the model anew, or say which is which with --map FILE (JSON or CSV, "
        f"old,new); ckpttool list {shlex.quote(export.location)} shows the names",
        id="refresh-unmatched",
    )
