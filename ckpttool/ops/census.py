"""What a source holds, counted in one pass over its variables.

Keeps little of what passes by: totals, the largest variables, the partitioned ones, the
counters that may say the step, and (when asked) the tree of scopes. Reads no value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappush, heapreplace
from math import prod
from typing import NamedTuple

from ckpttool.formats.dtypes import BY_NAME
from ckpttool.model import Kind, Variable, VariableSlice
from ckpttool.ops.scopes import Scope, ScopeTree

__all__ = ["Census", "Partitioned", "Total", "take_census"]

#: Variables that are named, of each sort.
_LARGEST = 10
_PARTITIONED = 100
_COUNTERS = 100

#: Dtypes whose elements are numbers or truth values, of a fixed size.
_NUMBERS = frozenset(name for name, dtype in BY_NAME.items() if dtype.size)


class Total(NamedTuple):
    """How many variables, elements and bytes.

    Elements of strings, variants and unknown dtypes are no parameters.
    """

    variables: int
    parameters: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A variable that is stored in slices, and the axes along which it is cut."""

    name: str
    shape: tuple[int, ...] | None
    slices: int
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Census:
    """What was counted.

    Attributes:
        total: of all variables.
        by_dtype, by_kind: the same by dtype and by kind, the one with most bytes first.
        largest: those with the most bytes, the largest first; the object graph is none.
        partitioned: the first ones that are stored in slices.
        partitioned_count: how many there are.
        counters: scalars of kind ``step``.
        scopes: the tree of scopes; None when it was not asked for.
    """

    total: Total
    by_dtype: dict[str, Total]
    by_kind: dict[str, Total]
    largest: tuple[Variable, ...]
    partitioned: tuple[Partitioned, ...]
    partitioned_count: int
    counters: tuple[Variable, ...]
    scopes: Scope | None


def take_census(
    variables: Iterable[Variable], *, scopes: bool = False, depth: int | None = None
) -> Census:
    """Count variables; raises what the iteration raises.

    Args:
        variables: of one source.
        scopes: whether to make the tree of scopes.
        depth: how many levels of it; None: all.
    """
    tree = ScopeTree(depth) if scopes else None
    sums: dict[tuple[str, Kind], list[int]] = {}
    largest: list[tuple[int, int, Variable]] = []  # a heap, the smallest of them first
    partitioned: list[Partitioned] = []
    partitioned_count = 0
    counters: list[Variable] = []
    for number, variable in enumerate(variables):
        _, _, dtype, shape, nbytes, _, _, kind, slices, _ = variable
        parameters = prod(shape) if shape is not None and dtype in _NUMBERS else 0
        running = sums.get((dtype, kind))
        if running is None:
            running = sums[dtype, kind] = [0, 0, 0]
        running[0] += 1
        running[1] += parameters
        running[2] += nbytes
        if kind == "object_graph":
            pass
        elif len(largest) < _LARGEST:
            heappush(largest, (nbytes, -number, variable))
        elif nbytes > largest[0][0]:
            heapreplace(largest, (nbytes, -number, variable))
        if slices is not None:
            partitioned_count += 1
            if len(partitioned) < _PARTITIONED:
                partitioned.append(_partitioned(variable, slices))
        if kind == "step" and shape == () and len(counters) < _COUNTERS:
            counters.append(variable)
        if tree is not None:
            tree.add(variable, parameters)
    return Census(
        _sum(sums.values()),
        _grouped((dtype, running) for (dtype, _), running in sums.items()),
        _grouped((kind, running) for (_, kind), running in sums.items()),
        tuple(variable for *_, variable in sorted(largest, reverse=True)),
        tuple(partitioned),
        partitioned_count,
        tuple(counters),
        tree.root() if tree is not None else None,
    )


def _sum(parts: Iterable[Iterable[int]]) -> Total:
    columns = list(zip(*parts, strict=True)) or [(), (), ()]
    return Total(*map(sum, columns))


def _grouped(parts: Iterable[tuple[str, list[int]]]) -> dict[str, Total]:
    groups: dict[str, list[list[int]]] = {}
    for name, running in parts:
        groups.setdefault(name, []).append(running)
    totals = {name: _sum(members) for name, members in groups.items()}
    return dict(sorted(totals.items(), key=lambda item: (-item[1].nbytes, item[0])))


def _partitioned(variable: Variable, slices: tuple[VariableSlice, ...]) -> Partitioned:
    shape = variable.shape
    axes = [
        axis
        for axis, size in enumerate(shape or ())
        if any(len(part.extent) > axis and part.extent[axis] != size for part in slices)
    ]
    return Partitioned(variable.name, shape, len(slices), tuple(axes))
