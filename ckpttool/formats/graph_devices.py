"""The devices that a MetaGraph gives to variables: ``/job:ps/task:K`` → K.

A bounded walk over a ``.meta`` file (tensorflow/core/protobuf/meta_graph.proto, graph.proto)
that looks at three fields of the nodes that hold variables and at nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckpttool.formats.wire import fields

__all__ = ["variable_tasks"]

_VARIABLE_OPS = {b"Variable", b"VariableV2", b"VarHandleOp", b"AutoReloadVariable"}
_TASK = re.compile(rb"/job:(?:ps|parameter_server)(?:/replica:[0-9]+)?/task:([0-9]{1,9})(?:/|$)")
_GRAPH, _NODE = 2, 1
_NAME, _OP, _DEVICE = 1, 2, 4


def variable_tasks(meta: bytes) -> Iterator[tuple[str, int]]:
    """The name of every variable in the graph that is placed on a ps task, and the task.

    Raises:
        CorruptError: ``meta`` is no message.
    """
    for number, _, graph in fields(meta):
        if number != _GRAPH or isinstance(graph, int):
            continue
        for inner, _, node in fields(meta, *graph):
            if inner != _NODE or isinstance(node, int):
                continue
            found = {_NAME: b"", _OP: b"", _DEVICE: b""}
            for field, _, value in fields(meta, *node):
                if field in found and not isinstance(value, int):
                    found[field] = meta[value[0] : value[1]]
            task = _TASK.search(found[_DEVICE])
            if found[_OP] in _VARIABLE_OPS and task:
                yield found[_NAME].decode("utf-8", "surrogateescape"), int(task[1])
