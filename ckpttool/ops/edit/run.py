"""``edit``: the same checkpoint with other names, fewer variables, or other types.

The steps of one run are always taken in this order, whatever the order of the options:
``--keep``, ``--drop``, ``--strip-optimizer``, ``--promote-ema``, ``--map``, ``--rename``
(as given), ``--cast``, ``--like``. Patterns mean the names of the source.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ckpttool.errors import RefusedError, UsageError
from ckpttool.ops.edit.cast import (
    CASTS,
    Loss,
    cast,
    count_losses,
    loss_warnings,
    with_losses,
)
from ckpttool.ops.edit.contents import Contents, read_contents
from ckpttool.ops.edit.like import rekey, unplaced
from ckpttool.ops.edit.mapping_file import NameMap, read_map
from ckpttool.ops.edit.promote import promote_averages
from ckpttool.ops.edit.rename import rename
from ckpttool.ops.edit.rules import Exact, Rule, parse_rename
from ckpttool.ops.edit.select import drop, keep, require_something, settle_graph, strip_optimizer
from ckpttool.ops.edit.slots import link_slots
from ckpttool.ops.edit.unmatched import Unmatched
from ckpttool.ops.rewrite.destination import Destination, destination, prefix_of
from ckpttool.ops.rewrite.reading import bundle_from
from ckpttool.ops.rewrite.run import Change, Options, RewriteResult, carry_out, finish_pending
from ckpttool.ops.rewrite.tensors import Bundle, Input
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.filenames import graph_name
from ckpttool.sources.registry import open_resolved
from ckpttool.storage import open_directory

__all__ = ["Edit", "edit"]


@dataclass(frozen=True, slots=True)
class Edit:
    """What is asked for.

    Attributes:
        keep: patterns: only what matches one stays.
        drop: patterns: what matches one goes.
        strip_optimizer: an optimizer's own variables go.
        promote_ema: moving averages take the place of their variables.
        maps: files of old and new names.
        renames: ``s/a/b/`` or ``OLD=NEW``, in their order.
        cast: the type that floating-point variables get.
        only: patterns: which of them.
        like: a checkpoint whose layout the values get; maps then say which is which.
        allow_unmatched: names and patterns may fit nothing.
    """

    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    strip_optimizer: bool = False
    promote_ema: bool = False
    maps: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    cast: str | None = None
    only: tuple[str, ...] = ()
    like: str | None = None
    allow_unmatched: bool = False

    def __post_init__(self) -> None:
        steps = (
            self.keep, self.drop, self.strip_optimizer, self.promote_ema, self.maps, self.renames,
            self.cast, self.like,
        )  # fmt: skip
        if not any(steps):
            raise UsageError(
                "nothing is to be edited",
                why="none of the options that change something is given",
                hint="ckpttool edit --help; a plain copy is ckpttool cp",
            )
        if self.only and self.cast is None:
            raise UsageError("--only goes with --cast", hint="ckpttool edit --help")
        if self.cast is not None and self.cast not in CASTS:
            raise UsageError(
                f"nothing can be cast to {self.cast}",
                why=f"the types are {', '.join(CASTS)}",
                hint="ckpttool edit --help",
            )


def edit(address: str, to: str, asked: Edit, options: Options) -> RewriteResult:
    """Write an edited copy of a checkpoint.

    Bytes of variables that are not cast are moved as they are, with their checksums.

    Raises:
        UsageError: what is asked for makes no sense.
        RefusedError: id ``unmatched``: a pattern or a name fits nothing; ids
            ``duplicate-key``, ``like-unmatched``, ``nothing-left`` and those of the steps;
            id ``edit-saved-model``.
        CorruptError: the object graph, or values that are cast, are damaged.
        CkpttoolError: as reading the source and ``carry_out``.
    """
    pending = [] if options.dry_run else finish_pending(to)
    rules = [parse_rename(text) for text in asked.renames]
    with ExitStack() as opened:
        found = resolve(address, options.limits)
        source = opened.enter_context(open_resolved(found, options.limits))
        where = destination(to, prefix_of(found))
        contents = read_contents(source, options.limits)
        link_slots(contents)
        before = contents.nbytes
        notes = [*pending, *found.notes]
        maps = {path: read_map(path) for path in asked.maps}
        inputs = contents.inputs + tuple(Input.of(path, one.stat) for path, one in maps.items())
        unmatched = Unmatched(contents)
        changes, losses = _steps(contents, asked, maps, rules, unmatched)
        unmatched.settle(allow=asked.allow_unmatched)
        if options.dry_run:
            count_losses(contents, losses)
        if asked.like is not None:
            layout_at = resolve(asked.like, options.limits)
            layout_source = opened.enter_context(open_resolved(layout_at, options.limits))
            layout = read_contents(layout_source, options.limits)
            link_slots(layout)
            inputs += layout.inputs
            named = _pairs(asked, maps, contents, layout)
            contents, more = rekey(contents, layout, named)
            changes += more
            notes += layout_at.notes
            if not options.dry_run:
                notes += unplaced(more, source.location, layout.location)
        bundle = contents.bundle()
        bundle.inputs = inputs
        if where.saved_model:
            _require_same_variables(where, bundle, options)
        result = carry_out(source.location, bundle, where, changes, options, notes=notes)
    notes.append(f"{before:,} bytes of values became {contents.nbytes:,}")
    return result._replace(
        changes=tuple(with_losses(result.changes, losses)),
        warnings=(*result.warnings, *loss_warnings(losses), *_graph_words(found)),
        notes=tuple(notes),
    )


def _steps(
    contents: Contents,
    asked: Edit,
    maps: Mapping[str, NameMap],
    rules: Sequence[Rule],
    unmatched: Unmatched,
) -> tuple[list[Change], dict[str, Loss]]:
    """Every step but ``--like``."""
    changes: list[Change] = []
    if asked.keep:
        changes += keep(contents, asked.keep, unmatched)
    if asked.drop:
        changes += drop(contents, asked.drop, unmatched)
    if asked.strip_optimizer:
        changes += strip_optimizer(contents)
    if not contents.items:  # a pattern that fits nothing is the likelier reason
        unmatched.settle(allow=asked.allow_unmatched)
    require_something(contents)
    if asked.promote_ema:
        changes += promote_averages(contents)
    settle_graph(contents)
    if asked.like is None:
        mapped = [_map_rule(path, one, contents) for path, one in maps.items()]
        changes += _not_mapped(contents, mapped)
        rules = [*mapped, *rules]
    if rules:
        changes += rename(contents, rules, unmatched)
    losses: dict[str, Loss] = {}
    if asked.cast is not None:
        more, losses = cast(contents, asked.cast, asked.only, unmatched)
        changes += more
    return changes, losses


def _map_rule(path: str, names: NameMap, contents: Contents) -> Exact:
    known = (name for item in contents.items.values() for name in item.present_names())
    return Exact(f"--map {path}", dict(names.towards(known).pairs))


def _not_mapped(contents: Contents, rules: Sequence[Exact]) -> list[Change]:
    """The variables that no map names; slots follow theirs."""
    if not rules:
        return []
    mapped = {name for rule in rules for name in rule.names}
    return [
        Change(item.name, "kept as it is", "it is in no map")
        for item in contents.items.values()
        if item.follows not in contents.items and mapped.isdisjoint(item.present_names())
    ]


def _pairs(
    asked: Edit, maps: Mapping[str, NameMap], contents: Contents, layout: Contents
) -> dict[str, str]:
    """What the maps say of a checkpoint and a layout."""
    here = {name for item in contents.items.values() for name in item.present_names()}
    there = {name for item in layout.items.values() for name in item.present_names()}
    pairs: dict[str, str] = {}
    for one in maps.values():
        pairs.update(one.towards(here).pairs)
    if asked.allow_unmatched:
        return {old: new for old, new in pairs.items() if old in here and new in there}
    return pairs


def _require_same_variables(where: Destination, bundle: Bundle, options: Options) -> None:
    """Refuse to give a SavedModel other variables than its graph asks for.

    Raises:
        RefusedError: id ``edit-saved-model``.
    """
    with open_resolved(resolve(where.saved_model, options.limits), options.limits) as present:
        theirs = _signatures(bundle_from(present))
    ours = _signatures(bundle)
    different = sorted(
        name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name)
    )
    if different:
        raise RefusedError(
            f"{where.saved_model} would no longer find its variables",
            why=f"its graph asks for each by key, dtype and shape, and {len(different)} would be "
            f"others: {', '.join(different[:5])}{'…' if len(different) > 5 else ''}",
            hint=f"write to a prefix instead, or add --like {shlex.quote(where.saved_model)}",
            id="edit-saved-model",
        )


def _signatures(bundle: Bundle) -> dict[str, tuple[int, tuple[int, ...] | None]]:
    """Dtype and shape of every variable, by key."""
    found = {owner.key: (owner.dtype, owner.shape) for owner in bundle.owners.values()}
    for tensor in bundle.tensors:
        found.setdefault(tensor.variable, (tensor.dtype, tensor.shape))
    return {key.decode("utf-8", "surrogateescape"): value for key, value in found.items()}


def _graph_words(found: Resolved) -> list[str]:
    name = graph_name(found.prefix)
    with open_directory(found.directory) as directory:
        if directory.stat(name) is None:
            return []
    return [f"{name} is not copied: its graph asks for the variables as they were"]
