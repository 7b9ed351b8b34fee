"""The object graph of an object-based checkpoint: bytes → nodes, edges, attributes, slots.

The string under ``_CHECKPOINTABLE_OBJECT_GRAPH`` is a ``TrackableObjectGraph``
(tensorflow/core/protobuf/trackable_object_graph.proto); ``object_graph_columns.py`` reads it.

Knows the message; what a node *means* (model, optimizer, step) is not for this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckpttool.errors import CorruptError
from ckpttool.formats.bundle import OBJECT_GRAPH_KEY
from ckpttool.formats.object_graph_columns import VARIABLE_VALUE, Columns, Edges, Slot
from ckpttool.limits import Limits

__all__ = [
    "OBJECT_GRAPH_KEY",
    "VARIABLE_VALUE",
    "Edges",
    "ObjectGraph",
    "Slot",
    "parse_object_graph",
]


@dataclass(frozen=True, slots=True)
class ObjectGraph:
    """Nodes are numbered from 0, the root; every number in it is a node that exists.

    Attributes:
        size: the number of nodes.
        edges: of each node that has any.
        owners: for each saved tensor that has a key, in node order, the node that saved it.
        full_names: the variable's own name in the program that wrote it; may be empty.
        keys: the tensor's key in the checkpoint.
        attributes: the names of those tensors that are not a variable's value, by their
            place in ``keys``.
        slots: every slot variable, in node order.
    """

    size: int
    edges: dict[int, Edges]
    owners: list[int]
    full_names: list[str]
    keys: list[str]
    attributes: dict[int, str]
    slots: list[Slot]


def parse_object_graph(data: bytes, limits: Limits) -> ObjectGraph:
    """Parse a serialised ``TrackableObjectGraph``.

    Time and memory are linear in ``data``; cycles and shared nodes are legal and kept.

    Raises:
        CorruptError: id ``object-graph-malformed``: no such message, or an edge to a node
            that does not exist.
        LimitError: id ``object-graph-too-large``: more nodes than
            ``limits.object_graph_nodes``, or more than four times as many edges,
            attributes and slots together.
    """
    columns = Columns(data, limits.object_graph_nodes)
    try:
        columns.read()
    except IndexError:
        raise _malformed(f"a field runs past the end at byte {len(data)}") from None
    except CorruptError as error:
        raise _malformed(error.why) from None
    return ObjectGraph(
        columns.size,
        columns.edges,
        columns.owners,
        columns.full_names,
        columns.keys,
        columns.attributes,
        columns.slots,
    )


def _malformed(why: str) -> CorruptError:
    return CorruptError(
        "the object graph is malformed",
        why=why,
        hint="the variables can still be used by their keys: add --names key",
        id="object-graph-malformed",
    )
