"""Signs that a graph was saved to train with, and would answer differently than one to serve.

Each sign says how many nodes show it and names some. ``alters`` tells those that change what
the graph computes (a batch normalisation that uses the batch's own mean) from those that only
say what it is for (an optimizer beside it). Functions are looked at where they are given.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ckpttool.errors import CkpttoolError
from ckpttool.formats.graphdef import Graph, Node
from ckpttool.limits import Limits
from ckpttool.sources.graph_roles import (
    PIPELINE_OPS,
    QUEUE_OPS,
    is_side_scope,
    rate_like,
    switch_like,
)
from ckpttool.sources.graph_topology import Topology

__all__ = ["Sign", "training_signs"]

#: Nodes that a sign names.
_NAMED = 3
_DROPOUT_SCOPE = re.compile(r"(?:^|.*/)[^/]*dropout[^/]*(?=/)", re.IGNORECASE)
_RANDOM_OPS = frozenset(
    {"RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2", "StatefulUniform"}
)
#: What random numbers become a mask by, and what may happen to them before.
_MASKS, _SCALES = frozenset({"Floor", "GreaterEqual"}), frozenset({"Add", "AddV2", "Mul", "Sub"})
#: What the node that draws is called below its operation.
_DRAWN = "/random_uniform/RandomUniform"
_BATCH_NORM_OPS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_OPTIMIZER = re.compile(r"^(?:Resource)?(?:Sparse)?Apply[A-Z]")
_AVERAGE = "/ExponentialMovingAverage"
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_SMALL = Limits(constant_bytes=64)


class Sign(NamedTuple):
    """One sign.

    Attributes:
        id: stable: ``batch-norm-training``, ``dropout``, ``switch-unfed``, ``rate-unfed``,
            ``training-by-default``, ``queues``, ``input-pipeline``, ``moving-averages``,
            ``optimizer``.
        message: what it means.
        shown: how many nodes (of dropout: layers) show it.
        nodes: the first of them.
        alters: whether it changes what the graph computes.
    """

    id: str
    message: str
    shown: int
    nodes: tuple[str, ...]
    alters: bool


_MESSAGES = {
    "batch-norm-training": (
        "batch normalisation uses the mean of the batch it is fed, not the one it learned",
        True,
    ),
    "dropout": ("dropout draws random numbers: each run gives another answer", True),
    "switch-unfed": ("a truth value has to be fed, which most likely turns training on", True),
    "rate-unfed": ("a rate of dropout has to be fed: 1 for keep_prob, 0 for a drop rate", True),
    "training-by-default": ("what is not fed has the value of training", True),
    "queues": ("examples come out of queues, not of a placeholder", True),
    "input-pipeline": ("examples come out of an input pipeline, not of a placeholder", True),
    "moving-averages": (
        "variables have moving averages, which are often what should be served instead",
        False,
    ),
    "optimizer": ("an optimizer updates variables", False),
}


def training_signs(
    graph: Graph,
    topology: Topology,
    among: Iterable[int] | None = None,
    functions: Iterable[Graph] = (),
) -> tuple[Sign, ...]:
    """The signs of a graph, in a fixed order.

    Args:
        graph: the graph.
        topology: of that graph.
        among: positions that are looked at, such as the ancestors of what is wanted; None: all
            but those of gradients, savers and initialisers.
        functions: that it calls, as ``graph_functions.called`` gives them.

    Raises:
        CorruptError: id ``graph-malformed``.
    """
    found: dict[str, list[str]] = {}
    _look(found, graph, topology, range(len(topology.nodes)) if among is None else sorted(among))
    for function in functions:
        _look(found, function, Topology(function), range(len(function.nodes)))
    signs = []
    for id, (message, alters) in _MESSAGES.items():
        showing = list(dict.fromkeys(found.get(id, ())))
        if showing:
            signs.append(Sign(id, message, len(showing), tuple(showing[:_NAMED]), alters))
    return tuple(signs)


def _look(
    found: dict[str, list[str]], graph: Graph, topology: Topology, places: Iterable[int]
) -> None:
    """Add the signs of some nodes, by id, with the names that show them."""
    nodes = topology.nodes
    for place in places:
        node = nodes[place]
        op = node.op
        sign = _OF_OP.get(op)
        if sign is None:
            sign = _OF_OP[op] = _sign_of_op(op)
        if not sign:
            continue
        if sign not in _OUTSIDE and is_side_scope(node.name):
            continue
        names = _shown(sign, graph, topology, node, place)
        if names:
            found.setdefault(names[0], []).append(names[1])


#: Signs whose nodes lie in the scopes that are left out otherwise.
_OUTSIDE = frozenset({"optimizer", "moving-averages"})
#: Op → which sign it may show; empty: none. Filled as ops are met.
_OF_OP: dict[str, str] = {}


def _sign_of_op(op: str) -> str:
    if op in _BATCH_NORM_OPS:
        return "batch-norm-training"
    if op in _RANDOM_OPS or op == "Dropout":
        return "dropout"
    if op in {"Placeholder", "PlaceholderV2"}:
        return "switch-unfed"
    if op == "PlaceholderWithDefault":
        return "training-by-default"
    if QUEUE_OPS.match(op):
        return "queues"
    if PIPELINE_OPS.match(op):
        return "input-pipeline"
    if op in _VARIABLES:
        return "moving-averages"
    return "optimizer" if _OPTIMIZER.match(op) else ""


def _shown(
    sign: str, graph: Graph, topology: Topology, node: Node, place: int
) -> tuple[str, str] | None:
    """The sign that a node shows, and the name to show it by; None where it shows none."""
    if sign == "batch-norm-training":
        # nn_ops.cc: is_training is true where it is left out.
        if graph.attrs(node).flag("is_training") is False or _has_no_scale(topology, place):
            return None
        return sign, node.name
    if sign == "dropout":
        scope = _DROPOUT_SCOPE.match(node.name)
        if scope:
            return sign, scope[0]
        drops = node.op == "Dropout" or _makes_a_mask(topology, place)
        return (sign, node.name.removesuffix(_DRAWN)) if drops else None
    if sign == "switch-unfed":
        dtype = graph.attrs(node).type("dtype")
        if dtype == "bool":
            return sign, node.name
        if dtype in {"float32", "float64", "float16"} and rate_like(node.name):
            return "rate-unfed", node.name
        return None
    if sign == "training-by-default":
        return (sign, node.name) if _trains_by_default(graph, topology, node, place) else None
    if sign == "moving-averages":
        return (sign, node.name) if node.name.endswith(_AVERAGE) else None
    return sign, node.name


def _has_no_scale(topology: Topology, place: int) -> bool:
    """Whether a normalisation scales by ones that are made for each example.

    So Keras 2 normalises a layer: by each example's own mean, when it serves too
    (keras/layers/normalization/layer_normalization.py). That of a batch scales by a weight.
    """
    scale = topology.of_names(topology.nodes[place].inputs[1:2])
    return any(topology.nodes[one].op == "Fill" for one in scale)


def _makes_a_mask(topology: Topology, place: int) -> bool:
    """Whether random numbers are compared or rounded down, as nn_ops.py's dropout does.

    Between the draw and that are at most a scale and a shift.
    """
    consumers, nodes = topology.consumers, topology.nodes
    drawn = [place]
    for _ in range(3):
        drawn = [after for one in drawn for after in consumers.get(one, ())]
        if any(nodes[one].op in _MASKS for one in drawn):
            return True
        drawn = [one for one in drawn if nodes[one].op in _SCALES]
    return False


def _trains_by_default(graph: Graph, topology: Topology, node: Node, place: int) -> bool:
    """Whether what a placeholder has by default turns training, or dropout, on."""
    producers = topology.producers[place]
    if not producers or topology.nodes[producers[0]].op != "Const":
        return False
    try:
        tensor = graph.attrs(topology.nodes[producers[0]]).tensor("value")
        if tensor is None or tensor.shape:
            return False
        data = tensor.elements(_SMALL).read(0, tensor.nbytes)
    except CkpttoolError:
        return False
    if tensor.dtype == "bool":
        return data[0] != 0 and bool(switch_like(node.name))
    if tensor.dtype == "float32" and rate_like(node.name):
        rate: float = struct.unpack("<f", data)[0]
        return 0 < rate < 1
    return False
