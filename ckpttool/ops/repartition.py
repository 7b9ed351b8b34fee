"""``repartition``: the same variables in other shards, other slices, or gathered pieces.

Where the bytes go is decided by ``policy`` (partition, placement); most of them are then
moved by the kernel and keep their checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ckpttool.errors import NotFoundError, UnsupportedError, UsageError
from ckpttool.formats.dtypes import dtype_name
from ckpttool.limits import Limits
from ckpttool.ops.rewrite.destination import destination, prefix_of
from ckpttool.ops.rewrite.gathering import gather
from ckpttool.ops.rewrite.placing import (
    Strategy,
    by_bytes,
    by_name_hash,
    by_rows,
    by_rules,
    place,
    within,
)
from ckpttool.ops.rewrite.reading import bundle_from
from ckpttool.ops.rewrite.run import (
    Change,
    Options,
    RewriteResult,
    carry_out,
    finish_pending,
    open_graph,
)
from ckpttool.ops.rewrite.tensors import Bundle
from ckpttool.policy.placement import Piece
from ckpttool.sources.address import Resolved, resolve
from ckpttool.sources.base import Source
from ckpttool.sources.filenames import graph_name
from ckpttool.sources.registry import open_resolved
from ckpttool.storage import open_directory

# Most often whole variables are moved, and a start counts every millisecond.
if TYPE_CHECKING:
    from ckpttool.ops.rewrite.layout import Variable
    from ckpttool.ops.rewrite.slicing import Cut, Form

__all__ = ["By", "Repartition", "repartition"]

By = Literal["size", "hash", "range", "fixed", "device"]


@dataclass(frozen=True, slots=True)
class Repartition:
    """What is asked for.

    Attributes:
        shards: how many data files; None: as many as there are, or as it takes.
        max_shard_size: bytes that no data file should pass; excludes ``shards``.
        by: how a shard is chosen; ``size`` unless said.
        rules: for ``fixed``: ``GLOB=K``, the first that matches decides.
        slices: which variables are cut, in the words of ``slice_rules``.
        merge_slices: patterns of variables whose slices are put together.
        form: whether parts become slices, or variables ``X/part_k``.
        join_parts: patterns of variables to put together from ``X/part_k``.
        unrestorable: allow slices that TensorFlow cannot put together.
    """

    shards: int | None = None
    max_shard_size: int | None = None
    by: By | None = None
    rules: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    merge_slices: tuple[str, ...] = ()
    form: Form = "slices"
    join_parts: tuple[str, ...] = ()
    unrestorable: bool = False

    def __post_init__(self) -> None:
        if self.shards is not None and self.max_shard_size is not None:
            raise _contradiction("--shards and --max-shard-size exclude each other")
        if self.max_shard_size is not None and self.by not in {None, "size"}:
            raise _contradiction(f"--max-shard-size fills shards by size, not by {self.by}")
        if self.by in {"hash", "range"} and self.shards is None:
            raise _contradiction(f"--by {self.by} needs --shards N")
        if bool(self.rules) != (self.by == "fixed"):
            raise _contradiction("--rule goes with --by fixed, and --by fixed needs one")
        if self.form == "parts" and not self.slices and self.by != "range":
            raise _contradiction("--as-parts is a way to cut: it goes with --slice or --by range")


def repartition(
    addresses: Sequence[str], to: str, asked: Repartition, options: Options
) -> RewriteResult:
    """Write the variables of one checkpoint, or of several pieces of one, anew.

    Raises:
        UsageError: what is asked for contradicts itself or a variable's shape.
        RefusedError: ids ``exists``, ``duplicate-key``, ``bundles-differ``,
            ``slices-unrestorable``, ``parts-do-not-fit``.
        CkpttoolError: as reading the sources and ``carry_out``.
    """
    pending = [] if options.dry_run else finish_pending(to)
    with ExitStack() as opened:
        found = [resolve(address, options.limits) for address in addresses]
        sources = [opened.enter_context(open_resolved(one, options.limits)) for one in found]
        where = destination(to, prefix_of(found[0]))
        bundle = _gathered(sources)
        changes: Sequence[Change] = _relayout(bundle, asked)
        moves = _placed(bundle, asked, found[0], options.limits)
        changes = [*changes, *moves] if changes else moves
        graph = open_graph(found[0], opened)
        location = " ".join(source.location for source in sources)
        notes = [note for one in found for note in one.notes]
        return carry_out(
            location, bundle, where, changes, options, graph=graph, notes=[*pending, *notes]
        )


def _gathered(sources: Sequence[Source]) -> Bundle:
    bundles = [(source.location, bundle_from(source)) for source in sources]
    return bundles[0][1] if len(bundles) == 1 else gather(bundles)


def _relayout(bundle: Bundle, asked: Repartition) -> list[Change]:
    """Cut and join."""
    if not (asked.join_parts or asked.slices or asked.merge_slices or asked.by == "range"):
        return []
    from ckpttool.ops.rewrite.slice_rules import any_of, merge_rule, parse_slice
    from ckpttool.ops.rewrite.slicing import relayout

    cuts = [parse_slice(text) for text in asked.slices]
    cuts += [merge_rule(pattern) for pattern in asked.merge_slices]
    if asked.by == "range" and not asked.slices:
        assert asked.shards is not None, "checked when it was asked for"
        cuts.append(_by_ranges(bundle, asked.shards))
    return relayout(
        bundle,
        cuts,
        join=any_of(asked.join_parts) if asked.join_parts else None,
        form=asked.form,
        unrestorable=asked.unrestorable,
    )


def _by_ranges(bundle: Bundle, shards: int) -> Cut:
    """Row ranges of every matrix that has a row for each shard and can be put together."""
    from ckpttool.ops.rewrite.slicing import RESTORABLE, RESTORABLE_RANK, Cut
    from ckpttool.policy.partition import fixed

    owners = set(bundle.owners)  # what is in slices stays in them

    def fits(variable: Variable) -> bool:
        return (
            variable.key not in owners
            and 1 < len(variable.shape) <= RESTORABLE_RANK
            and variable.shape[0] >= shards
            and dtype_name(variable.dtype) in RESTORABLE
        )

    return Cut(fits, fixed(shards), f"--by range: {shards} row ranges", named=False)


def _placed(
    bundle: Bundle, asked: Repartition, found: Resolved, limits: Limits
) -> Sequence[Change]:
    """Choose the shards; without a wish everything stays where it is."""
    if asked.max_shard_size is not None:
        return place(bundle, within(asked.max_shard_size))
    if asked.by == "device":
        tasks = _tasks(found, limits)
        shards = asked.shards or max(tasks.values(), default=0) + 1
        return place(bundle, by_rules(shards, _by_device(tasks)), shards)
    if asked.shards is None and asked.by is None:
        return []
    shards = asked.shards or bundle.shards
    strategies: dict[str, Callable[[], Strategy]] = {
        "size": lambda: by_bytes(shards),
        "hash": lambda: by_name_hash(shards),
        "range": lambda: by_rows(shards),
        "fixed": lambda: by_rules(shards, _by_rules(asked.rules)),
    }
    return place(bundle, strategies[asked.by or "size"](), shards)


def _by_rules(texts: Sequence[str]) -> Callable[[Piece], tuple[int, str] | None]:
    from ckpttool.ops.rewrite.slice_rules import glob, parse_placement

    rules = [
        (text, glob(pattern), shard) for text in texts for pattern, shard in [parse_placement(text)]
    ]

    def rule(piece: Piece) -> tuple[int, str] | None:
        for text, matches, shard in rules:
            if matches(piece.name):
                return shard, f"--rule {text}"
        return None

    return rule


def _by_device(tasks: dict[str, int]) -> Callable[[Piece], tuple[int, str] | None]:
    """The task of the variable, of its part, or of the variable that a slot belongs to."""

    def rule(piece: Piece) -> tuple[int, str] | None:
        name = piece.name if piece.part is None else f"{piece.name}/part_{piece.part}"
        while name:
            if name in tasks:
                return tasks[name], f"the graph puts {name} on ps task {tasks[name]}"
            name = name.rpartition("/")[0]
        return 0, "the graph puts it on no ps"

    return rule


def _tasks(found: Resolved, limits: Limits) -> dict[str, int]:
    from ckpttool.formats.graph_file import read_graph_file
    from ckpttool.sources.graph_variables import variable_tasks

    name = graph_name(found.prefix)
    with open_directory(found.directory) as directory:
        if directory.stat(name) is None:
            raise NotFoundError(
                f"{found.location} has no graph to take devices from",
                why=f"there is no {name} beside it",
                hint="choose shards --by fixed with --rule GLOB=K",
                id="graph-missing",
            )
        with closing(directory.open(name)) as file:
            tasks = dict(variable_tasks(read_graph_file(file, limits).main_graph()))
    if not tasks:
        raise UnsupportedError(
            f"the graph of {found.location} puts no variable on a parameter server",
            why="no node has a device such as /job:ps/task:0",
            hint="choose another --by",
            id="graph-without-devices",
        )
    return tasks


def _contradiction(what: str) -> UsageError:
    return UsageError(what, hint="ckpttool repartition --help")
