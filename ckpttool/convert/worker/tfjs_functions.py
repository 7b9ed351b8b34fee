"""Functions of a graph (the bodies of loops, branches), as TensorFlow.js looks into them.

It finds a weight by its name alone, whatever function it is in; knows an output by its
number, and takes the first of every name (``indices:0`` of a TopKV2); and of an operation
that a function returns, it returns one output (tfjs-converter 4.22,
operations/operation_mapper.ts, ``mapFunction``; executor/graph_executor.ts).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tensorflow.python.framework import op_def_registry

__all__ = ["name_constants", "number_outputs", "pass_results_on"]


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
