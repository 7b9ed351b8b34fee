"""What a graph is: its ops, its placeholders, and what are likely its inputs and outputs.

A TF 1.x graph says nowhere what goes in and what comes out. Outputs are looked for where
tensors end: nodes that nothing takes anything from, once savers, gradients, initialisers,
summaries, losses and measures are left out; those of a model's head (softmax, argmax) come
first. Inputs are the placeholders that they depend on. These are guesses, and named so.

Pure, over ``formats/graphdef.py``; for ``inspect --graph``, ``diff --graph`` and ``convert``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ckpttool.errors import NotFoundError
from ckpttool.formats.attr_value import Attrs
from ckpttool.formats.graphdef import Graph, Node
from ckpttool.formats.tensor_shape import PartialShape
from ckpttool.sources import graph_roles as roles
from ckpttool.sources.graph_signs import Sign, training_signs
from ckpttool.sources.graph_topology import Topology, split_tensor
from ckpttool.sources.graph_variables import VARIABLE_OPS, GraphVariable, graph_variables
from ckpttool.sources.nearest import nearest
from ckpttool.sources.tensorflow_ops import unknown_ops

__all__ = [
    "GraphAnalysis",
    "GraphTensor",
    "Placeholder",
    "analyse_graph",
    "find_tensor",
    "tensor_not_found",
]

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
#: Ops that hand on what they are given: an output behind one is as telling as before it.
_HANDS_ON = frozenset(
    {"Identity", "Squeeze", "Reshape", "Cast", "ExpandDims", "StopGradient", "CheckNumerics"}
)
#: How many of them are looked through.
_LOOK_THROUGH = 8
#: Outputs that are given.
_OUTPUTS = 20
#: Losses that are looked at to find out what their labels are.
_LOSSES = 16
#: Scopes of losses and measures that are looked at.
_JUDGE_SCOPES = 32
#: Placeholders up to which it is found out what each of them meets.
_COMPARED = 8
#: Version of the graph's format up to which a placeholder without a shape has that of a scalar.
_SCALAR_IS_UNKNOWN = 21
#: Ops whose ``T`` is the type of their input, and what comes out where nothing else is said.
_RESULTS = (
    dict.fromkeys(("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual"), "bool")
    | dict.fromkeys(("LogicalAnd", "LogicalOr", "LogicalNot"), "bool")
    | dict.fromkeys(("Shape", "ShapeN", "Size", "Rank"), "int32")
    | {"ArgMax": "int64", "ArgMin": "int64", "Where": "int64", "AsString": "string"}
)
#: Attributes that hold the type of a node's first output, the most particular first.
_TYPE_ATTRS = ("output_type", "out_type", "DstT", "dtype", "T", "Tparams", "Tvalues")


class GraphTensor(NamedTuple):
    """A tensor; ``dtype`` is empty and ``shape`` None where the graph does not say."""

    name: str
    op: str
    dtype: str
    shape: PartialShape


class Placeholder(NamedTuple):
    """A tensor that is fed; with ``default`` it may be left out."""

    name: str
    dtype: str
    shape: PartialShape
    default: bool


@dataclass(frozen=True, slots=True)
class GraphAnalysis:
    """What a graph is.

    Attributes:
        nodes: how many of its own; ``functions``: in its library; ``function_nodes``: theirs.
        ops: op → how many nodes, those of functions too, most first.
        placeholders: every one that is no saver's, in the graph's order.
        inputs, outputs: likely ones, the likeliest first.
        variables: of its nodes.
        signs: of a graph that trains.
        unknown_ops: those that today's TensorFlow does not have, sorted.
        producer, min_consumer: versions of the graph's format (0: it says none).
    """

    nodes: int
    functions: int
    function_nodes: int
    ops: dict[str, int]
    placeholders: tuple[Placeholder, ...]
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    variables: tuple[GraphVariable, ...]
    signs: tuple[Sign, ...]
    unknown_ops: tuple[str, ...]
    producer: int
    min_consumer: int


def analyse_graph(graph: Graph, variables: Iterable[GraphVariable] | None = None) -> GraphAnalysis:
    """Look at a whole graph.

    Args:
        graph: the graph.
        variables: what is known of them; None: as `graph_variables` gives them.

    Raises:
        CorruptError: id ``graph-malformed``: an attribute that is looked at is malformed.
    """
    topology = Topology(graph)
    ops = Counter(node.op for node in graph.all_nodes())
    functions = {function.name for function in graph.functions}
    finder = _Finder(graph, topology)
    outputs = finder.outputs()
    return GraphAnalysis(
        len(graph.nodes),
        len(graph.functions),
        sum(len(function.nodes) for function in graph.functions),
        dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
        tuple(finder.placeholder(place) for place in finder.placeholders),
        tuple(finder.inputs(outputs)),
        tuple(finder.tensor(place) for place in outputs),
        tuple(graph_variables(graph) if variables is None else variables),
        training_signs(graph, topology),
        tuple(unknown_ops(op for op in ops if op not in functions)),
        graph.producer,
        graph.min_consumer,
    )


def find_tensor(graph: Graph, topology: Topology, name: str) -> GraphTensor:
    """The tensor ``node`` or ``node:1`` of a graph.

    Raises:
        NotFoundError: id ``tensor-not-found``; the hint names the nearest ones.
    """
    node, output = split_tensor(name)
    place = topology.positions.get(node)
    if place is None or output < 0:
        raise tensor_not_found(name, graph.source.path, topology.positions)
    found = _Finder(graph, topology).tensor(place)
    return found if output == 0 else GraphTensor(f"{node}:{output}", found.op, "", None)


def tensor_not_found(name: str, path: str, names: Iterable[str]) -> NotFoundError:
    """The error of a name that no node of a graph has, with the nearest that do."""
    near = nearest(split_tensor(name.removeprefix("^"))[0], names)
    return NotFoundError(
        f"there is no tensor {name} in the graph of {path}",
        why="no node has this name",
        hint=f"did you mean: {', '.join(f'{each}:0' for each in near)}"
        if near
        else "see its placeholders and likely outputs: ckpttool inspect --graph",
        id="tensor-not-found",
    )


class _Finder:
    """Sorts the nodes of one graph by what they are for."""

    def __init__(self, graph: Graph, topology: Topology) -> None:
        self._graph = graph
        self._topology = topology
        side: dict[str, bool] = {}
        judging: dict[str, str] = {}
        judges: dict[str, set[int]] = {}
        self._model: set[int] = set()
        self.placeholders: list[int] = []
        for place, node in enumerate(topology.nodes):
            name = node.name
            scope = name.rpartition("/")[0] or name
            aside = side.get(scope)
            if aside is None:
                aside = side[scope] = bool(roles.is_side_scope(scope))
                judging[scope] = roles.judge_scope(scope)
            if aside:
                continue
            self._model.add(place)
            if node.op in _PLACEHOLDERS:
                self.placeholders.append(place)
            elif judging[scope]:
                judges.setdefault(judging[scope], set()).add(place)
        self._judges = self._true_judges(judges)
        self._judges |= {place for place in self._model if self._judges_by_op(place)}
        variables = {place for place in self._model if topology.nodes[place].op in VARIABLE_OPS}
        #: Variables, and what depends on one; empty in a frozen graph.
        self._weighted = topology.descendants(variables, self._model)
        self._labels = self._find_labels()

    def outputs(self) -> list[int]:
        """Likely outputs, the likeliest first."""
        labels = self._labels
        cone = self._topology.descendants(self._judges | labels, self._model)
        found = self._ends(self._model - cone, labels) or self._ends(self._model, set())
        ranked = sorted({*found, *self._before(found)}, key=self._rank)
        return ranked[:_OUTPUTS]

    def inputs(self, outputs: list[int]) -> list[GraphTensor]:
        """What the outputs depend on, without switches, rates and labels."""
        needed = self._topology.ancestors(outputs)
        fed = [
            self.tensor(place)
            for place in self.placeholders
            if place in needed and place not in self._labels and not self._is_setting(place)
        ]
        if fed:
            return fed
        return [
            tensor
            for place in sorted(needed)
            if self._is_source(place)
            for tensor in self._components(place)
        ]

    def placeholder(self, place: int) -> Placeholder:
        node = self._topology.nodes[place]
        attrs = self._graph.attrs(node)
        default = node.op == "PlaceholderWithDefault"
        shape = self._fed_shape(node, attrs)
        return Placeholder(f"{node.name}:0", attrs.type("dtype") or "", shape, default)

    def tensor(self, place: int) -> GraphTensor:
        """The first output of a node."""
        node = self._topology.nodes[place]
        attrs = self._graph.attrs(node)
        dtype = _RESULTS.get(node.op, "")
        for name in _TYPE_ATTRS[: 2 if dtype else None]:
            dtype = attrs.type(name) or dtype
            if name in attrs:
                break
        if node.op in _PLACEHOLDERS:
            shape = self._fed_shape(node, attrs)
        else:
            shapes = attrs.shapes("_output_shapes")
            shape = shapes[0] if shapes else None
        return GraphTensor(f"{node.name}:0", node.op, dtype, shape)

    # ----------------------------------------------------------------------------------

    def _fed_shape(self, node: Node, attrs: Attrs) -> PartialShape:
        """A placeholder's shape; old graphs say a scalar where none is known (array_ops.cc)."""
        shape = attrs.shape("shape")
        old = node.op == "Placeholder" and self._graph.producer <= _SCALAR_IS_UNKNOWN
        return None if old and shape == () else shape

    def _ends(self, body: set[int], labels: set[int]) -> list[int]:
        """The nodes of ``body`` that nothing in it takes anything from, in order."""
        nodes = self._topology.nodes
        consumed = self._topology.consumed(body)
        for place in body:
            if nodes[place].op != "NoOp":
                consumed.update(self._topology.controls.get(place, ()))
        fed = {place for place in self.placeholders if place not in labels} & body
        fed |= {place for place in body if self._is_source(place)}
        live = self._topology.descendants(fed, body) if fed else body
        ops: dict[str, bool] = {}
        ends = []
        for place in sorted(body - consumed):
            op = nodes[place].op
            aside = ops.get(op)
            if aside is None:
                aside = ops[op] = bool(roles.is_side_op(op))
            if not aside and place in live and not self._reads_variable(place):
                ends.append(place)
        return [place for place in ends if place in self._weighted] or ends

    def _reads_variable(self, place: int) -> bool:
        """Whether a node only hands on a variable."""
        head = self._topology.nodes[self._head(place)].op
        return head in VARIABLE_OPS or head == "ReadVariableOp"

    def _before(self, ends: Iterable[int]) -> list[int]:
        """The probabilities that a class is picked from, at the end of a graph."""
        nodes = self._topology.nodes
        found = []
        for end in ends:
            place = self._head(end)
            if nodes[place].op in roles.CHOOSING and self._topology.producers[place]:
                before = self._topology.producers[place][0]
                if nodes[self._head(before)].op in ("Softmax", "Sigmoid", "LogSoftmax"):
                    found.append(before)
        return found

    def _head(self, place: int) -> int:
        """The node whose tensor this one hands on; itself where it makes its own."""
        for _ in range(_LOOK_THROUGH):
            producers = self._topology.producers[place]
            if self._topology.nodes[place].op not in _HANDS_ON or not producers:
                break
            place = producers[0]
        return place

    def _rank(self, place: int) -> tuple[int, bool, int]:
        """Sorts outputs: a model's head, then what is called an output, then the last."""
        node = self._topology.nodes[place]
        head = self._topology.nodes[self._head(place)].op
        weak = 4 if head in roles.BY_THE_WAY else 3
        return roles.HEADS.get(head, weak), not roles.is_output_name(node.name), -place

    def _find_labels(self) -> set[int]:
        """Placeholders of what a model is compared with: by name, or by what they feed."""
        nodes, producers = self._topology.nodes, self._topology.producers
        placeholders = set(self.placeholders)
        labels = {place for place in placeholders if roles.label_like(nodes[place].name)}
        losses = [
            place
            for place in sorted(self._judges)
            if nodes[place].op.endswith("SoftmaxCrossEntropyWithLogits")
            and len(producers[place]) == 2
        ]
        for place in losses[:_LOSSES]:
            logits, given = producers[place]
            judged = self._topology.ancestors([logits], controls=False)
            labels |= placeholders & self._topology.ancestors([given], controls=False) - judged
        labels = labels or self._compared()
        return labels if labels != placeholders else set()

    def _compared(self) -> set[int]:
        """Placeholders that meet nothing but what the model made of others.

        What is fed to a model meets its variables first. What meets its result instead, and
        no weights after that, is what the result is compared with.
        """
        topology, weighted = self._topology, self._weighted
        fed = [place for place in self.placeholders if not self._is_setting(place)]
        if not weighted or not 1 < len(fed) <= _COMPARED:
            return set()
        flows = {place: topology.descendants([place], self._model) for place in fed}
        labels = set()
        for place, flow in flows.items():
            others = set().union(*(flows[other] for other in fed if other != place))
            meetings = set()
            for met in flow & weighted:
                if roles.is_side_op(topology.nodes[met].op):
                    continue
                producers = topology.producers[met]
                if any(each in flow and each not in weighted for each in producers):
                    judged = {each for each in producers if each in weighted and each not in flow}
                    if not judged <= others:
                        break
                    meetings.add(met)
            else:
                after = topology.descendants(meetings, self._model)
                if meetings and not any(self._weighs(each) for each in after):
                    labels.add(place)
        return labels

    def _weighs(self, place: int) -> bool:
        """Whether a node brings weights in."""
        return bool(roles.WEIGHING.match(self._topology.nodes[place].op))

    def _true_judges(self, scopes: dict[str, set[int]]) -> set[int]:
        """The nodes of scopes that are called a loss, and are one: no weights come after."""
        judges: set[int] = set()
        for places in list(scopes.values())[:_JUDGE_SCOPES]:
            if not any(map(self._weighs, self._topology.descendants(places, self._model))):
                judges |= places
        return judges

    def _judges_by_op(self, place: int) -> bool:
        """Whether a node is a loss, or compares a choice with what was right."""
        op = self._topology.nodes[place].op
        if op in roles.COMPARING:
            heads = map(self._head, self._topology.producers[place])
            return any(self._topology.nodes[head].op in roles.CHOOSING for head in heads)
        return bool(roles.is_judge_op(op))

    def _is_setting(self, place: int) -> bool:
        """Whether a placeholder turns something on, or is a rate."""
        node = self._topology.nodes[place]
        attrs = self._graph.attrs(node)
        if attrs.type("dtype") == "bool":
            return not attrs.shape("shape")
        return bool(roles.rate_like(node.name)) or (
            node.op == "PlaceholderWithDefault" and attrs.shape("shape") == ()
        )

    def _is_source(self, place: int) -> bool:
        """Whether examples come out of a node: of an input pipeline, or of a queue."""
        op = self._topology.nodes[place].op
        return op.startswith(("IteratorGetNext", "QueueDequeue", "ReaderRead"))

    def _components(self, place: int) -> list[GraphTensor]:
        """All outputs of such a node."""
        node = self._topology.nodes[place]
        attrs = self._graph.attrs(node)
        types = attrs.types("output_types") or attrs.types("component_types")
        shapes = attrs.shapes("output_shapes")
        return [
            GraphTensor(
                f"{node.name}:{number}",
                node.op,
                dtype,
                shapes[number] if number < len(shapes) else None,
            )
            for number, dtype in enumerate(types)
        ]
