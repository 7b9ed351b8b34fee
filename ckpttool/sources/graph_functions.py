"""Which functions of its library a part of a graph calls, each as a graph of its own.

TensorFlow 2 keeps in functions what it computes: calls, branches of a condition, bodies of
loops (tensorflow/core/ops/functional_ops.cc). Pure; every walk is a loop.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from ckpttool.formats.graphdef import Function, Graph, Node

__all__ = ["called"]

#: The attributes by which operations name functions: one, or (``branches``) a list.
_ATTRIBUTES = ("f", "then_branch", "else_branch", "cond", "body")
_LIST = "branches"
#: The operations that do.
_CALLERS = frozenset(
    {
        "Case",
        "If",
        "MapDefun",
        "PartitionedCall",
        "RemoteCall",
        "StatefulPartitionedCall",
        "StatelessCase",
        "StatelessIf",
        "StatelessWhile",
        "SymbolicGradient",
        "TPUPartitionedCall",
        "While",
    }
)


def called(
    graph: Graph, nodes: Iterable[Node], never: Container[tuple[str, str]] = ()
) -> Iterator[Graph]:
    """The functions that nodes call, and those that these call, each once.

    Args:
        graph: has the library, and the attributes of the nodes.
        nodes: of the graph.
        never: (node, attribute) of branches that are known not to be taken.

    Raises:
        CorruptError: id ``graph-malformed``.
    """
    library = {function.name: function for function in graph.functions}
    waiting = [name for node in nodes for name in _names(graph, node, library, never)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        function = library.get(name)
        if function is None or name in seen:
            continue
        seen.add(name)
        yield graph._replace(nodes=list(map(_as_of_graph, function.nodes)), functions=[])
        waiting += [one for node in function.nodes for one in _names(graph, node, library, ())]


def _names(
    graph: Graph,
    node: Node,
    library: dict[str, Function],
    never: Container[tuple[str, str]],
) -> Iterator[str]:
    if node.op in library:
        yield node.op
    elif node.op in _CALLERS:
        attrs = graph.attrs(node)
        for attribute in _ATTRIBUTES:
            name = attrs.function(attribute)
            if name is not None and (node.name, attribute) not in never:
                yield name
        yield from attrs.functions(_LIST)


def _as_of_graph(node: Node) -> Node:
    """A function's node as a graph has them: without the names of outputs (``x:output:0``)."""
    return node._replace(inputs=tuple(one.partition(":")[0] for one in node.inputs))
