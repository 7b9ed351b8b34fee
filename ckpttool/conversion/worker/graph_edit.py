"""Surgery on a ``GraphDef``: what an output depends on, cut at chosen inputs, renamed.

Works on the message alone; imports nothing of TensorFlow but its protocol messages, and
knows neither variables nor where a graph comes from. A tensor is ``name`` or ``name:2``,
a control dependency ``^name`` (tensorflow/core/framework/node_def.proto).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ckpttool.conversion.branches import BranchNode, follow
from ckpttool.conversion.ports import Port, Signature
from ckpttool.errors import NotFoundError, UsageError

__all__ = [
    "ORIGINAL",
    "called_functions",
    "cut",
    "fold_defaults",
    "modernise",
    "operation",
    "reachable",
    "split",
    "unique",
]

#: The attribute in which an operation that was renamed keeps its former name.
ORIGINAL = "_ckpttool_name"
#: What an operation may be called (tensorflow/core/framework/node_def_util.cc).
_UNUSABLE = re.compile(r"[^A-Za-z0-9_.\\/>-]")
_SCALARS_ARE_SCALARS = 24
_DEFAULTS = {"PlaceholderWithDefault", "PlaceholderWithDefaultV2"}


def split(tensor: str) -> tuple[str, int]:
    """``x:1`` → operation and which of its outputs; of ``^x`` the output is -1."""
    if tensor.startswith("^"):
        return tensor[1:], -1
    name, _, index = tensor.partition(":")
    return name, int(index or 0)


def operation(tensor: str) -> str:
    """The operation of a tensor."""
    return split(tensor)[0]


def unique(wanted: str, taken: Collection[str]) -> str:
    """A name that an operation may have, is not taken, and is the wanted one if possible."""
    base = _UNUSABLE.sub("_", wanted)
    if not base or base[0] in "_\\/>-":
        base = f"x{base}"
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def reachable(
    nodes: Mapping[str, Any], targets: Iterable[str], stops: Collection[tuple[str, int]] = ()
) -> set[str]:
    """The operations that these tensors depend on.

    Args:
        nodes: name → NodeDef.
        targets: tensors or operations.
        stops: tensors that are given, so that what computes them is not needed.

    Raises:
        NotFoundError: id ``tensor-not-found``: the graph refers to what it has not.
    """
    given = {name for name, _ in stops}
    seen: set[str] = set()
    waiting = [split(target) for target in targets]
    while waiting:
        name, index = waiting.pop()
        if (name, index) in stops or (index < 0 and name in given) or name in seen:
            continue
        if name not in nodes:
            raise NotFoundError(
                f"there is no operation {name} in the graph",
                why="an output, or an operation that one depends on, refers to it",
                hint="check --input and --output",
                id="tensor-not-found",
            )
        seen.add(name)
        waiting.extend(split(one) for one in nodes[name].input)
    return seen


def modernise(graph: Any, producer: int) -> None:  # noqa: ANN401
    """Say of old placeholders without a shape that they have none.

    To TensorFlow before version 24 of graphs, no dimensions meant an unknown shape, and not
    a scalar (tensorflow/core/ops/array_ops.cc).
    """
    for node in graph.node if producer < _SCALARS_ARE_SCALARS else ():
        if node.op == "Placeholder" and not node.attr["shape"].shape.dim:
            node.attr["shape"].shape.unknown_rank = True


def fold_defaults(graph: Any, keep: Collection[str]) -> None:  # noqa: ANN401
    """Make every placeholder that has a default, and is not an input, that default."""
    for node in graph.node:
        if node.op in _DEFAULTS and node.name not in keep:
            dtype = node.attr["dtype"].type
            node.op = "Identity"
            node.attr.clear()
            node.attr["T"].type = dtype


def fold_branches(graph: Any, known: Mapping[str, bool]) -> None:  # noqa: ANN401
    """Take out the conditions that fixed inputs decide, with the branches never taken.

    What is dead stays in the message: nothing that is kept depends on it.
    """
    if not known:
        return
    nodes = (BranchNode(node.name, node.op, tuple(node.input)) for node in graph.node)
    found = follow(nodes, known)
    for node in graph.node:
        if node.name in found.switches:
            del node.input[1:]  # of data and predicate, the data
        elif node.name in found.merges:
            data = [one for one in node.input if not one.startswith("^")]
            live = data[found.merges[node.name]]
            control = [one for one in node.input if one.startswith("^")]
            del node.input[:]
            node.input.extend([live, *control])
        else:
            continue
        node.op = "Identity"
        for name in [name for name in node.attr if name != "T"]:
            del node.attr[name]
    for node in graph.node:  # both outputs of a switch are the one of an identity
        for at, one in enumerate(node.input):
            name, index = split(one)
            if index == 1 and name in found.switches:
                node.input[at] = name


def put_placeholders(graph: Any, signature: Signature) -> Signature:  # noqa: ANN401
    """Put a placeholder in the place of every input that is the result of an operation.

    Returns:
        The signature with those placeholders.

    Raises:
        UsageError: id ``input-dtype``: it is not known what dtype such an input has.
    """
    nodes = {node.name: node for node in graph.node}
    taken = set(nodes)
    replaced: dict[tuple[str, int], str] = {}
    inputs = []
    for port in signature.inputs:
        name, index = split(port.tensor)
        if nodes[name].op.startswith("Placeholder"):
            inputs.append(port)
            continue
        if not port.dtype:
            raise UsageError(
                f"the dtype of the input {port.tensor} is not known",
                why=f"it is the result of an operation ({nodes[name].op}) that does not say it",
                hint=f"say it: --input {port.tensor}:float32[?,784]",
                id="input-dtype",
            )
        replaced[name, index] = _claim(port.name, taken)
        inputs.append(replace(port, tensor=f"{replaced[name, index]}:0"))
    for node in graph.node:
        for at, one in enumerate(node.input):
            if split(one) in replaced:
                node.input[at] = replaced[split(one)]
    for port in inputs:
        if operation(port.tensor) in set(replaced.values()):
            _placeholder(graph, operation(port.tensor), port)
    outputs = tuple(
        replace(port, tensor=f"{replaced[split(port.tensor)]}:0")
        if split(port.tensor) in replaced
        else port
        for port in signature.outputs
    )
    return Signature(signature.name, tuple(inputs), outputs)


def cut(graph: Any, signature: Signature) -> tuple[Any, Signature]:  # noqa: ANN401
    """What lies between the inputs and the outputs of a signature.

    Returns:
        The graph, with a placeholder for each input and an identity for each output, both
        called as the signature calls them (where an operation can be called so, and the
        name is free); and the signature with those tensors. Ports need dtype and shape.
    """
    nodes = {node.name: node for node in graph.node}
    given = {split(port.tensor): port for port in signature.inputs}
    kept = reachable(nodes, (port.tensor for port in signature.outputs), given)
    taken: set[str] = set()
    inputs = {place: _claim(port.name, taken) for place, port in given.items()}
    outputs = [_claim(port.name, taken) for port in signature.outputs]
    renamed: dict[str, str] = {}
    for name in sorted(kept):
        renamed[name] = _claim(name, taken)
    made = type(graph)()
    made.versions.CopyFrom(graph.versions)
    for place, name in inputs.items():
        _placeholder(made, name, given[place])
    for node in graph.node:
        if node.name in kept:
            copy = made.node.add()
            copy.CopyFrom(node)
            copy.name = renamed[node.name]
            if copy.name != node.name:
                copy.attr[ORIGINAL].s = node.name.encode()
            copy.device = ""
            copy.attr.pop("_class", None)  # what it is placed beside may be gone
            copy.attr.pop("_output_shapes", None)  # they change with inputs and variables
            del copy.input[:]
            copy.input.extend(_references(node.input, inputs, renamed))
    for name, port in zip(outputs, signature.outputs, strict=True):
        copy = made.node.add()
        copy.name, copy.op = name, "Identity"
        copy.attr["T"].type = _number(port.dtype)
        copy.input.extend(_references([port.tensor], inputs, renamed))
    made.library.function.extend(called_functions(graph, made.node))
    return made, Signature(
        signature.name,
        tuple(replace(port, tensor=f"{inputs[split(port.tensor)]}:0") for port in signature.inputs),
        tuple(
            replace(port, tensor=f"{name}:0")
            for name, port in zip(outputs, signature.outputs, strict=True)
        ),
    )


def called_functions(graph: Any, nodes: Iterable[Any]) -> list[Any]:  # noqa: ANN401
    """The functions of a graph's library that operations call, and those that these call."""
    known = {function.signature.name: function for function in graph.library.function}
    waiting = list(_named_functions(nodes))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in known and name not in seen:
            seen.add(name)
            waiting.extend(_named_functions(known[name].node_def))
    return [function for name, function in known.items() if name in seen]


def _named_functions(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        yield node.op
        for value in node.attr.values():
            if value.HasField("func"):
                yield value.func.name
            for function in value.list.func:
                yield function.name


def _claim(wanted: str, taken: set[str]) -> str:
    name = unique(wanted, taken)
    taken.add(name)
    return name


def _references(
    inputs: Iterable[str], given: Mapping[tuple[str, int], str], renamed: Mapping[str, str]
) -> Iterator[str]:
    """The inputs of an operation in the cut graph; a dependency on what is given falls away."""
    for one in inputs:
        name, index = split(one)
        if (name, index) in given:
            yield given[name, index]
        elif index < 0:
            if name in renamed:
                yield f"^{renamed[name]}"
        else:
            yield f"{renamed[name]}:{index}" if index else renamed[name]


def _placeholder(graph: Any, name: str, port: Port) -> None:  # noqa: ANN401
    node = graph.node.add()
    node.name, node.op = name, "Placeholder"
    node.attr["dtype"].type = _number(port.dtype)
    shape = node.attr["shape"].shape
    if port.shape is None:
        shape.unknown_rank = True
    else:
        for size in port.shape:
            shape.dim.add().size = -1 if size is None else size
        if not port.shape:
            shape.SetInParent()


def _number(dtype: str) -> int:
    from ckpttool.formats.dtypes import BY_NAME

    return BY_NAME[dtype].number
