"""The variables that a graph has, with dtype and shape; values are elsewhere.

From the nodes that make variables, and from what a MetaGraph says of them: which part of
which variable one is (``VariableDef.save_slice_info_def``), and the variable objects of
TF 2.x (``SavedObjectGraph``), whose nodes do not carry their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ckpttool.formats.graphdef import Graph
from ckpttool.formats.metagraph import MetaGraph, SliceInfo
from ckpttool.formats.saved_objects import parse_saved_objects
from ckpttool.formats.tensor_shape import PartialShape
from ckpttool.sources.graph_topology import split_tensor

__all__ = [
    "VARIABLE_OPS",
    "GraphVariable",
    "graph_variables",
    "is_frozen",
    "meta_variables",
    "variable_tasks",
    "whole_shapes",
]

#: The ops that make a variable (core/ops/state_ops.cc, resource_variable_ops.cc; the last
#: is of an old contrib).
VARIABLE_OPS = frozenset({"Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable"})


_TASK = re.compile(r"/job:(?:ps|parameter_server)(?:/replica:[0-9]+)?/task:([0-9]{1,9})(?:/|$)")


class GraphVariable(NamedTuple):
    """A variable of a graph.

    Attributes:
        name: its key in a name-based checkpoint, where it is not partitioned.
        node: the node that makes it; empty where only its object says so.
        op: that node's op.
        dtype: TensorFlow's word.
        shape: of this part, where it is a part; sizes may be -1.
        slice: which part of which variable it is, where a MetaGraph says so.
    """

    name: str
    node: str
    op: str
    dtype: str
    shape: PartialShape
    slice: SliceInfo | None = None


def graph_variables(graph: Graph) -> list[GraphVariable]:
    """The variables of a graph's nodes and of its functions' nodes, in that order.

    A resource is known by its ``shared_name``, where it has one: several handles of one
    name are one variable.

    Raises:
        CorruptError: id ``graph-malformed``.
    """
    found: dict[str, GraphVariable] = {}
    for node in graph.all_nodes():
        if node.op not in VARIABLE_OPS:
            continue
        attrs = graph.attrs(node)
        shared = attrs.text("shared_name") if node.op == "VarHandleOp" else None
        name = shared or node.name
        dtype = attrs.type("dtype") or "dtype_0"
        found.setdefault(name, GraphVariable(name, node.name, node.op, dtype, attrs.shape("shape")))
    return list(found.values())


def is_frozen(graph: Graph) -> bool:
    """Whether a graph has no variables, not in a function either: its weights are constants."""
    return not any(node.op in VARIABLE_OPS for node in graph.all_nodes())


def meta_variables(meta: MetaGraph, graph: Graph) -> list[GraphVariable]:
    """As `graph_variables`, with the parts that its collections tell and its objects.

    In a SavedModel of TF 2.x the variables are those of its object graph: nodes are named
    after variables there only by chance.

    Raises:
        CorruptError: id ``graph-malformed``. LimitError: id ``limit-graph``.
    """
    if meta.objects is not None:
        objects = parse_saved_objects(meta.source, *meta.objects, meta.limits)
        if objects.variables:
            return [
                GraphVariable(each.name, "", "", each.dtype, each.shape)
                for each in objects.variables
            ]
    parts = {
        split_tensor(variable.name)[0]: variable.slice
        for variable in meta.variables()
        if variable.slice is not None and variable.slice.full_name
    }
    return [
        variable._replace(slice=parts.get(variable.node)) if variable.node in parts else variable
        for variable in graph_variables(graph)
    ]


def variable_tasks(graph: Graph) -> Iterator[tuple[str, int]]:
    """The name of every variable that a graph places on a parameter server, and its task.

    Of nodes with a device such as ``/job:ps/task:1``.
    """
    for node in graph.nodes:
        if node.op in VARIABLE_OPS and (task := _TASK.search(node.device)):
            yield node.name, int(task[1])


def whole_shapes(variables: Iterable[GraphVariable]) -> dict[str, tuple[str, PartialShape]]:
    """Key in a checkpoint → dtype and shape: the parts of a variable are one."""
    keys: dict[str, tuple[str, PartialShape]] = {}
    for variable in variables:
        part = variable.slice
        if part is not None:
            keys[part.full_name] = variable.dtype, part.full_shape
        else:
            keys[variable.name] = variable.dtype, variable.shape
    return keys
