"""Loops that fill lists of tensors, as recurrent layers do, made to run in TensorFlow.js.

After each turn of a loop TensorFlow.js disposes of every tensor that the body made and does
not return, also of one that it has just put into a list (tfjs-converter 4.22,
executor/graph_executor.ts, ``_executeAsync``). So each such tensor is returned here: it
becomes one more variable of the loop, which nothing reads. The loops of TensorFlow 1 (Enter,
Exit) are part of the one graph, where nothing is disposed of before the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ckpttool.conversion.worker.tfjs_functions import number_outputs, pass_results_on
from ckpttool.errors import UnsupportedError
from ckpttool.formats.dtypes import BY_NAME

__all__ = ["keep_items"]

_LOOPS = {"While", "StatelessWhile"}
_BRANCHES = {"If", "StatelessIf"}
#: What puts a tensor into a list → which of its inputs that is.
_PUTS = {"TensorListSetItem": 2, "TensorListPushBack": 1}
_NAME = "ckpttool_item"
_VARIANT = BY_NAME["variant"].number


@dataclass(frozen=True, slots=True)
class _Item:
    """A tensor that is put into a list: its name in the function, and its dtype."""

    tensor: str
    dtype: int


def keep_items(graph: Any, signature: str) -> None:  # noqa: ANN401
    """Make every loop return what it puts into lists.

    Args:
        graph: a GraphDef; it is changed.
        signature: what it is called in errors.

    Raises:
        UnsupportedError: id ``tfjs-loop``: a loop of which that cannot be made.
    """
    _pass_by_identities(graph.node, {})
    for function in graph.library.function:
        number_outputs(function)
        _pass_by_identities(function.node_def, function.ret)
    work = _Work({one.signature.name: one for one in graph.library.function}, signature)
    for loop in _of(graph.node, _LOOPS):
        work.extend(loop, graph.node)
    for function in graph.library.function:
        pass_results_on(function, kept=work.returned(function))


class _Work:
    """The functions of a graph, and which loops return what."""

    def __init__(self, functions: dict[str, Any], signature: str) -> None:
        self._functions = functions
        self._signature = signature
        self._items: dict[str, list[_Item]] = {}
        self._conditions: dict[str, str] = {}

    def extend(self, loop: Any, nodes: Any) -> list[int]:  # noqa: ANN401
        """Let a loop take and return what its body puts into lists.

        Args:
            loop: the node.
            nodes: those among which it stands.

        Returns:
            Which of its outputs those are.
        """
        body, condition = loop.attr["body"].func.name, loop.attr["cond"].func.name
        if self._conditions.setdefault(condition, body) != body:
            raise self._refusal(f"{condition} is the condition of several loops")
        if body not in self._items:
            self._items[body] = list(self._found(self._functions[body]))
            _return(self._functions[body], self._items[body])
            for item in self._items[body]:
                _argument(self._functions[condition], item.dtype)
        places = []
        for item in self._items[body]:
            places.append(len(loop.attr["T"].list.type))
            loop.attr["T"].list.type.append(item.dtype)
            if "output_shapes" in loop.attr:
                loop.attr["output_shapes"].list.shape.add().unknown_rank = True
            _put_before_control(loop, _nothing(nodes, f"{loop.name}/{_NAME}", item.dtype))
        return places

    def _found(self, function: Any) -> Iterator[_Item]:  # noqa: ANN401
        """What a body puts into lists, itself and in loops inside it."""
        for branch in _of(function.node_def, _BRANCHES):
            for key in ("then_branch", "else_branch"):
                if self._fills(branch.attr[key].func.name):
                    raise self._refusal(f"it fills a list in the branches of {branch.name}")
        for node in list(function.node_def):
            if node.op in _PUTS:
                yield _put_and_returned(node, function.node_def)
            elif node.op in _LOOPS:
                places = self.extend(node, function.node_def)
                if len(places) > 1:
                    raise self._refusal(f"{node.name}, inside a loop, fills several lists")
                for place in places:
                    dtype = node.attr["T"].list.type[place]
                    yield _Item(f"{node.name}:{place}", dtype)
                _return_lists_taken(function, node)

    def returned(self, function: Any) -> set[str]:  # noqa: ANN401
        """The results of a function that have to be the very tensors."""
        items = {item.tensor for item in self._items.get(function.signature.name, ())}
        return {
            name
            for name, tensor in function.ret.items()
            if tensor in items or _is_list(function, name)
        }

    def _fills(self, name: str) -> bool:
        """Whether a function puts something into a list, or a function that it calls does."""
        nodes = self._functions[name].node_def
        if any(True for _ in _of(nodes, set(_PUTS))):
            return True
        called = (
            node.attr[key].func.name
            for node in _of(nodes, _LOOPS | _BRANCHES)
            for key in ("body", "then_branch", "else_branch")
            if key in node.attr
        )
        return any(map(self._fills, called))

    def _refusal(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"the signature {self._signature} cannot run in TensorFlow.js",
            why=f"{why}, and TensorFlow.js disposes of what is in it before it is needed",
            hint="build recurrent layers with unroll=True and a fixed number of steps",
            id="tfjs-loop",
        )


def _return(function: Any, items: Sequence[_Item]) -> None:  # noqa: ANN401
    """Let a body return tensors, as themselves, and take as many."""
    for item in items:
        name = _argument(function, item.dtype)
        output = function.signature.output_arg.add()
        output.name, output.type = f"{name}_out", item.dtype
        function.ret[output.name] = item.tensor


def _put_and_returned(node: Any, nodes: Any) -> _Item:  # noqa: ANN401
    """The tensor that an operation puts into a list, as the one output of an operation."""
    place, dtype = _PUTS[node.op], node.attr["element_dtype"].type
    identity = nodes.add()
    identity.name, identity.op = f"{node.name}/{_NAME}", "Identity"
    identity.input.append(node.input[place])
    identity.attr["T"].type = dtype
    node.input[place] = identity.name
    return _Item(node.input[place], dtype)


def _return_lists_taken(function: Any, loop: Any) -> None:  # noqa: ANN401
    """Let a body return the lists that a loop inside it takes, not those that it gives.

    They are the same lists; and of the loop it can return one output (tfjs_functions.py).
    """
    for name in [name for name in function.ret if _is_list(function, name)]:
        node, _, rest = function.ret[name].partition(":")
        if node == loop.name:
            function.ret[name] = loop.input[int(rest or 0)]


def _is_list(function: Any, result: str) -> bool:  # noqa: ANN401
    types = {output.name: output.type for output in function.signature.output_arg}
    return bool(types[result] == _VARIANT)


def _pass_by_identities(nodes: Any, results: Any) -> None:  # noqa: ANN401
    """Take lists from where identities take them, which would give them another number.

    A list is known by the number of the tensor that stands for it (executor/tensor_list.ts).
    """
    passed = {
        node.name: node.input[0]
        for node in _of(nodes, {"Identity"})
        if node.attr["T"].type == _VARIANT
    }

    def origin(tensor: str) -> str:
        while (name := tensor.partition(":")[0]) in passed:
            tensor = passed[name]
        return tensor

    for node in nodes:
        inputs = [origin(one) for one in node.input]
        del node.input[:]
        node.input.extend(inputs)
    for name in list(results):
        results[name] = origin(results[name])


def _of(nodes: Sequence[Any], ops: set[str]) -> Iterator[Any]:
    return (node for node in list(nodes) if node.op in ops)


def _argument(function: Any, dtype: int) -> str:  # noqa: ANN401
    """One more argument, which nothing reads; its name."""
    name = f"{_NAME}_{len(function.signature.input_arg)}"
    argument = function.signature.input_arg.add()
    argument.name, argument.type = name, dtype
    return name


def _nothing(nodes: Any, wanted: str, dtype: int) -> str:  # noqa: ANN401
    """A constant of a dtype, for the first turn; its name."""
    taken = {node.name for node in nodes}
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    node = nodes.add()
    node.name, node.op = name, "Const"
    node.attr["dtype"].type = dtype
    node.attr["value"].tensor.dtype = dtype
    node.attr["value"].tensor.tensor_shape.SetInParent()
    return name


def _put_before_control(node: Any, name: str) -> None:  # noqa: ANN401
    data = [one for one in node.input if not one.startswith("^")]
    control = [one for one in node.input if one.startswith("^")]
    del node.input[:]
    node.input.extend([*data, name, *control])
