"""``SavedObjectGraph``: the Python objects of a TF 2.x SavedModel, as far as they are told.

Field numbers are those of tensorflow/core/protobuf/saved_object_graph.proto. Only what each
object *is* is read: variables, and the kinds of user objects (a Keras optimizer with slots
is what ``tf.saved_model.load`` of today cannot revive). Which checkpoint key belongs to
which object is in the checkpoint's own object graph.
"""

from __future__ import annotations

from typing import NamedTuple

from ckpttool.errors import LimitError
from ckpttool.formats import wire
from ckpttool.formats.graph_errors import naming_graph
from ckpttool.formats.long_message import AT_HAND, MessageBytes, fields_of
from ckpttool.formats.tensor_proto import base_dtype
from ckpttool.formats.tensor_shape import PartialShape, read_shape
from ckpttool.limits import Limits

__all__ = ["SavedObjects", "SavedVariable", "parse_saved_objects"]

_NODES = 1
# SavedObject
_SLOTS, _USER_OBJECT, _VARIABLE = 3, 4, 7
# SavedVariable
_DTYPE, _SHAPE, _TRAINABLE, _NAME = 1, 2, 3, 6


class SavedVariable(NamedTuple):
    """A variable: its name in the program that wrote it, which need not be its key."""

    name: str
    dtype: str
    shape: PartialShape
    trainable: bool


class SavedObjects(NamedTuple):
    """What is in an object graph.

    Attributes:
        nodes: how many objects.
        variables: in node order.
        kinds: identifier of user objects (``_tf_keras_model``, ``optimizer``) → how many.
        slot_owners: user objects with slot variables, by their identifiers.
    """

    nodes: int
    variables: tuple[SavedVariable, ...]
    kinds: dict[str, int]
    slot_owners: tuple[str, ...]


def parse_saved_objects(source: MessageBytes, start: int, end: int, limits: Limits) -> SavedObjects:
    """Read the ``SavedObjectGraph`` in ``[start, end)``.

    Raises:
        CorruptError: id ``graph-malformed``.
        LimitError: id ``limit-graph``: more than ``limits.graph_items`` variables and kinds.
    """
    nodes = 0
    variables: list[SavedVariable] = []
    kinds: dict[str, int] = {}
    slot_owners: set[str] = set()
    with naming_graph(source.path, "the object graph"):
        for number, _, node in fields_of(source, start, end):
            if number != _NODES or isinstance(node, int):
                continue
            nodes += 1
            identifier, slots = "", False
            for inner, _, value in fields_of(source, *node):
                if isinstance(value, int) or value[1] - value[0] > AT_HAND:
                    continue
                if inner == _VARIABLE:
                    variables.append(_variable(source.get(*value)))
                elif inner == _USER_OBJECT:
                    identifier = _identifier(source.get(*value))
                    kinds[identifier] = kinds.get(identifier, 0) + 1
                elif inner == _SLOTS:
                    slots = True
            if slots:
                slot_owners.add(identifier)
            if len(variables) + len(kinds) > limits.graph_items:
                raise LimitError(
                    f"{source.path} has too large an object graph",
                    why=f"it has more than {limits.graph_items} variables (the limit graph_items)",
                    hint=f"raise it with CKPTTOOL_LIMITS=graph_items={4 * limits.graph_items}",
                    id="limit-graph",
                )
    return SavedObjects(nodes, tuple(variables), kinds, tuple(sorted(slot_owners)))


def _variable(data: bytes) -> SavedVariable:
    name, dtype, trainable = "", 0, False
    shape: PartialShape = ()
    for number, _, value in wire.fields(data):
        if isinstance(value, int):
            if number == _DTYPE:
                dtype = wire.signed32(value)
            elif number == _TRAINABLE:
                trainable = value != 0
        elif number == _SHAPE:
            shape = read_shape(data, *value)
        elif number == _NAME:
            name = data[value[0] : value[1]].decode("utf-8", "surrogateescape")
    return SavedVariable(name, base_dtype(dtype), shape, trainable)


def _identifier(data: bytes) -> str:
    for number, _, value in wire.fields(data):
        if number == 1 and not isinstance(value, int):
            return data[value[0] : value[1]].decode("utf-8", "surrogateescape")
    return ""
