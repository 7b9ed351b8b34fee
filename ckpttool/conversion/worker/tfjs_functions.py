"""Functions of a graph (the bodies of loops, branches), as TensorFlow.js looks into them.

It finds a weight by its name alone, whatever function it is in; knows an output by its
number, and takes the first of every name (``indices:0`` of a TopKV2); and of an operation
that a function returns, it returns one output (tfjs-converter 4.22,
operations/operation_mapper.ts, ``mapFunction``; executor/graph_executor.ts).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from tensorflow.python.framework import op_def_registry

__all__ = ["name_constants", "name_functions", "number_outputs", "pass_results_on"]


def name_constants(function: Any) -> None:  # noqa: ANN401
    """Give the constants of a function names that nothing else has."""
    names = {
        node.name: f"{function.signature.name}/{node.name}"
        for node in function.node_def
        if node.op == "Const"
    }

    def renamed(reference: str) -> str:
        mark = "^" if reference.startswith("^") else ""
        name, colon, rest = reference.removeprefix("^").partition(":")
        return f"{mark}{names.get(name, name)}{colon}{rest}"

    for node in function.node_def:
        node.name = names.get(node.name, node.name)
        references = [renamed(one) for one in node.input]
        del node.input[:]
        node.input.extend(references)
    for table in (function.ret, function.control_ret):
        for key in list(table):
            table[key] = renamed(table[key])


def name_functions(graph: Any) -> None:  # noqa: ANN401
    """Call the functions by their order of use; those that nothing uses go.

    TensorFlow numbers them through the life of a process, so that no two conversions would
    give the same bytes.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    names: dict[str, str] = {}
    waiting = list(_called(graph.node))
    while waiting:
        name = waiting.pop(0)
        if name not in names:
            names[name] = f"function_{len(names) + 1}"
            waiting += _called(functions[name].node_def)
    kept = [functions[name] for name in names]
    for nodes in (graph.node, *(function.node_def for function in kept)):
        for value in _function_attributes(nodes):
            value.name = names[value.name]
    for function in kept:
        function.signature.name = names[function.signature.name]
    library = type(graph.library)()
    library.function.extend(kept)
    graph.library.CopyFrom(library)


def _called(nodes: Iterable[Any]) -> Iterator[str]:
    return (value.name for value in _function_attributes(nodes))


def _function_attributes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for key in sorted(node.attr):  # a map has no order of its own
            value = node.attr[key]
            if value.HasField("func"):
                yield value.func
            yield from value.list.func


def pass_results_on(function: Any, kept: Collection[str]) -> None:  # noqa: ANN401
    """Put an identity behind every result that is one of several outputs of an operation.

    Args:
        function: a FunctionDef; it is changed.
        kept: names of results that have to be the very tensor.
    """
    several = {node.name for node in function.node_def if _has_several(node.op)}
    for output in function.signature.output_arg:
        reference = function.ret[output.name]
        if output.name in kept or reference.partition(":")[0] not in several:
            continue
        node = function.node_def.add()
        node.name, node.op = f"ckpttool_result/{output.name}", "Identity"
        node.input.append(reference)
        node.attr["T"].type = output.type
        function.ret[output.name] = node.name


def number_outputs(function: Any) -> None:  # noqa: ANN401
    """Refer to outputs by their numbers: ``top:indices:0`` becomes ``top:1``."""
    nodes = {node.name: node for node in function.node_def}

    def numbered(reference: str) -> str:
        name, *rest = reference.split(":")
        if len(rest) < 2:
            return reference  # an argument, or a control dependency
        number = _first_of(nodes[name], rest[0]) + int(rest[1])
        return f"{name}:{number}" if number else name

    for node in function.node_def:
        references = [numbered(one) for one in node.input]
        del node.input[:]
        node.input.extend(references)
    for key in list(function.ret):
        function.ret[key] = numbered(function.ret[key])


def _first_of(node: Any, wanted: str) -> int:  # noqa: ANN401
    """The number of the first output of a name."""
    number = 0
    for output in op_def_registry.get(node.op).output_arg:
        if output.name == wanted:
            return number
        if output.number_attr:
            number += node.attr[output.number_attr].i
        elif output.type_list_attr:
            number += len(node.attr[output.type_list_attr].list.type)
        else:
            number += 1
    raise AssertionError(f"{node.op} has no output {wanted}")


def _has_several(op: str) -> bool:
    outputs = op_def_registry.get(op).output_arg
    return len(outputs) != 1 or bool(outputs[0].number_attr or outputs[0].type_list_attr)
