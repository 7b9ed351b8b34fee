"""Which variable of a graph is which of a checkpoint, and which slice of it.

A graph says so where it saves (``SaveV2``), a ``.meta`` in its list of variables; where
neither is there, the name says it, and of ``X/part_2`` the shapes say along which axis X
was cut. Reads messages and asks a source what it has; no values are read here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpttool.errors import IncompleteError
from ckpttool.formats.dtypes import dtype_name
from ckpttool.model import shape_text
from ckpttool.sources.base import Source

__all__ = [
    "HANDLES",
    "REFERENCES",
    "GraphVariable",
    "graph_variables",
    "match_source",
    "saved_names",
]

#: Operations that are a variable: the value itself (TensorFlow 1), or a handle to it.
REFERENCES = frozenset({"Variable", "VariableV2", "AutoReloadVariable"})
HANDLES = frozenset({"VarHandleOp"})
#: Savers: the input that has the names, the one with the slices, the first value.
_SAVERS = {"SaveV2": (1, 2, 3), "SaveSlices": (1, 2, 3), "Save": (1, None, 2)}
_PART = re.compile(r"(.+)/part_(\d+)")
#: Steps from a saved value back to its variable: a read, and copies around it.
_STEPS = 8
#: Variables of a list that are spelled out in an error.
_NAMED = 20


@dataclass(frozen=True, slots=True)
class GraphVariable:
    """A variable of a graph.

    Attributes:
        node: its operation.
        is_handle: a resource variable, not a reference.
        dtype: TensorFlow's word.
        shape: None where the graph does not say.
        key: what the checkpoint calls it.
        full_shape: of a slice: the shape of the whole; else None.
        offset: of a slice: where it begins in the whole, one number a dimension.
    """

    node: str
    is_handle: bool
    dtype: str
    shape: tuple[int, ...] | None
    key: str
    full_shape: tuple[int, ...] | None = None
    offset: tuple[int, ...] | None = None


def graph_variables(graph: Any, names: Mapping[str, GraphVariable]) -> list[GraphVariable]:  # noqa: ANN401
    """The variables of a graph, in its order.

    Args:
        graph: a GraphDef.
        names: what `saved_names` found out about them (of a larger graph too).
    """
    found = []
    for node in graph.node:
        if node.op in REFERENCES or node.op in HANDLES:
            plain = _plain(node)
            known = names.get(node.name)
            found.append(
                plain
                if known is None
                else replace(plain, key=known.key, full_shape=known.full_shape, offset=known.offset)
            )
    return found


def saved_names(graph: Any, listed: Iterable[Any] = ()) -> dict[str, GraphVariable]:  # noqa: ANN401
    """Operation → the variable, with the key and the slice under which it is saved.

    Args:
        graph: the whole GraphDef, with its savers if it has any.
        listed: the VariableDefs of a MetaGraphDef.
    """
    nodes = {node.name: node for node in graph.node}
    found: dict[str, GraphVariable] = {}
    for one in listed:
        name = one.variable_name.partition(":")[0]
        node = nodes.get(name)
        if node is None or node.op not in REFERENCES | HANDLES:
            continue
        variable = _plain(node)
        if one.HasField("save_slice_info_def") and one.save_slice_info_def.full_shape:
            info = one.save_slice_info_def
            variable = replace(
                variable,
                key=info.full_name,
                full_shape=tuple(info.full_shape),
                offset=tuple(info.var_offset),
            )
        found[name] = variable
    for node in graph.node:
        if node.op in _SAVERS:
            found.update(_of_saver(node, nodes))
    return found


def match_source(
    variables: Sequence[GraphVariable], source: Source, graph: str
) -> list[GraphVariable]:
    """The variables with the keys, shapes and slices that a source has for them.

    Args:
        variables: of the graph.
        source: where their values are.
        graph: what the graph is called in errors.

    Raises:
        IncompleteError: ids ``graph-variables-missing``, ``graph-variables-differ``: all
            that do not fit are named.
    """
    found: list[GraphVariable] = []
    missing: list[str] = []
    wrong: list[str] = []
    parts: defaultdict[str, list[GraphVariable]] = defaultdict(list)
    for variable in variables:
        stored = source.lookup(variable.key)
        part = _PART.fullmatch(variable.node) if variable.full_shape is None else None
        if stored is None and part is not None:
            parts[part[1]].append(variable)
            continue
        if stored is None:
            missing.append(variable.key)
            continue
        shape = variable.full_shape or variable.shape
        if stored.shape is not None and shape is not None and stored.shape != shape:
            wrong.append(f"{variable.key} {shape_text(shape)}, there {shape_text(stored.shape)}")
        elif stored.dtype != variable.dtype:
            wrong.append(f"{variable.key} {variable.dtype}, there {stored.dtype}")
        else:
            found.append(variable if shape is not None else replace(variable, shape=stored.shape))
    for name, cut_up in parts.items():
        stored = source.lookup(name)
        if stored is None:
            missing.extend(one.key for one in cut_up)
        elif (sliced := _slices(name, cut_up, stored.shape)) is None:
            wrong.append(f"{name}/part_*: no axis along which the parts make the whole")
        else:
            found.extend(sliced)
    if missing:
        raise _unfit("graph-variables-missing", "is not in", missing, source, graph)
    if wrong:
        raise _unfit("graph-variables-differ", "is otherwise in", wrong, source, graph)
    return found


def _plain(node: Any) -> GraphVariable:  # noqa: ANN401
    shape = node.attr["shape"].shape
    sizes = tuple(dim.size for dim in shape.dim)
    return GraphVariable(
        node.name,
        node.op in HANDLES,
        dtype_name(node.attr["dtype"].type),
        None if shape.unknown_rank or min(sizes, default=0) < 0 else sizes,
        node.name,
    )


def _of_saver(saver: Any, nodes: Mapping[str, Any]) -> dict[str, GraphVariable]:  # noqa: ANN401
    names_at, slices_at, first = _SAVERS[saver.op]
    names = _strings(saver.input[names_at], nodes)
    slices = [""] * len(names) if slices_at is None else _strings(saver.input[slices_at], nodes)
    found = {}
    for name, spec, value in zip(names, slices, saver.input[first:], strict=False):
        node = _variable_of(value, nodes)
        if node is not None:
            full, offset = _slice(spec)
            found[node.name] = replace(_plain(node), key=name, full_shape=full, offset=offset)
    return found


def _strings(tensor: str, nodes: Mapping[str, Any]) -> list[str]:
    """The strings of a constant; empty where it is none."""
    node = nodes.get(tensor.partition(":")[0])
    if node is None or node.op != "Const":
        return []
    return [
        value.decode("utf-8", "surrogateescape") for value in node.attr["value"].tensor.string_val
    ]


def _variable_of(tensor: str, nodes: Mapping[str, Any]) -> Any | None:  # noqa: ANN401
    for _ in range(_STEPS):
        node = nodes.get(tensor.partition(":")[0])
        if node is None:
            return None
        if node.op in REFERENCES or node.op in HANDLES:
            return node
        if not node.input:
            return None
        tensor = node.input[0]
    return None


def _slice(spec: str) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """``"100 8 0,50:-"`` → whole shape and offset (tensorflow/core/framework/tensor_slice.cc)."""
    *sizes, ranges = spec.split() or [""]
    if not sizes:
        return None, None
    starts = tuple(0 if one == "-" else int(one.partition(",")[0]) for one in ranges.split(":"))
    return tuple(map(int, sizes)), starts


def _slices(
    name: str, parts: Sequence[GraphVariable], full: tuple[int, ...] | None
) -> list[GraphVariable] | None:
    """Parts with their places in the whole, along the one axis on which their sizes add up."""
    ordered = sorted(parts, key=lambda one: int(one.node.rpartition("_")[2]))
    shapes = [one.shape for one in ordered if one.shape is not None]
    if (
        full is None
        or len(shapes) != len(ordered)
        or {len(shape) for shape in shapes} != {len(full)}
    ):
        return None
    axes = [
        axis
        for axis in range(len(full))
        if sum(shape[axis] for shape in shapes) == full[axis]
        and all(
            shape[:axis] + shape[axis + 1 :] == full[:axis] + full[axis + 1 :] for shape in shapes
        )
    ]
    if not axes or (len(axes) > 1 and len(ordered) > 1):
        return None
    placed, start = [], 0
    for one, shape in zip(ordered, shapes, strict=True):
        offset = tuple(start if axis == axes[0] else 0 for axis in range(len(full)))
        placed.append(replace(one, key=name, full_shape=full, offset=offset))
        start += shape[axes[0]]
    return placed


def _unfit(id: str, said: str, names: Sequence[str], source: Source, graph: str) -> IncompleteError:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return IncompleteError(
        f"{graph} does not fit {source.location}",
        why=f"what the graph needs {said} the checkpoint, {len(names)} of its variables: "
        f"{', '.join(names[:_NAMED])}{more}",
        hint="take the graph and the checkpoint of one training run",
        id=id,
    )
