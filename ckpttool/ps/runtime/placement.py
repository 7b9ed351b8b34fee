"""Strategies of ``ckpttool.ps.partition`` applied to a ``ParameterServerStrategy``, and tables.

TensorFlow's strategy cuts into even row ranges and places in turn; it ignores ``tf.device``.
So even parts are left to its partitioner, other places are given by its counter, and uneven
ranges need a variable of their own: ``Table``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ckpttool.errors import UnsupportedError
from ckpttool.model import numel
from ckpttool.policy.partition import Part
from ckpttool.policy.placement import Piece, by_hash
from ckpttool.ps.partition import parse_partition

__all__ = ["Table", "keras3_partitioned", "partitioner_of", "place_variables", "placement_of"]


def partitioner_of(text: str | None, servers: int) -> Callable[..., list[int]] | None:
    """A partitioner as a strategy and ``tf.compat.v1.variable_scope`` take it.

    It gives the number of even parts along each dimension; uneven ranges cannot be said that
    way. None where ``text`` leaves variables whole.

    Raises:
        UsageError: id ``partition-words``.
    """
    partition = parse_partition(text, servers)
    if partition is None or not partition.cuts:
        return None

    def partitioner(shape: Any, dtype: Any, **_: Any) -> list[int]:
        dims = tuple(tf.TensorShape(shape).as_list())
        parts = partition.parts(dims, tf.as_dtype(dtype).size)
        if len(parts) > 1 and _keras3_asks():
            raise keras3_partitioned(f"a variable {list(dims)}")
        return [len(parts), *(1 for _ in dims[1:])]

    return partitioner


def placement_of(text: str | None, servers: int) -> Callable[[Any], int] | None:
    """The ``ps_strategy`` of ``tf.compat.v1.train.replica_device_setter``, of TensorFlow 1.

    None where ``text`` leaves it to TensorFlow, which goes from server to server.

    Raises:
        UsageError: id ``partition-words``.
    """
    partition = parse_partition(text, servers)
    if partition is None or partition.strategy not in {"hash", "size"}:
        return None
    load = [0] * servers

    def place(operation: Any) -> int:
        if partition.strategy == "hash":
            return by_hash([Piece(operation.name, 0)], servers)[0].shard
        server = load.index(min(load))
        shape = operation.get_attr("shape")
        dims = [dim.size for dim in shape.dim]
        load[server] += numel(tuple(dims)) * tf.as_dtype(operation.get_attr("dtype")).size
        return server

    return place


def place_variables(strategy: Any, text: str | None, servers: int) -> None:
    """Have a strategy place whole variables by ``hash``, or where the fewest bytes are.

    Its next server is a counter modulo the servers (parameter_server_strategy_v2.py:
    ``_create_variable_round_robin``), which is set before each variable.
    """
    partition = parse_partition(text, servers)
    if partition is None or partition.cuts:
        return
    extended = strategy.extended
    create = extended._create_variable
    load = [0] * servers

    def create_placed(next_creator: Any, **kwargs: Any) -> Any:
        if partition.strategy == "hash":
            name = str(kwargs.get("name") or "Variable")
            extended._variable_count = by_hash([Piece(name, 0)], servers)[0].shard
        else:
            extended._variable_count = load.index(min(load))
        server = extended._variable_count % servers
        variable = create(next_creator, **kwargs)
        load[server] += numel(tuple(variable.shape.as_list())) * variable.dtype.size
        return variable

    extended._create_variable = create_placed


def keras3_partitioned(what: str) -> UnsupportedError:
    """The refusal to cut a variable of Keras 3."""
    return UnsupportedError(
        f"{what} of a Keras 3 model cannot be cut into parts",
        why="Keras 3 cannot compute with a sharded variable: neither train nor save it",
        hint="leave --partition off, or use tf_keras: TF_USE_LEGACY_KERAS=1",
        id="keras3-partitioned",
    )


def _keras3_asks() -> bool:
    """Whether a variable is being made by Keras 3: it calls from its own modules.

    It would fail much later, and say that something has no attribute ``handle``.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("keras.src."):
            return True
        frame = frame.f_back
    return False


class Table(tf.Module):  # type: ignore[misc]
    """Rows in parts on several servers, of any lengths: an embedding that is one variable.

    A checkpoint has it as one variable, whatever its parts. It is made outside of the
    strategy's scope, for there TensorFlow would place the parts itself.

    Args:
        name: its name.
        shape: rows first.
        parts: how it is cut; part k lies on server k modulo ``servers``.
        servers: how many parameter servers there are.
        initializer: ``(shape, dtype) -> values`` of a part.
        dtype: of its elements.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        parts: Sequence[Part],
        servers: int,
        initializer: Callable[..., Any],
        dtype: Any = tf.float32,
    ) -> None:
        super().__init__(name)
        self.shape = tf.TensorShape(shape)
        self.dtype = tf.as_dtype(dtype)
        self._starts = [part.start[0] for part in parts]
        self.parts: list[tf.Variable] = []
        for number, part in enumerate(parts):
            with tf.device(f"/job:ps/replica:0/task:{number % servers}/device:CPU:0"):
                values = initializer(part.extent, self.dtype)
                self.parts.append(tf.Variable(values, name=f"{name}/part_{number}"))

    def lookup(self, ids: Any) -> tf.Tensor:
        """The rows of these ids, in their order and shape; each is read on its own server.

        The gradient of every part is that of the rows that were read (``IndexedSlices``).
        """
        ids = tf.convert_to_tensor(ids)
        flat = tf.reshape(tf.cast(ids, tf.int64), [-1])
        starts = tf.constant(self._starts, tf.int64)
        owner = tf.cast(tf.searchsorted(starts, flat, side="right") - 1, tf.int32)
        places = tf.dynamic_partition(tf.range(tf.size(flat)), owner, len(self.parts))
        local = tf.dynamic_partition(flat - tf.gather(starts, owner), owner, len(self.parts))
        rows = [tf.gather(part, local[number]) for number, part in enumerate(self.parts)]
        joined = tf.dynamic_stitch(places, rows)
        return tf.reshape(joined, tf.concat([tf.shape(ids), tf.shape(joined)[1:]], 0))

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """For a checkpoint it is one variable, not a list of them."""
        if save_type == "checkpoint":
            return {}
        return super()._trackable_children(save_type, **kwargs)

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {"VARIABLE_VALUE": tf.concat([part.read_value() for part in self.parts], 0)}

    def _restore_from_tensors(self, restored: dict[str, tf.Tensor]) -> tf.Operation:
        values = restored["VARIABLE_VALUE"]
        for start, part in zip(self._starts, self.parts, strict=True):
            part.assign(values[start : start + part.shape[0]])
        return tf.no_op()
