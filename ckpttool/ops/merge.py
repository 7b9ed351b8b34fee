"""``merge``: the variables of several checkpoints in one.

Every variable is copied as it is, with its checksum. What two sources both have is
decided by a rule that was given, or refused by name.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Literal

from ckpttool.errors import RefusedError, UsageError
from ckpttool.formats.object_graph import OBJECT_GRAPH_KEY
from ckpttool.formats.sstable import quote_key
from ckpttool.ops.rewrite.destination import destination, prefix_of
from ckpttool.ops.rewrite.gathering import gather
from ckpttool.ops.rewrite.reading import bundle_from
from ckpttool.ops.rewrite.run import Change, Options, RewriteResult, carry_out, finish_pending
from ckpttool.ops.rewrite.slice_rules import glob
from ckpttool.ops.rewrite.tensors import Bundle, Owner, Tensor
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.base import Source
from ckpttool.sources.registry import open_resolved

__all__ = ["OnConflict", "merge"]

OnConflict = Literal["error", "first", "last", "prefix"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAMED = 10


def merge(
    addresses: Sequence[str],
    to: str,
    on_conflict: OnConflict,
    take: Sequence[str],
    options: Options,
) -> RewriteResult:
    """Write the union of the sources.

    Args:
        addresses: the sources: the first is A, the second B, and so on.
        to: the destination.
        on_conflict: for a variable that several have: refuse; the first source's; the
            last one's; or all, under the name of their checkpoint and a slash (with as much
            of its path before it as tells the sources apart).
        take: ``B:GLOB``: of source B only what matches (several patterns unite), and these
            from no other source.
        options: how.

    Raises:
        UsageError: a ``take`` that names no source, or matches nothing.
        RefusedError: ids ``duplicate-key``, ``bundles-differ``.
        CkpttoolError: as reading the sources and ``carry_out``.
    """
    if not 2 <= len(addresses) <= len(_LETTERS):
        raise UsageError(
            f"{len(addresses)} sources cannot be merged",
            why=f"it takes 2 to {len(_LETTERS)}",
            hint="ckpttool cp copies one",
        )
    pending = [] if options.dry_run else finish_pending(to)
    with ExitStack() as opened:
        found = [resolve(address, options.limits) for address in addresses]
        sources = [opened.enter_context(open_resolved(one, options.limits)) for one in found]
        where = destination(to, prefix_of(found[0]))
        bundles = [bundle_from(source) for source in sources]
        wanted = _wanted(sources, bundles, take)
        changes = _settle(sources, wanted, _scopes(found), on_conflict)
        pieces = [
            (source.location, _only(bundle, keep))
            for source, bundle, keep in zip(sources, bundles, wanted, strict=True)
        ]
        merged = gather(pieces)
        location = " ".join(source.location for source in sources)
        notes = [*pending, *(note for one in found for note in one.notes)]
        notes += _graph_note(sources, wanted)
        return carry_out(location, merged, where, changes, options, notes=notes)


#: Of one source: key of a variable → the key that it gets.
Wanted = dict[bytes, bytes]


def _wanted(
    sources: Sequence[Source], bundles: Sequence[Bundle], take: Sequence[str]
) -> list[Wanted]:
    """What each source contributes before conflicts are looked at."""
    patterns: dict[int, list[tuple[str, Callable[[str], bool]]]] = defaultdict(list)
    for text in take:
        letter, found, pattern = text.partition(":")
        number = _LETTERS.find(letter.upper()) if len(letter) == 1 else -1
        if not found or not pattern or not 0 <= number < len(sources):
            raise UsageError(
                f"--take {text} cannot be understood",
                why=f"it is not SOURCE:GLOB, with a source of A to {_LETTERS[len(sources) - 1]}",
                hint="for example --take 'B:head/*'",
            )
        patterns[number].append((text, glob(pattern)))
    names = [
        {found.key: found.name for found in source.variables()} if patterns else {}
        for source in sources
    ]
    taken: dict[bytes, int] = {}
    for number, rules in patterns.items():
        for text, matches in rules:
            hits = [key for key, name in names[number].items() if matches(name) or matches(key)]
            if not hits:
                raise UsageError(
                    f"--take {text} matches nothing",
                    why=f"none of the variables of {sources[number].location} has such a name",
                    hint=f"ckpttool list {sources[number].address}",
                )
            for key in hits:
                taken[key.encode("utf-8", "surrogateescape")] = number
    wanted = []
    for number, bundle in enumerate(bundles):
        keys = {tensor.variable for tensor in bundle.tensors} | bundle.owners.keys()
        wanted.append(
            {
                key: key
                for key in keys
                if taken.get(key, number) == number and (number not in patterns or key in taken)
            }
        )
    return wanted


def _scopes(found: Sequence[Resolved]) -> list[str]:
    """A name for each source: its prefix, with as many directories as make all different.

    Several runs have a ``model.ckpt-1000``. One checkpoint given twice keeps one name.
    """
    folders = [os.path.abspath(one.directory).split("/") for one in found]
    prefixes = [prefix_of(one) for one in found]
    files = [os.path.basename(one.location) for one in found]  # model.npz and model.h5
    for last in (prefixes, files):
        paths = [[*folder, name] for folder, name in zip(folders, last, strict=True)]
        for length in range(1, max(map(len, paths)) + 1):
            names = ["/".join(path[-length:]) for path in paths]
            if len(set(names)) == len(names):
                return names
    return prefixes


def _settle(
    sources: Sequence[Source],
    wanted: list[Wanted],
    scopes: Sequence[str],
    on_conflict: OnConflict,
) -> list[Change]:
    """Decide who gives what several have; changes ``wanted``."""
    holders: dict[bytes, list[int]] = defaultdict(list)
    for number, keys in enumerate(wanted):
        for key in keys:
            holders[key].append(number)
    conflicts = {key: numbers for key, numbers in holders.items() if len(numbers) > 1}
    if conflicts and on_conflict == "error":
        raise _conflict(sources, conflicts)
    changes = []
    for key, numbers in sorted(conflicts.items()):
        name = key.decode("utf-8", "surrogateescape")
        if on_conflict == "prefix":
            for number in numbers:
                new = scopes[number].encode("utf-8", "surrogateescape") + b"/" + key
                wanted[number][key] = new
                text = new.decode("utf-8", "surrogateescape")
                changes.append(Change(name, f"→ {text}", f"from {sources[number].location}"))
            continue
        winner = numbers[0] if on_conflict == "first" else numbers[-1]
        for number in numbers:
            if number != winner:
                del wanted[number][key]
        why = f"--on-conflict {on_conflict}, of {len(numbers)} sources"
        changes.append(Change(name, f"from {sources[winner].location}", why))
    return changes


def _conflict(sources: Sequence[Source], conflicts: dict[bytes, list[int]]) -> RefusedError:
    named = [
        f"{quote_key(key)} in {' and '.join(sources[number].location for number in numbers)}"
        for key, numbers in sorted(conflicts.items())[:_NAMED]
    ]
    more = f"; and {len(conflicts) - _NAMED} more" if len(conflicts) > _NAMED else ""
    return RefusedError(
        f"{len(conflicts)} variable{'s are' if len(conflicts) > 1 else ' is'} in more than one "
        "source",
        why="; ".join(named) + more,
        hint="choose with --on-conflict first, last or prefix, or with --take 'B:GLOB'",
        id="duplicate-key",
    )


def _only(bundle: Bundle, wanted: Wanted) -> Bundle:
    """The part of a bundle that is wanted, under the keys that it gets."""
    owners: dict[bytes, Owner] = {}
    parts: dict[bytes, bytes] = {}
    for key, owner in bundle.owners.items():
        new = wanted.get(key)
        if new is None:
            continue
        owners[new] = Owner(new, owner.dtype, owner.shape, owner.slices, owner.raw)
        for spec in owner.slices:
            parts[spec.key(key)] = spec.key(new)
    tensors: list[Tensor] = []
    for tensor in bundle.tensors:
        variable = wanted.get(tensor.variable)
        if variable is not None:
            key = parts.get(tensor.key, variable)
            tensors.append(tensor._replace(key=key, variable=variable))
    return Bundle(tensors, owners, bundle.header, bundle.big_endian, bundle.shards, bundle.inputs)


def _graph_note(sources: Sequence[Source], wanted: Sequence[Wanted]) -> list[str]:
    """What to know where not every variable is in the object graph that was kept."""
    objects = [number for number, source in enumerate(sources) if source.style == "object"]
    graph = OBJECT_GRAPH_KEY.encode()
    kept = [number for number in objects if wanted[number].get(graph) == graph]
    others = [number for number, keys in enumerate(wanted) if keys and number not in kept]
    if not objects or not others:
        return []
    whose = f"that of {sources[kept[0]].location}" if kept else "none"
    return [
        f"the object graph is {whose}: TensorFlow restores the other variables only by their keys"
    ]
