"""Gives every entry of a ``Bundle`` its shard, by one of the strategies of ``policy``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ckpttool.ops.rewrite.run import Change
from ckpttool.ops.rewrite.tensors import Bundle, Tensor
from ckpttool.policy.placement import Piece, Placed, balanced, bounded, by_hash, by_rule, in_turn

__all__ = ["Strategy", "by_bytes", "by_name_hash", "by_rows", "by_rules", "place", "within"]

#: Pieces → where each goes, and why.
Strategy = Callable[[Sequence[Piece]], list[Placed]]


def by_bytes(shards: int) -> Strategy:
    """As equal in bytes as the largest-first rule makes them."""
    return lambda pieces: balanced(pieces, shards)


def within(max_bytes: int) -> Strategy:
    """As many shards as it takes for none to pass a size."""
    return lambda pieces: bounded(pieces, max_bytes)


def by_name_hash(shards: int) -> Strategy:
    """By a hash of the variable's name."""
    return lambda pieces: by_hash(pieces, shards)


def by_rows(shards: int) -> Strategy:
    """Part k of a variable on shard k."""
    return lambda pieces: in_turn(pieces, shards)


def by_rules(shards: int, rule: Callable[[Piece], tuple[int, str] | None]) -> Strategy:
    """By a rule that knows a shard for every variable."""
    return lambda pieces: by_rule(pieces, shards, rule)


def place(bundle: Bundle, strategy: Strategy, shards: int | None = None) -> list[Change]:
    """Place every entry; the number of shards is ``shards``, or as many as were used.

    The entries of one shard keep the order that their bytes had.

    Raises:
        UsageError: the strategy has no shard for some.
    """
    placed = strategy(_pieces(bundle))
    before = bundle.shards
    words = [f"shard {shard}" for shard in range(max((one.shard for one in placed), default=0) + 1)]
    changes = []
    for at, (tensor, where) in enumerate(zip(bundle.tensors, placed, strict=True)):
        if where.shard != tensor.shard or before == 1:
            name = where.piece.name
            part = "" if where.piece.part is None else f" part {where.piece.part}"
            changes.append(Change(name + part, words[where.shard], where.reason))
        key, variable, dtype, shape, _, content, raw = tensor
        bundle.tensors[at] = Tensor(key, variable, dtype, shape, where.shard, content, raw)
    bundle.shards = max(len(words), shards or 1)
    return changes


def _pieces(bundle: Bundle) -> list[Piece]:
    """The entries as pieces: slices are numbered in the order of their owner."""
    number: dict[bytes, int] = {}
    for owner in bundle.owners.values():
        for at, spec in enumerate(owner.slices):
            number[spec.key(owner.key)] = at
    return [
        Piece(
            tensor.variable.decode("utf-8", "surrogateescape"),
            tensor.content.nbytes,
            number.get(tensor.key) if number else None,
        )
        for tensor in bundle.tensors
    ]
