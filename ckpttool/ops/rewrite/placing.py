"""Gives every entry of a ``Bundle`` its shard, by one of the strategies of ``policy``."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import overload

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


def place(bundle: Bundle, strategy: Strategy, shards: int | None = None) -> Sequence[Change]:
    """Place every entry; the number of shards is ``shards``, or as many as were used.

    The entries of one shard keep the order that their bytes had.

    Raises:
        UsageError: the strategy has no shard for some.
    """
    pieces = _Pieces(bundle)
    placed = strategy(pieces)
    before, tensors = bundle.shards, bundle.tensors
    moved = array("q")
    for at, (where, _) in enumerate(placed):
        tensor = tensors[at]
        if where != tensor.shard:
            key, variable, dtype, shape, _, content, raw = tensor
            tensors[at] = Tensor(key, variable, dtype, shape, where, content, raw)
            moved.append(at)
    bundle.shards = max(1 + max((one.shard for one in placed), default=0), shards or 1)
    return Moves(pieces, placed, range(len(placed)) if before == 1 else moved)


class Moves(Sequence[Change]):
    """A change for each piece that goes to another shard, made when it is looked at.

    There may be a million, and mostly nobody looks. Names are those that the pieces had.
    """

    def __init__(self, pieces: _Pieces, placed: Sequence[Placed], moved: Sequence[int]) -> None:
        self._keys = pieces.keys
        self._parts = pieces.parts
        self._placed = placed
        self._moved = moved

    def __len__(self) -> int:
        return len(self._moved)

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change]: ...
    def __getitem__(self, index: int | slice) -> Change | list[Change]:
        if isinstance(index, slice):
            return [self._change(at) for at in self._moved[index]]
        return self._change(self._moved[index])

    def _change(self, at: int) -> Change:
        shard, reason = self._placed[at]
        part = self._parts.get(at)
        name = _text(self._keys[at])
        return Change(name if part is None else f"{name} part {part}", f"shard {shard}", reason)


class _Pieces(Sequence[Piece]):
    """The entries of a bundle as pieces; slices are numbered in the order of their owner.

    Attributes:
        keys: the variable that each belongs to.
        parts: the number of each that is a slice.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._tensors = bundle.tensors
        self.keys = [tensor.variable for tensor in bundle.tensors]
        self.parts: dict[int, int] = {}
        number = {
            spec.key(owner.key): at
            for owner in bundle.owners.values()
            for at, spec in enumerate(owner.slices)
        }
        if number:
            self.parts = {
                at: number[tensor.key]
                for at, tensor in enumerate(bundle.tensors)
                if tensor.key in number
            }

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Piece]:
        part = self.parts.get
        for at, (key, tensor) in enumerate(zip(self.keys, self._tensors, strict=True)):
            yield Piece(_text(key), tensor.content.nbytes, part(at))

    @overload
    def __getitem__(self, index: int) -> Piece: ...
    @overload
    def __getitem__(self, index: slice) -> list[Piece]: ...
    def __getitem__(self, index: int | slice) -> Piece | list[Piece]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        nbytes = self._tensors[index].content.nbytes
        return Piece(_text(self.keys[index]), nbytes, self.parts.get(index))


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")
