"""Live parameters of a TensorFlow 2 training, from inside its coordinator.

No other process can see them: every eager context has a session of its own on the servers
(tensorflow/core/distributed_runtime/eager/eager_service_impl.cc, ``CreateContext``).

A copy is made with the gate shut, by reading every variable on its own server, where it
stays; it is fetched when training goes on. TensorFlow copies at once what is written by rows,
and else when the variable is next written (resource_variable_ops.cc, ``copy_on_read_mode``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from ckpttool.errors import ClusterError, NotFoundError, RefusedError
from ckpttool.model import numel
from ckpttool.ps.runtime.fetched import chunks_of
from ckpttool.ps.runtime.gate import Gate
from ckpttool.ps.runtime.live import (
    PIECE_BYTES,
    LivePart,
    LiveVariable,
    Loaded,
    Mode,
    Moment,
)
from ckpttool.ps.runtime.tracked import Layout, walk
from ckpttool.sources.base import Source
from ckpttool.sources.nearest import nearest
from ckpttool.sources.selection import Selection

__all__ = ["HostedSource", "find", "lost", "require_fit"]


#: Servers that are asked to copy at the same time.
_AT_ONCE = 16


def lost(error: tf.errors.OpError) -> ClusterError:
    """The error of a server that is gone."""
    return ClusterError(
        "a server of the cluster does not answer",
        why=str(error)[:300],
        hint="serve-ps starts it again; a coordinator of your own has to be started anew",
        id="ps-lost",
    )


class HostedSource:
    """The variables of tracked objects; meets ``LiveSource``.

    Args:
        root: a ``tf.train.Checkpoint`` of them.
        gate: of the coordinator.
        step: gives the variable that counts steps; without one the gate's count is the step.
    """

    mode: Mode = "hosted"
    consistent = True

    def __init__(self, root: Any, gate: Gate, step: Callable[[], tf.Variable | None]) -> None:
        self._root = root
        self._gate = gate
        self._step = step

    @property
    def begun(self) -> bool:
        """See ``LiveSource``."""
        return self._gate.passed > 0

    @property
    def busy(self) -> bool:
        """See ``LiveSource``."""
        return self._gate.busy

    def variables(self) -> Sequence[LiveVariable]:
        """See ``LiveSource``."""
        return self._layout().variables

    def step(self) -> int | None:
        """See ``LiveSource``."""
        counter = self._step()
        if counter is None:
            return self._gate.passed
        try:
            return int(counter.numpy())
        except tf.errors.OpError as error:
            raise lost(error) from error

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """See ``LiveSource``."""
        layout = self._layout()
        variable = find(layout.variables, name)
        for number, part in enumerate(variable.parts):
            whole = _values_of(layout, variable, number)
            if not variable.shape:
                yield from _chunks(whole, 0, 1)
                continue
            end = variable.shape[0] if stop is None else min(stop, variable.shape[0])
            first = max(start - part.start[0], 0)
            last = min(end - part.start[0], part.extent[0])
            if first < last:
                row = numel(part.extent[1:])
                yield from _chunks(whole, first * row, (last - first) * row)

    @contextmanager
    def freeze(self, *, consistent: bool | None) -> Iterator[FrozenCopy]:
        """See ``LiveSource``; with ``consistent=False`` nothing waits."""
        before = self.step()
        try:
            if consistent is False:
                frozen = self._copy(before, consistent=False)
            else:
                started = time.monotonic()
                with self._gate.shut():
                    frozen = self._copy(before, consistent=True)
                    pause = time.monotonic() - started
                frozen.moment = frozen.moment._replace(pause_seconds=pause)
            frozen.moment = frozen.moment._replace(step_after=self.step())
        except tf.errors.OpError as error:
            raise lost(error) from error
        try:
            yield frozen
        except tf.errors.OpError as error:
            raise lost(error) from error
        finally:
            frozen.close()

    def write(self, source: Source, names: Sequence[str] | None = None) -> Loaded:
        """See ``LiveSource``: with the gate shut."""
        try:
            with self._gate.shut():
                return self._write(source, names)
        except tf.errors.OpError as error:
            raise lost(error) from error

    def _layout(self) -> Layout:
        return walk(self._root)

    def _copy(self, before: int | None, *, consistent: bool) -> FrozenCopy:
        now = time.time()
        layout = self._layout()
        copies = _copied(layout.parts)
        for key, tensor in layout.tensors.items():
            copies[key] = [tensor]
        step = self._step_in(layout, copies)
        return FrozenCopy(layout, copies, Moment(before, step, None, consistent, 0.0, now))

    def _step_in(self, layout: Layout, copies: Mapping[str, list[tf.Tensor]]) -> int | None:
        counter = self._step()
        if counter is None:
            return self._gate.passed
        for key, parts in layout.parts.items():
            if parts[0] is counter:
                return int(copies[key][0].numpy())
        return int(counter.numpy())

    def _write(self, source: Source, names: Sequence[str] | None) -> Loaded:
        layout = self._layout()
        live = {
            variable.key: variable for variable in layout.variables if variable.key in layout.parts
        }
        if names is None:
            chosen = list(live.values())
        else:
            chosen = [find(list(live.values()), name) for name in names]
        stored = {variable.key: variable for variable in source.variables()}
        require_fit(chosen, stored, source.location)
        nbytes = 0
        for variable in chosen:
            for number, part in enumerate(variable.parts):
                target = layout.parts[variable.key][number]
                rows = _rows(variable, part)
                nbytes += _assign(target, source, stored[variable.key], rows)
        graph = set(layout.strings)
        unused = () if names is not None else tuple(sorted(stored.keys() - live.keys() - graph))
        return Loaded(len(chosen), nbytes, source.step, unused)


class FrozenCopy:
    """Copies on the servers; meets ``Frozen``."""

    def __init__(self, layout: Layout, copies: dict[str, list[tf.Tensor]], moment: Moment) -> None:
        self._copies = copies
        self.variables = layout.variables
        self.strings = layout.strings
        self.moment = moment

    def pieces(self, variable: LiveVariable, part: int) -> Iterator[np.ndarray]:
        """See ``Frozen``."""
        copy = self._copies[variable.key][part]
        yield from _fetch(copy, 0, numel(variable.parts[part].extent))

    def string_values(self, variable: LiveVariable) -> list[bytes]:
        """See ``Frozen``."""
        return [
            bytes(value) for copy in self._copies[variable.key] for value in np.ravel(copy.numpy())
        ]

    def release(self, variable: LiveVariable) -> None:
        """See ``Frozen``."""
        self._copies.pop(variable.key, None)

    def close(self) -> None:
        """Let go of all that is left."""
        self._copies.clear()


def find(variables: Sequence[LiveVariable], name: str) -> LiveVariable:
    """The variable with this key or name.

    Raises:
        NotFoundError: id ``variable-not-found``.
    """
    for variable in variables:
        if variable.key == name:
            return variable
    for variable in variables:
        if variable.name == name:
            return variable
    close = nearest(name, [variable.name for variable in variables])
    raise NotFoundError(
        f"the training has no variable {name}",
        why=f"it has {len(variables)} others",
        hint=f"did you mean {', '.join(close)}?" if close else "ckpttool list shows them",
        id="variable-not-found",
    )


def _values_of(layout: Layout, variable: LiveVariable, part: int) -> tf.Tensor:
    """The live values of a part, on its server."""
    if variable.key in layout.tensors:
        return layout.tensors[variable.key]
    target = layout.parts[variable.key][part]
    with tf.device(target.device):
        return tf.identity(target)


def _copied(layout: Mapping[str, Sequence[tf.Variable]]) -> dict[str, list[tf.Tensor]]:
    """Copies of variables on their servers; all of them are there when this returns.

    The servers copy at the same time, each one variable after the other.
    """
    copies: dict[str, list[tf.Tensor]] = {key: [None] * len(parts) for key, parts in layout.items()}
    places: dict[str, list[tuple[str, int]]] = {}
    for key, parts in layout.items():
        for number, part in enumerate(parts):
            places.setdefault(part.device, []).append((key, number))

    def copy(device: str) -> None:
        with tf.device(device):
            for key, number in places[device]:
                part = layout[key][number]
                # tf.identity would be two operations, and two messages to the server.
                copies[key][number] = tf.raw_ops.ReadVariableOp(
                    resource=part.handle, dtype=part.dtype
                )
            # Operations on a server run in order: when the last is there, all are.
            tf.size(copies[key][number]).numpy()

    if places:
        with ThreadPoolExecutor(min(_AT_ONCE, len(places)), "ckpttool-copy") as threads:
            for _ in threads.map(copy, places):
                pass
    return copies


def _chunks(tensor: tf.Tensor, first: int, count: int) -> Iterator[bytes]:
    for piece in _fetch(tensor, first, count):
        yield from chunks_of(piece)


def _fetch(tensor: tf.Tensor, first: int, count: int) -> Iterator[np.ndarray]:
    """Some of the elements of a tensor on a server, a piece at a time."""
    with tf.device(tensor.device):
        pieces = _cut(tf.reshape(tensor, [-1]), first, count)
    while pieces:
        yield pieces.pop().numpy()


def _cut(flat: tf.Tensor, first: int, count: int) -> list[tf.Tensor]:
    """Pieces of the elements of a tensor, on its server, the last one first.

    ``unstack`` makes all of the same size at once and copies nothing. (One ``slice`` a
    piece sends two more tensors to the server: its begin and its size.)
    """
    size = max(1, PIECE_BYTES // flat.dtype.size)
    many, rest = divmod(count, size)
    pieces = []
    if rest:
        whole = rest == flat.shape[0]
        pieces.append(flat if whole else tf.slice(flat, [first + many * size], [rest]))
    if many:
        rows = tf.slice(flat, [first], [many * size])
        pieces += reversed(tf.unstack(tf.reshape(rows, [many, size])))
    return pieces


def _rows(variable: LiveVariable, part: LivePart) -> Selection:
    """The selection of a variable that a part of its rows is."""
    if not variable.shape:
        return Selection.whole(())
    first = part.start[0]
    return Selection.of(variable.shape, (slice(first, first + part.extent[0]),))


def require_fit(chosen: Sequence[LiveVariable], stored: Mapping[str, Any], location: str) -> None:
    """Check that all that is to be written is there, and fits."""
    missing = [variable.name for variable in chosen if variable.key not in stored]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise RefusedError(
            f"{location} does not have all that is live",
            why=f"it lacks {len(missing)} of {len(chosen)}: {', '.join(missing[:5])}{more}",
            hint="name the variables that are meant, or restore a snapshot of this training",
            id="restore-incomplete",
        )
    for variable in chosen:
        found = stored[variable.key]
        if (found.dtype, found.shape) != (variable.dtype, variable.shape):
            raise RefusedError(
                f"{variable.name} of {location} does not fit",
                why=f"it is {found.dtype}{list(found.shape or ())}, "
                f"and live is {variable.dtype}{list(variable.shape)}",
                hint="ckpttool diff shows all that is different",
                id="restore-shape",
            )


def _assign(target: tf.Variable, source: Source, stored: Any, selection: Selection) -> int:
    """Write rows of a stored variable into a live part, a piece at a time; gives the bytes."""
    shape = tuple(target.shape.as_list())
    if target.dtype == tf.string:
        values = np.array(source.strings(stored, selection), dtype=object).reshape(shape)
        with tf.device(target.device):
            target.assign(values)
        return sum(len(value) for value in np.ravel(values).tolist())
    nbytes: int = numel(shape) * target.dtype.size
    dtype = target.dtype.as_numpy_dtype
    row = max(1, nbytes // shape[0]) if shape and shape[0] else 0
    done = 0
    rest = b""
    for chunk in source.chunks(stored, selection):
        rest += chunk
        if done == 0 and len(rest) == nbytes:
            with tf.device(target.device):
                target.assign(np.frombuffer(rest, dtype).reshape(shape))
            return nbytes
        whole = len(rest) // row
        if whole:
            value = np.frombuffer(rest, dtype, whole * row // target.dtype.size)
            with tf.device(target.device):
                # Not target[a:b].assign(): a variable of a strategy's scope has no such slices.
                tf.raw_ops.ResourceStridedSliceAssign(
                    ref=target.handle,
                    begin=[done],
                    end=[done + whole],
                    strides=[1],
                    value=value.reshape(whole, *shape[1:]),
                )
            done += whole
            rest = rest[whole * row :]
    return nbytes
