"""The words of ``--partition``: how variables of a training are cut and placed.

Pure; the parts and places themselves come from ``policy.partition`` and ``policy.placement``.

| words | parts | places |
|---|---|---|
| ``fixed``, ``fixed:N`` | N even row ranges (N: as many as servers) | in turn |
| ``min-max``, ``min-max:SIZE`` | as many, but none under SIZE (256K) | in turn |
| ``hash`` | whole | CRC-32 of the name |
| ``size`` | whole | where the fewest bytes are |
| ``range:W,W`` | of tables: rows in proportion to weights, one a server | part k on k |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ckpttool.errors import UsageError
from ckpttool.limits import parse_size
from ckpttool.policy.partition import Part, even, fixed, min_max, ranges

__all__ = ["Partition", "parse_partition"]

_MIN_BYTES = 256 << 10
Strategy = Literal["fixed", "min-max", "hash", "size", "range"]


@dataclass(frozen=True, slots=True)
class Partition:
    """How variables are cut, over so many servers.

    Attributes:
        strategy: which.
        servers: how many parameter servers there are.
        shards: parts of ``fixed``.
        min_bytes: the least of a part, of ``min-max``.
        weights: of ``range``, one a server.
    """

    strategy: Strategy
    servers: int
    shards: int = 0
    min_bytes: int = _MIN_BYTES
    weights: tuple[int, ...] = ()

    @property
    def cuts(self) -> bool:
        """Whether ordinary variables are cut."""
        return self.strategy in {"fixed", "min-max"}

    def parts(self, shape: tuple[int, ...], itemsize: int) -> list[Part]:
        """The parts of a table: a variable that was asked to be cut."""
        if self.strategy == "fixed":
            return fixed(self.shards)(shape, itemsize)
        if self.strategy == "min-max":
            return min_max(self.servers, min_slice_size=self.min_bytes)(shape, itemsize)
        if self.strategy == "range" and shape:
            return ranges(_in_proportion(shape[0], self.weights))(shape, itemsize)
        return even(shape, 1) if shape else [Part((), ())]


def parse_partition(text: str | None, servers: int) -> Partition | None:
    """Read the words; None: variables stay whole, and go from server to server in turn.

    Raises:
        UsageError: id ``partition-words``.
    """
    if text is None:
        return None
    word, colon, value = text.partition(":")
    if word == "fixed":
        shards = _whole_number(value, text) if colon else servers
        return Partition("fixed", servers, shards=shards)
    if word == "min-max":
        return Partition("min-max", servers, min_bytes=_size(value, text) if colon else _MIN_BYTES)
    if word == "range":
        weights = tuple(_whole_number(one, text) for one in value.split(","))
        if len(weights) != servers:
            raise _bad(text, f"it has {len(weights)} weights, and there are {servers} servers")
        return Partition("range", servers, weights=weights)
    if word == "hash" and not colon:
        return Partition("hash", servers)
    if word == "size" and not colon:
        return Partition("size", servers)
    raise _bad(text, "it is none of fixed, min-max, hash, size, range")


def _in_proportion(rows: int, weights: tuple[int, ...]) -> list[int]:
    """Rows a weight, at least one each; what rounding leaves goes to the first ones.

    Of fewer rows than weights only the first have one.
    """
    weights = weights[:rows]
    total = sum(weights)
    spare = rows - len(weights)
    lengths = [1 + spare * weight // total for weight in weights]
    for number in range(rows - sum(lengths)):
        lengths[number % len(lengths)] += 1
    return lengths


def _whole_number(value: str, text: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value)):
        raise _bad(text, f"{value!r} is no number from 1 on")
    return int(value)


def _size(value: str, text: str) -> int:
    try:
        size = parse_size(value)
    except (UsageError, ValueError):
        size = 0
    if size < 1:
        raise _bad(text, f"{value!r} is no size, such as 256K")
    return size


def _bad(text: str, why: str) -> UsageError:
    return UsageError(
        f"--partition {text} makes no sense",
        why=why,
        hint="fixed, fixed:4, min-max:256K, hash, size, or range:3,1 (a weight a server)",
        id="partition-words",
    )
