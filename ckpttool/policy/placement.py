"""Which shard holds which variable: the strategies of a training cluster, with reasons.

Pure: pieces and a rule in, a shard and a reason for each out. A *piece* is a variable or
one part of it. The same functions serve re-partitioning a checkpoint and placing the
variables of a parameter server.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from operator import gt
from typing import NamedTuple

from ckpttool.errors import UsageError

__all__ = ["Piece", "Placed", "balanced", "bounded", "by_hash", "by_rule", "in_turn"]


class Piece(NamedTuple):
    """A variable, or part ``part`` of it (counted from 0; None for a whole one)."""

    name: str
    nbytes: int
    part: int | None = None


class Placed(NamedTuple):
    """The shard that a piece goes to, and why; one object for all pieces with the same answer."""

    shard: int
    reason: str


def balanced(pieces: Sequence[Piece], shards: int) -> list[Placed]:
    """Shards as equal in bytes as the largest-first rule makes them.

    The largest piece goes first, each to the shard with the fewest bytes so far; equal
    ones by name, then to the lowest shard, so that the same input gives the same plan.
    No shard gets more than 4/3 of the best possible largest one (Graham 1969).
    """
    _check(shards)
    load = [(0, shard) for shard in range(shards)]
    heapify(load)
    chosen = [0] * len(pieces)
    order, sizes = _largest_first(pieces)
    for at in order:
        nbytes, shard = load[0]
        heapreplace(load, (nbytes + sizes[at], shard))
        chosen[at] = shard
    reason = "largest first, each to the data file with the fewest bytes so far"
    answers = [Placed(shard, reason) for shard in range(shards)]
    return [answers[shard] for shard in chosen]


def bounded(pieces: Sequence[Piece], max_bytes: int) -> list[Placed]:
    """As many shards as it takes for none to pass ``max_bytes``, filled in order.

    A piece that is larger by itself gets a shard of its own, and its reason says so.
    """
    if max_bytes < 1:
        raise UsageError(
            f"a shard of {max_bytes} bytes holds nothing",
            why="the bound has to be 1 or more",
            id="partition-number",
        )
    placed = []
    shard, filled = 0, 0
    for piece in pieces:
        if filled and filled + piece.nbytes > max_bytes:
            shard, filled = shard + 1, 0
        filled += piece.nbytes
        reason = f"the next {piece.nbytes} bytes in order, {filled} of {max_bytes}"
        if piece.nbytes > max_bytes:
            reason = f"alone: its {piece.nbytes} bytes are over {max_bytes}"
        placed.append(Placed(shard, reason))
    return placed


def by_hash(pieces: Iterable[Piece], shards: int) -> list[Placed]:
    """CRC-32 of the variable's name, modulo the shards: parts of one stay together."""
    _check(shards)
    placed = []
    for piece in pieces:
        hashed = zlib.crc32(piece.name.encode("utf-8", "surrogateescape"))
        shard = hashed % shards
        placed.append(Placed(shard, f"crc32 of its name is {hashed}, modulo {shards}"))
    return placed


def in_turn(pieces: Sequence[Piece], shards: int) -> list[Placed]:
    """Part k on shard k: row ranges; what is not cut goes where the fewest bytes are."""
    _check(shards)
    load = [0] * shards
    placed: dict[int, Placed] = {}
    for at, piece in enumerate(pieces):
        if piece.part is not None:
            shard = piece.part % shards
            load[shard] += piece.nbytes
            placed[at] = Placed(shard, f"row range {piece.part}")
    heap = [(nbytes, shard) for shard, nbytes in enumerate(load)]
    heapify(heap)
    order, sizes = _largest_first(pieces)
    for at in order:
        if at in placed:
            continue
        nbytes, shard = heap[0]
        heapreplace(heap, (nbytes + sizes[at], shard))
        placed[at] = Placed(shard, f"whole; fewest bytes ({nbytes})")
    return [placed[at] for at in range(len(pieces))]


def by_rule(
    pieces: Iterable[Piece], shards: int, rule: Callable[[Piece], tuple[int, str] | None]
) -> list[Placed]:
    """A shard and a reason from ``rule`` for every piece.

    Raises:
        UsageError: id ``placement-rule``: it has no shard for a piece, or one that does
            not exist; all such pieces are named (the first ten).
    """
    _check(shards)
    placed, wrong = [], []
    for piece in pieces:
        answer = rule(piece)
        if answer is None:
            wrong.append(f"{piece.name} (no rule)")
        elif not 0 <= answer[0] < shards:
            wrong.append(f"{piece.name} (shard {answer[0]} of {shards})")
        else:
            placed.append(Placed(*answer))
    if wrong:
        more = f" and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        raise UsageError(
            "1 variable has no shard to go to"
            if len(wrong) == 1
            else f"{len(wrong)} variables have no shard to go to",
            why=", ".join(wrong[:10]) + more,
            hint="add a rule, such as '*=0' as the last one",
            id="placement-rule",
        )
    return placed


def _largest_first(pieces: Iterable[Piece]) -> tuple[list[int], list[int]]:
    """Numbers of pieces, the largest first, equal ones by name and part; and all sizes.

    Sorted by one thing after the other, and by none that is in order: no key of several
    members is kept for each of a million.
    """
    names: list[str] = []
    sizes: list[int] = []
    parts: dict[int, int] = {}
    for at, (name, nbytes, part) in enumerate(pieces):
        names.append(name)
        sizes.append(nbytes)
        if part is not None:
            parts[at] = part
    order = list(range(len(names)))
    if parts:
        order.sort(key=lambda at: parts.get(at, -1))
    if parts or any(map(gt, names, islice(names, 1, None))):
        order.sort(key=names.__getitem__)
    if len(set(sizes)) > 1:
        order.sort(key=lambda at: -sizes[at])
    return order, sizes


def _check(shards: int) -> None:
    if shards < 1:
        raise UsageError(
            f"{shards} shards cannot hold anything",
            why="the number has to be 1 or more",
            id="partition-number",
        )
