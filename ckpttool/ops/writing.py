"""The commands that write a checkpoint as Python calls them: a plan, and its ``apply``.

The arguments are the commands' options, under their names; one that may be given several
times takes one value or a sequence of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack, get_args

from ckpttool.limits import Limits, default_limits
from ckpttool.ops.keywords import Addresses, Words, require_choice, require_shards, words
from ckpttool.ops.keywords import addresses as as_addresses
from ckpttool.ops.rewrite.plan import RewritePlan, make_plan
from ckpttool.ops.rewrite.run import Options
from ckpttool.sources.address import Address

__all__ = [
    "LinkWriting",
    "Writing",
    "plan_average",
    "plan_copy",
    "plan_edit",
    "plan_merge",
    "plan_repartition",
]


class Writing(TypedDict, total=False):
    """How a checkpoint is written, whatever it is made of; all keywords.

    Attributes:
        overwrite: replace a checkpoint that is there.
        verify: read the result back and compare every checksum.
        verify_source: compare all that is read with its checksums.
        jobs: so many data files are written at the same time.
        limits: bounds on what files may claim; None: the defaults, as changed by
            ``CKPTTOOL_LIMITS``.
    """

    overwrite: bool
    verify: bool
    verify_source: bool
    jobs: int
    limits: Limits | None


class LinkWriting(Writing, total=False):
    """`Writing`, of what may leave whole data files as they are.

    Attributes:
        link: take them in by hard links, which both checkpoints then share.
    """

    link: bool


def plan_repartition(
    source: Addresses,
    destination: Address,
    *,
    shards: int | None = None,
    max_shard_size: int | None = None,
    by: Literal["size", "hash", "range", "fixed", "device"] | None = None,
    rule: Words = (),
    slice: Words = (),
    merge_slices: Words = (),
    as_parts: bool = False,
    join_parts: Words = (),
    allow_unrestorable: bool = False,
    **how: Unpack[LinkWriting],
) -> RewritePlan:
    """Plan the same variables in other data files or other slices. Reads only.

    ``docs/writing.md`` has the rules; `RewritePlan.apply` carries them out.

    Args:
        source: an address; several are the pieces of one save.
        destination: a prefix, an existing directory (the prefix stays), or a SavedModel.
        shards: how many data files; None: as many as there are, or as it takes.
        max_shard_size: bytes that no data file should pass; excludes ``shards``.
        by: how a data file is chosen: ``size`` (also without it), ``hash``, ``range``,
            ``fixed`` (by ``rule``), ``device``.
        rule: with ``fixed``: ``GLOB=K``; the first that matches decides.
        slice: ``GLOB=axisN:HOW``: which variables are cut, and into what.
        merge_slices: patterns of variables whose slices are put together.
        as_parts: what is cut becomes variables ``X/part_0``, ``X/part_1``, …
        join_parts: patterns of variables to put together from such parts.
        allow_unrestorable: allow slices of dtypes that TensorFlow cannot put together.
        how: see `LinkWriting`.

    Raises:
        UsageError: what is asked for contradicts itself or a variable's shape.
        RefusedError: ids ``exists``, ``duplicate-key``, ``bundles-differ``,
            ``slices-unrestorable``, ``parts-do-not-fit``.
        NotFoundError, CorruptError, IncompleteError, LimitError: as opening the source.

    >>> import ckpttool
    >>> plan = ckpttool.plan_repartition("fixtures/mlp-v1", "three", shards=3)
    >>> [shard.nbytes for shard in plan.shards]
    [51456, 51000, 51000]
    >>> plan.apply().destination
    'three'
    """
    from ckpttool.ops.repartition import By, Repartition, repartition

    require_choice("by", by, (None, *get_args(By)))
    options = _options(**how)
    if shards is not None:
        require_shards(shards, options.limits)
    asked = Repartition(
        shards=shards,
        max_shard_size=max_shard_size,
        by=by,
        rules=words(rule),
        slices=words(slice),
        merge_slices=words(merge_slices),
        form="parts" if as_parts else "slices",
        join_parts=words(join_parts),
        unrestorable=allow_unrestorable,
    )
    addresses, to = as_addresses(source), os.fsdecode(destination)
    return make_plan(lambda given: repartition(addresses, to, asked, given), options)


def plan_edit(
    source: Address,
    destination: Address,
    *,
    keep: Words = (),
    drop: Words = (),
    strip_optimizer: bool = False,
    promote_ema: bool = False,
    map: Words = (),
    rename: Words = (),
    cast: Literal["float32", "bfloat16", "float16", "float64"] | None = None,
    only: Words = (),
    like: Address | None = None,
    allow_unmatched: bool = False,
    **how: Unpack[LinkWriting],
) -> RewritePlan:
    """Plan an edited copy: rename, drop, cast or re-key variables. Reads only.

    ``docs/edit.md`` says what each step does to slots, averages and the object graph.

    Args:
        source: an address.
        destination: a prefix or an existing directory.
        keep: patterns: only what matches one stays.
        drop: patterns: what matches one goes.
        strip_optimizer: an optimizer's own variables go; steps stay.
        promote_ema: moving averages take the place of their variables.
        map: JSON or CSV files of old and new names; with ``like``: which is which.
        rename: ``s/OLD/NEW/`` or ``OLD=NEW``, in this order.
        cast: the type that floating-point variables get.
        only: patterns: which of them.
        like: a checkpoint under whose keys, and in whose object graph, the values go.
        allow_unmatched: names and patterns may fit no variable at all.
        how: see `LinkWriting`.

    Raises:
        UsageError: nothing is asked for, or a rule cannot be understood; id ``unmatched``.
        RefusedError: ids ``exists``, ``duplicate-key``, ``name-unusable``, ``like-unmatched``,
            ``part-of-object``, ``edit-saved-model``.
        NotFoundError, CorruptError, IncompleteError, LimitError: as opening the source.
    """
    from ckpttool.ops.edit.run import Edit, edit

    asked = Edit(
        keep=words(keep),
        drop=words(drop),
        strip_optimizer=strip_optimizer,
        promote_ema=promote_ema,
        maps=words(map),
        renames=words(rename),
        cast=cast,
        only=words(only),
        like=None if like is None else os.fsdecode(like),
        allow_unmatched=allow_unmatched,
    )
    address, to = os.fsdecode(source), os.fsdecode(destination)
    return make_plan(lambda given: edit(address, to, asked, given), _options(**how))


def plan_average(
    sources: Addresses,
    output: Address,
    *,
    weights: Sequence[float] | None = None,
    **how: Unpack[Writing],
) -> RewritePlan:
    """Plan the mean of several checkpoints of one model. Reads only.

    Args:
        sources: two or more addresses, or one ``RUN/@*``. Integers, steps, strings and the
            object graph are those of the last.
        output: a prefix or an existing directory.
        weights: one for each source, divided by their sum; None: equal.
        how: see `Writing`.

    Raises:
        UsageError: fewer than two sources, or weights that make no sense.
        RefusedError: id ``sources-differ``: names, dtypes or shapes; id ``exists``.
        NotFoundError, CorruptError, IncompleteError, LimitError: as opening the sources.
    """
    from ckpttool.ops.average import average

    addresses, to = as_addresses(sources), os.fsdecode(output)
    shares = None if weights is None else tuple(weights)  # the caller's list may change
    return make_plan(lambda given: average(addresses, to, shares, given), _options(**how))


def plan_merge(
    sources: Sequence[Address],
    output: Address,
    *,
    on_conflict: Literal["error", "first", "last", "prefix"] = "error",
    take: Words = (),
    **how: Unpack[LinkWriting],
) -> RewritePlan:
    """Plan the variables of several checkpoints as one. Reads only.

    Args:
        sources: two addresses or more: A, B, C, …
        output: a prefix or an existing directory.
        on_conflict: for what several have: ``error``, ``first``, ``last``, or ``prefix``:
            all, under ``CHECKPOINT/NAME``.
        take: ``LETTER:GLOB``: of this source only what matches, and that from no other.
        how: see `LinkWriting`.

    Raises:
        UsageError: a ``take`` that names no source, or matches nothing.
        RefusedError: ids ``duplicate-key``, ``bundles-differ``, ``exists``.
        NotFoundError, CorruptError, IncompleteError, LimitError: as opening the sources.
    """
    from ckpttool.ops.merge import OnConflict, merge

    require_choice("on_conflict", on_conflict, get_args(OnConflict))
    addresses, to = as_addresses(sources), os.fsdecode(output)
    taken = words(take)
    return make_plan(lambda given: merge(addresses, to, on_conflict, taken, given), _options(**how))


def plan_copy(
    source: Address,
    destination: Address,
    **how: Unpack[LinkWriting],
) -> RewritePlan:
    """Plan a copy of a checkpoint as one thing: data files, graph, the index last. Reads only.

    Args:
        source: a checkpoint's address, of V1 too.
        destination: a prefix, an existing directory, or a SavedModel.
        how: see `LinkWriting`.

    Raises:
        IncompleteError: ids ``shard-missing``, ``shard-short``.
        RefusedError: id ``exists``.
        NotFoundError, CorruptError, LimitError: as opening the source.
    """
    from ckpttool.ops.copy import copy_checkpoint

    address, to = os.fsdecode(source), os.fsdecode(destination)
    return make_plan(lambda given: copy_checkpoint(address, to, given), _options(**how))


def _options(
    *,
    link: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    verify_source: bool = False,
    jobs: int = 1,
    limits: Limits | None = None,
) -> Options:
    return Options(
        overwrite=overwrite,
        check=verify_source,
        link=link,
        jobs=jobs,
        verify=verify,
        limits=limits or default_limits(),
    )
