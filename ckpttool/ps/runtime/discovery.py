"""Which variables of a TensorFlow 1 cluster are there, where, and in which parts.

Every name is tried on every server; a variable that is not there as a whole is looked for
in parts. Their shapes are asked of the servers: a checkpoint may have been cut otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ckpttool.errors import NotFoundError
from ckpttool.ps.runtime.live import LivePart, LiveVariable
from ckpttool.ps.runtime.names import Wanted, part_names
from ckpttool.sources.kinds import kind_of_name

__all__ = ["Discovery", "handle_of"]

tf1 = tf.compat.v1
_R = tf.raw_ops
#: Parts of a variable that are tried at once.
_PARTS_AT_ONCE = 16


class Discovery:
    """Looks for variables.

    Args:
        session: on the cluster; its target and settings are used, not its graph.
        servers: the numbers of the parameter servers.
    """

    def __init__(self, session: Any, servers: Sequence[int]) -> None:
        self._session = session
        self._servers = servers

    def find(self, wanted: Sequence[Wanted]) -> list[tuple[LiveVariable, list[str]]]:
        """Try every name on every server; gives variables and what their parts are called.

        Raises:
            NotFoundError: id ``no-live-variables``.
        """
        live: list[tuple[LiveVariable, list[str]]] = []
        whole = self._probe([(one.name, one.dtype) for one in wanted])
        for one in wanted:
            found = [(one.name, *whole[one.name])] if one.name in whole else self._parts(one)
            variable = _variable(one, found)
            if variable is not None:
                live.append((variable, [name for name, _, _ in found]))
        if not live:
            raise NotFoundError(
                "none of the variables is live in this cluster",
                why=f"{len(wanted)} names were tried on {len(self._servers)} parameter servers",
                hint="they have to be of this training, which has to have begun, with resource "
                "variables (tf.compat.v1.enable_resource_variables)",
                id="no-live-variables",
            )
        return live

    def _parts(self, one: Wanted) -> list[tuple[str, int, tuple[int, ...]]]:
        """The parts of a variable that is not there as a whole: name, server, shape."""
        found: list[tuple[str, int, tuple[int, ...]]] = []
        while True:
            numbers = range(len(found), len(found) + _PARTS_AT_ONCE)
            names = [name for number in numbers for name in part_names(one.name, number)]
            there = self._probe([(name, one.dtype) for name in names])
            for number in numbers:
                known = [name for name in part_names(one.name, number) if name in there]
                if not known:
                    return found
                found.append((known[0], *there[known[0]]))

    def _probe(self, names: Sequence[tuple[str, str]]) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Which of these are there: the server and the shape of each."""
        graph = tf.Graph()
        keys = [(name, dtype, server) for name, dtype in names for server in self._servers]
        with graph.as_default():
            asked = [
                _on(server, _R.VarIsInitializedOp, resource=_named(name, dtype, server))
                for name, dtype, server in keys
            ]
            with self._on_graph(graph) as session:
                answers = session.run(asked)
            there = [key for key, yes in zip(keys, answers, strict=True) if yes]
            shapes = [
                _on(
                    server,
                    _R.VariableShape,
                    input=_named(name, dtype, server),
                    out_type=tf.int64,
                )
                for name, dtype, server in there
            ]
            with self._on_graph(graph) as session:
                sizes = session.run(shapes)
        return {
            name: (server, tuple(int(size) for size in one))
            for (name, _, server), one in zip(there, sizes, strict=True)
        }

    def _on_graph(self, graph: Any) -> Any:
        return tf1.Session(self._session.sess_str, graph=graph, config=self._session._config)


def handle_of(name: str, dtype: tf.DType, container: str = "") -> Any:
    """The handle of a resource variable by its name, on the device of the moment."""
    return _R.VarHandleOp(
        dtype=dtype, shape=tf.TensorShape(None), shared_name=name, container=container
    )


def _on(server: int, make: Any, **arguments: Any) -> Any:
    """An operation on a server."""
    with tf1.device(f"/job:ps/task:{server}"):
        return make(**arguments)


def _named(name: str, dtype: str, server: int) -> Any:
    with tf1.device(f"/job:ps/task:{server}"):
        return handle_of(name, tf.as_dtype(dtype))


def _variable(
    one: Wanted, found: Sequence[tuple[str, int, tuple[int, ...]]]
) -> LiveVariable | None:
    """A variable of the parts that were found, cut along the one axis in which they differ."""
    if not found:
        return None
    shapes = [shape for _, _, shape in found]
    kind = kind_of_name(one.name)
    if len(found) == 1:
        part = LivePart(found[0][1], (0,) * len(shapes[0]), shapes[0])
        return LiveVariable(one.name, one.name, one.dtype, shapes[0], kind, (part,))
    axis = _axis(shapes, one.shape)
    first = 0
    parts = []
    for _, server, shape in found:
        start = tuple(first if dim == axis else 0 for dim in range(len(shape)))
        parts.append(LivePart(server, start, shape))
        first += shape[axis]
    whole = tuple(first if dim == axis else size for dim, size in enumerate(shapes[0]))
    return LiveVariable(one.name, one.name, one.dtype, whole, kind, tuple(parts))


def _axis(shapes: Sequence[tuple[int, ...]], whole: tuple[int, ...] | None) -> int:
    """The axis that is cut: where parts differ from the whole, or from each other; else rows."""
    for dim in range(len(shapes[0])):
        if whole is not None and len(whole) == len(shapes[0]) and whole[dim] != shapes[0][dim]:
            return dim
        if len({shape[dim] for shape in shapes}) > 1:
            return dim
    return 0
