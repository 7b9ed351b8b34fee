"""The tree of scopes as lines: names on the left, what is in them in columns beside."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from ckpttool.cli.escape import escape
from ckpttool.cli.screen import Column, Screen, bytes_text
from ckpttool.cli.table import Layout
from ckpttool.model import shape_text
from ckpttool.ops.scopes import Scope
from ckpttool.policy.words import count

__all__ = ["Row", "scope_data", "tree_lines", "tree_rows"]

#: Rows whose widths say how wide the columns are; a tree may have a million.
_MEASURED = 500
_BATCH = 500
_COLUMNS = (
    Column(""),  # the scope, or the last component of a variable's name
    Column(""),  # dtype and shape, or the number of variables
    Column("", drop=1),  # how many variables are below one
    Column("", "right", drop=2),  # parameters
    Column("", "right", drop=3),  # bytes
)
_BRANCHES = {True: ("├─ ", "└─ ", "│  ", "   "), False: ("|- ", "`- ", "|  ", "   ")}


class Row(NamedTuple):
    """A scope or a variable: the lines that lead to it, its full name, and itself.

    ``last`` says for each level above it whether nothing follows there.
    """

    last: tuple[bool, ...]
    name: str
    scope: Scope


def tree_rows(root: Scope) -> Iterator[Row]:
    """Every scope and variable below the root, from top to bottom."""
    # A stack and no recursion: one generator for each level would make each row slow.
    stack = [
        Row((place == 0,), scope.name, scope) for place, scope in enumerate(reversed(root.inner))
    ]
    while stack:
        row = stack.pop()
        yield row
        stack += [
            Row((*row.last, place == 0), f"{row.name}/{scope.name}", scope)
            for place, scope in enumerate(reversed(row.scope.inner))
        ]


def tree_lines(root: Scope, screen: Screen) -> Iterator[str]:
    """The tree for people, some hundred lines a piece."""
    rows = tree_rows(root)
    head = list(islice(rows, _MEASURED))
    if not head:
        return
    layout = Layout(screen, _COLUMNS, [_cells(row, screen) for row in head])
    lines = (layout.row(_cells(row, screen), _styles(row)) + "\n" for row in chain(head, rows))
    while batch := list(islice(lines, _BATCH)):
        yield "".join(batch)


def scope_data(scope: Scope) -> dict[str, object]:
    """A scope as JSON; recursive, for a tree has at most some dozen levels."""
    variable = scope.variable
    return {
        "name": scope.name,
        "variables": scope.variables,
        "parameters": scope.parameters,
        "bytes": scope.nbytes,
        "variable": None
        if variable is None
        else {
            "dtype": variable.dtype,
            "shape": None if variable.shape is None else list(variable.shape),
            "bytes": variable.nbytes,
            "kind": variable.kind,
        },
        "scopes": [scope_data(inner) for inner in scope.inner],
    }


def _cells(row: Row, screen: Screen) -> tuple[str, ...]:
    """The cells of `_COLUMNS`."""
    branch, last_branch, line, gap = _BRANCHES[screen.unicode]
    *above, last = row.last
    lead = "".join(gap if ended else line for ended in above) + (last_branch if last else branch)
    scope = row.scope
    variable = scope.variable
    more = ""
    if variable is None:
        what = count(scope.variables, "variable")
    else:
        what = f"{variable.dtype} {shape_text(variable.shape)}"
        if scope.inner:
            more = f"and {scope.variables - 1} more"
    name = escape(scope.name) or "(no name)"
    return f"  {lead}{name}", what, more, f"{scope.parameters:,}", bytes_text(scope.nbytes)


def _styles(row: Row) -> tuple[str, ...]:
    variable = row.scope.variable
    if variable is None:
        return "bold", "", "", "", ""
    return "" if variable.kind == "model" else "dim", "", "", "", ""
