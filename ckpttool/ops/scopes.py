"""Variables by scope: the tree that the slashes in their names make, with subtotals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ckpttool.model import Variable

__all__ = ["Scope", "ScopeTree"]

#: Levels of a tree, whatever names say: deeper slashes stay part of the last name.
_LEVELS = 64
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope, a variable, or both at once (``w`` beside ``w/Adam``).

    Attributes:
        name: its part of the names in it; several parts, joined, where a scope has nothing
            but one scope in it.
        variables, parameters, nbytes: of everything at and below it.
        variable: the variable of this very name.
        inner: what is below it, in natural order (``layer_9`` before ``layer_10``).
    """

    name: str
    variables: int
    parameters: int
    nbytes: int
    variable: Variable | None
    inner: tuple[Scope, ...]


@dataclass(slots=True)
class _Node:
    variables: int = 0
    parameters: int = 0
    nbytes: int = 0
    variable: Variable | None = None
    inner: dict[str, _Node] = field(default_factory=dict)

    def count(self, variable: Variable, parameters: int) -> None:
        self.variables += 1
        self.parameters += parameters
        self.nbytes += variable.nbytes


class ScopeTree:
    """Grows by one variable at a time; ``depth`` levels deep, None for all."""

    def __init__(self, depth: int | None = None) -> None:
        self._depth = min(depth or _LEVELS, _LEVELS)
        self._root = _Node()

    def add(self, variable: Variable, parameters: int) -> None:
        """Count a variable in every scope of its name; parts past the depth make no scope."""
        parts = variable.name.split("/", self._depth)
        node = self._root
        node.count(variable, parameters)
        for part in parts[: self._depth]:
            inner = node.inner.get(part)
            if inner is None:
                inner = node.inner[part] = _Node()
            node = inner
            node.count(variable, parameters)
        if len(parts) <= self._depth:
            node.variable = variable

    def root(self) -> Scope:
        """The whole tree; its root has no name."""
        return _finish("", self._root)


def _finish(name: str, node: _Node) -> Scope:
    """Recursive: there are at most `_LEVELS` levels."""
    inner = [_finish(part, below) for part, below in node.inner.items()]
    inner.sort(key=_natural)
    scope = Scope(name, node.variables, node.parameters, node.nbytes, node.variable, tuple(inner))
    if len(inner) == 1 and node.variable is None and inner[0].inner and name:
        only = inner[0]
        return Scope(
            f"{name}/{only.name}",
            only.variables,
            only.parameters,
            only.nbytes,
            only.variable,
            only.inner,
        )
    return scope


def _natural(scope: Scope) -> list[tuple[int, str]]:
    """Sorts runs of digits by their value."""
    return [
        (len(part.lstrip("0")), part) if part.isdigit() else (-1, part)
        for part in _DIGITS.split(scope.name)
    ]
