"""Live parameters of a TensorFlow 1 cluster, from outside: whoever trains it is not asked.

A variable of such a cluster is reached by its name, through a session on one of its
parameter servers. A copy is made on each server, beside the variable, under a name of our
own, and fetched when training has gone on; workers write while it is made, so it is of one
moment only where their hooks pause them (``hook``).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ckpttool.conversion.wire import decode
from ckpttool.errors import CkpttoolError, RefusedError, UnreachableError
from ckpttool.limits import default_limits
from ckpttool.model import numel
from ckpttool.ps.channel import Channel
from ckpttool.ps.cluster import parse_address
from ckpttool.ps.live_protocol import failure
from ckpttool.ps.run_dir import RunDirectory
from ckpttool.ps.runtime.discovery import Discovery, handle_of
from ckpttool.ps.runtime.fetched import chunks_of
from ckpttool.ps.runtime.hook import CONTAINER, Pause
from ckpttool.ps.runtime.hosted import find, lost, require_fit
from ckpttool.ps.runtime.live import LiveVariable, Loaded, Mode, Moment, pieces_of
from ckpttool.ps.runtime.live_host import LiveHost
from ckpttool.ps.runtime.names import Wanted, wanted_variables
from ckpttool.ps.setup import AttachSetup
from ckpttool.sources.base import Source
from ckpttool.sources.selection import Selection

__all__ = ["AttachedSource", "run"]

tf1 = tf.compat.v1
_R = tf.raw_ops
_TIMEOUT_MS = 60_000
_CONNECT_SECONDS = 10.0


def run(job: dict[str, Any], channel: Channel) -> None:
    """Attach, and serve. Tells ``ready``, or ``failed`` with the reason.

    Args:
        job: ``setup`` (an ``AttachSetup``, encoded).
        channel: to the supervisor.
    """
    setup = decode(AttachSetup, job["setup"])
    try:
        wanted = wanted_variables(setup.names, default_limits())
        source = AttachedSource(setup.target, wanted)
        run = RunDirectory(setup.run_dir)
        host = LiveHost(source, run, setup.snapshots, setup.exports, setup.keep_exports)
        host.on_failure = lambda what: channel.send({"event": "failing", "what": what})
        with host:
            channel.send({"event": "ready"})
            threading.Event().wait()
    except CkpttoolError as error:
        channel.send({"event": "failed", **failure(error)})


class _Live(NamedTuple):
    """The operations of one part: fixed, so that a graph does not grow with use."""

    handle: Any
    copy: Any
    drop: Any
    piece: Any
    live_piece: Any


class AttachedSource:
    """The variables of a cluster that answer to their names; meets ``LiveSource``.

    Args:
        target: ``host:port`` of a parameter server.
        wanted: what is looked for; what is not there is left out.

    Raises:
        UnreachableError: id ``ps-unreachable``.
        NotFoundError: id ``no-live-variables``.
    """

    mode: Mode = "attached"
    begun = busy = True  # as far as can be known from outside

    def __init__(self, target: str, wanted: Sequence[Wanted]) -> None:
        _require_listener(target)
        self._graph = tf.Graph()
        self._session = tf1.Session(
            f"grpc://{target}",
            graph=self._graph,
            config=tf1.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=_TIMEOUT_MS),
        )
        self._freezing = threading.Lock()
        try:
            devices = {_task(device.name) for device in self._session.list_devices()}
            self._servers = sorted(task for task in devices if task is not None)
            found = Discovery(self._session, self._servers).find(wanted)
            self._variables = [variable for variable, _ in found]
            #: What the parts of a variable are called, by its key.
            self._names = {variable.key: names for variable, names in found}
        except tf.errors.OpError as error:
            raise _unreachable(target, str(error)[:300]) from error
        with self._graph.as_default():
            self._first = tf1.placeholder(tf.int64, [])
            self._count = tf1.placeholder(tf.int64, [])
            self._live = {
                (variable.key, number): self._operations(variable, number)
                for variable in self._variables
                for number in range(len(variable.parts))
            }
            self._pause = Pause(self._session, self._servers[0])

    @property
    def consistent(self) -> bool:
        """Whether every worker has a hook."""
        return self._pause.complete()

    def variables(self) -> Sequence[LiveVariable]:
        """See ``LiveSource``."""
        return self._variables

    def step(self) -> int | None:
        """See ``LiveSource``: of the first variable that counts steps."""
        for variable in self._variables:
            if variable.kind == "step" and not variable.shape:
                data = b"".join(self.read(variable.key))
                return int.from_bytes(data, "little", signed=True)
        return None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """See ``LiveSource``; of a variable in parts along its rows."""
        variable = find(self._variables, name)
        for number, part in enumerate(variable.parts):
            piece = self._live[variable.key, number].live_piece
            row = numel(part.extent[1:])
            if not variable.shape:
                yield from self._chunks(piece, 0, 1)
                continue
            end = variable.shape[0] if stop is None else stop
            first = max(start - part.start[0], 0)
            last = min(end - part.start[0], part.extent[0])
            if first < last:
                yield from self._chunks(piece, first * row, (last - first) * row)

    @contextmanager
    def freeze(self, *, consistent: bool | None) -> Iterator[FrozenShadow]:
        """See ``LiveSource``. One at a time: the copies have fixed names."""
        if consistent and not self.consistent:
            raise RefusedError(
                "a snapshot of one moment cannot be made of this cluster",
                why="its workers write while variables are copied, and not all have a hook",
                hint="add ckpttool.ps.PauseHook to every trainer, or take what there is",
                id="snapshot-not-whole",
            )
        with self._freezing:
            frozen = None
            try:
                frozen = self._copy(pause=consistent is not False and self.consistent)
                yield frozen
            except tf.errors.OpError as error:
                raise lost(error) from error
            finally:
                if frozen is not None:
                    frozen.close()

    def write(self, source: Source, names: Sequence[str] | None = None) -> Loaded:
        """See ``LiveSource``. Workers are paused where they have hooks."""
        chosen = (
            list(self._variables)
            if names is None
            else [find(self._variables, name) for name in names]
        )
        stored = {variable.key: variable for variable in source.variables()}
        require_fit(chosen, stored, source.location)
        nbytes = 0
        with self._pause.held(pause=self.consistent), self._graph.as_default():
            for variable in chosen:
                values = source.read(stored[variable.key], Selection.whole(variable.shape))
                for number, part in enumerate(variable.parts):
                    box = tuple(
                        slice(first, first + size)
                        for first, size in zip(part.start, part.extent, strict=True)
                    )
                    self._assign(variable, number, np.ascontiguousarray(values[box]))
                nbytes += values.nbytes
        return Loaded(len(chosen), nbytes, source.step)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _assign(self, variable: LiveVariable, number: int, values: np.ndarray) -> None:
        """Write a part, a range of its rows at a time."""
        live = self._live[variable.key, number]
        if not values.ndim:
            self._write_rows(live, variable, values, None)
            return
        row = numel(values.shape[1:]) * values.itemsize
        for first, rows in pieces_of(values.shape[0], row):
            self._write_rows(live, variable, values[first : first + rows], first)

    def _write_rows(
        self, live: _Live, variable: LiveVariable, values: np.ndarray, first: int | None
    ) -> None:
        graph = tf.Graph()  # thrown away: operations with values of their own may not pile up
        part = live.handle.op
        with graph.as_default(), tf1.device(part.device):
            handle = _R.VarHandleOp(
                dtype=tf.as_dtype(variable.dtype),
                shape=tf.TensorShape(None),
                shared_name=part.get_attr("shared_name").decode(),
                container="",
            )
            value = tf1.placeholder(tf.as_dtype(variable.dtype), values.shape)
            if first is None:
                write = _R.AssignVariableOp(resource=handle, value=value)
            else:
                write = _R.ResourceStridedSliceAssign(
                    ref=handle,
                    begin=[first],
                    end=[first + values.shape[0]],
                    strides=[1],
                    value=value,
                )
        with tf1.Session(self._session.sess_str, graph=graph, config=self._session._config) as one:
            one.run(write, {value: values})

    def _copy(self, *, pause: bool) -> FrozenShadow:
        before = self.step()
        with self._pause.held(pause=pause) as seconds:
            now = time.time()
            self._session.run([live.copy for live in self._live.values()])
        frozen = FrozenShadow(self, self._variables)
        step = None
        for variable in self._variables:
            if variable.kind == "step" and not variable.shape:
                step = int(next(frozen.pieces(variable, 0))[0])
                break
        frozen.moment = Moment(before, step, self.step(), pause, seconds[0], now)
        return frozen

    def drop(self, variable: LiveVariable) -> None:
        """Remove the copies of a variable from the servers."""
        self._session.run(
            [self._live[variable.key, number].drop for number in range(len(variable.parts))]
        )

    def fetch_copy(self, variable: LiveVariable, part: int) -> Iterator[np.ndarray]:
        """The elements of the copy of a part."""
        count = numel(variable.parts[part].extent)
        yield from self._fetch(self._live[variable.key, part].piece, first=0, count=count)

    def _chunks(self, piece: Any, first: int, count: int) -> Iterator[bytes]:
        for array in self._fetch(piece, first, count):
            yield from chunks_of(array)

    def _fetch(self, piece: Any, first: int, count: int) -> Iterator[np.ndarray]:
        for begin, size in pieces_of(count, piece.dtype.size):
            yield self._session.run(piece, {self._first: first + begin, self._count: size})

    def _operations(self, variable: LiveVariable, number: int) -> _Live:
        part = variable.parts[number]
        dtype = tf.as_dtype(variable.dtype)
        name = self._names[variable.key][number]
        with tf1.device(f"/job:ps/task:{part.ps}"):
            live = handle_of(name, dtype)
            shadow = handle_of(f"ckpttool/{name}", dtype, CONTAINER)
            return _Live(
                live,
                _R.AssignVariableOp(
                    resource=shadow, value=_R.ReadVariableOp(resource=live, dtype=dtype)
                ),
                _R.DestroyResourceOp(resource=shadow, ignore_lookup_error=True),
                self._piece(shadow, dtype),
                self._piece(live, dtype),
            )

    def _piece(self, handle: Any, dtype: tf.DType) -> Any:
        flat = tf.reshape(_R.ReadVariableOp(resource=handle, dtype=dtype), [-1])
        return tf.slice(flat, [self._first], [self._count])


class FrozenShadow:
    """Copies beside the variables, on their servers; meets ``Frozen``."""

    moment: Moment
    strings: dict[str, bytes]

    def __init__(self, source: AttachedSource, variables: Sequence[LiveVariable]) -> None:
        self._source = source
        self._held = {variable.key: variable for variable in variables}
        self.variables = variables
        self.strings = {}

    def pieces(self, variable: LiveVariable, part: int) -> Iterator[np.ndarray]:
        """See ``Frozen``."""
        return self._source.fetch_copy(variable, part)

    def string_values(self, variable: LiveVariable) -> list[bytes]:
        """See ``Frozen``; variables of strings are not looked for."""
        raise AssertionError(f"{variable.name} is no string")

    def release(self, variable: LiveVariable) -> None:
        """See ``Frozen``."""
        if self._held.pop(variable.key, None) is not None:
            self._source.drop(variable)

    def close(self) -> None:
        """Let go of all that is left; of servers that are gone there is nothing."""
        for variable in list(self._held.values()):
            try:
                self.release(variable)
            except tf.errors.OpError:
                return


def _require_listener(target: str) -> None:
    """Check that somebody listens: a session would wait for a minute."""
    host, port = parse_address(target)
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        raise _unreachable(target, error.strerror or str(error)) from None


def _unreachable(target: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"no parameter server answers at {target}",
        why=why,
        hint="give --ps an address of the cluster's job ps, as host:port",
        id="ps-unreachable",
    )


def _task(device: str) -> int | None:
    spec = tf.DeviceSpec.from_string(device)
    return spec.task if spec.job == "ps" else None
