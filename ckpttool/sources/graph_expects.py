"""What a graph asks a checkpoint for: keys with dtype and shape.

The nodes of its saver say it (``RestoreV2``, and the ``RestoreSlice`` and ``Restore`` of
TF 0.x), for they hold the keys as constants, whatever the variables are called; in the
SavedModels of TF 2.x they stand in a function. A graph without a saver would be asked for its
variables by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ckpttool.formats.bundle import OBJECT_GRAPH_KEY
from ckpttool.formats.graph_file import GraphFile
from ckpttool.formats.graphdef import Graph, Node
from ckpttool.formats.tensor_shape import PartialShape
from ckpttool.limits import Limits
from ckpttool.sources.graph_variables import graph_variables, meta_variables, whole_shapes

__all__ = ["Expected", "Expects", "expected_of"]

#: A size has 63 bits at most.
_SIZE = re.compile(r"[0-9]{1,19}")
#: Op → the place among its inputs of the keys, and of the slices.
_RESTORES = {"RestoreV2": (1, 2), "RestoreSlice": (1, 2), "Restore": (1, None)}


class Expected(NamedTuple):
    """A key that is asked for; ``shape`` is None, or has -1 in it, where that is not known."""

    name: str
    dtype: str
    shape: PartialShape


class Expects(NamedTuple):
    """All that a graph asks for.

    Attributes:
        variables: by key, in the order of the graph.
        by_saver: whether its saver says so; else they are its variables.
        by_object: whether it reads the object graph too, as ``tf.train.Checkpoint`` does.
    """

    variables: Mapping[str, Expected]
    by_saver: bool
    by_object: bool


def expected_of(content: GraphFile, limits: Limits) -> Expects:
    """What a graph file asks for; of a SavedModel the MetaGraph that is served.

    Raises:
        CorruptError: id ``graph-malformed``. LimitError: id ``limit-graph``.
    """
    graph = content.main_graph()
    meta = next((each for each in content.metas if "serve" in each.tags), None)
    meta = meta or next(iter(content.metas), None)
    known = whole_shapes(graph_variables(graph) if meta is None else meta_variables(meta, graph))
    restored: dict[str, Expected] = {}
    for expected in _restored(graph, limits):
        dtype, shape = known.get(expected.name, ("", None))
        complete = Expected(
            expected.name,
            expected.dtype or dtype,
            shape if expected.shape is None else expected.shape,
        )
        restored.setdefault(expected.name, complete)
    by_object = restored.pop(OBJECT_GRAPH_KEY, None) is not None
    if restored:
        return Expects(restored, by_saver=True, by_object=by_object)
    variables = {name: Expected(name, dtype, shape) for name, (dtype, shape) in known.items()}
    return Expects(variables, by_saver=False, by_object=False)


def _restored(graph: Graph, limits: Limits) -> Iterator[Expected]:
    for nodes in (graph.nodes, *(function.nodes for function in graph.functions)):
        restores = [node for node in nodes if node.op in _RESTORES]
        if not restores:
            continue
        wanted = {_node_of(text) for each in restores for text in each.inputs}
        constants = {
            each.name: each for each in nodes if each.op == "Const" and each.name in wanted
        }
        for node in restores:
            yield from _of_node(graph, node, constants, limits)


def _node_of(text: str) -> str:
    """The node of an input: ``node``, ``node:1``, or in a function ``node:output:0``."""
    return text.partition(":")[0]


def _of_node(
    graph: Graph, node: Node, constants: Mapping[str, Node], limits: Limits
) -> Iterator[Expected]:
    """The keys of one restoring node; none where they are no constants."""
    keys_at, slices_at = _RESTORES[node.op]
    keys = _strings(graph, node, keys_at, constants, limits)
    slices = [] if slices_at is None else _strings(graph, node, slices_at, constants, limits)
    attrs = graph.attrs(node)
    dtypes = attrs.types("dtypes") if node.op == "RestoreV2" else [attrs.type("dt") or ""]
    for place, key in enumerate(keys):
        yield Expected(
            key,
            dtypes[place] if place < len(dtypes) else "",
            _full_shape(slices[place]) if place < len(slices) else None,
        )


def _strings(
    graph: Graph, node: Node, place: int, constants: Mapping[str, Node], limits: Limits
) -> Sequence[str]:
    if place >= len(node.inputs):
        return ()
    constant = constants.get(_node_of(node.inputs[place]))
    tensor = None if constant is None else graph.attrs(constant).tensor("value")
    if tensor is None or tensor.dtype != "string":
        return ()
    return [text.decode("utf-8", "surrogateescape") for text in tensor.strings(limits)]


def _full_shape(spec: str) -> PartialShape:
    """The whole shape that a slice is of: ``784 16 0,392:0,16``; None of an empty text."""
    sizes = spec.split()[:-1]
    return tuple(map(int, sizes)) if sizes and all(map(_SIZE.fullmatch, sizes)) else None
